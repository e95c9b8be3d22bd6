#!/bin/sh
# Finds or makes the Python that cephalorun's own targets use, and prints its path.
#
#   setup.sh [--python PATH]       a Python with torch: --python, else CEPHALO_PYTHON, else the
#                                  python3 on PATH, else a virtual environment in the cache folder
#   setup.sh --torch VERSION       a cached environment with that torch ("newest": at most a week old)
#   setup.sh --tools PYTHON        the folder with pytest and ruff for that Python
#
# The cache folder is $CEPHALO_CACHE, else $XDG_CACHE_HOME/cephalorun, else ~/.cache/cephalorun.
# Messages go to standard error. Exit codes: 0 done, 2 bad usage, 4 this machine cannot do it.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=${CEPHALO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cephalorun}
probe_seconds=5

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 4; }

# Prints "EXECUTABLE PYTHON-VERSION TORCH-VERSION NUMPY?" of a Python, without importing torch.
describe() {
	"$1" -c '
import sys
from importlib.util import find_spec
from importlib.metadata import PackageNotFoundError, version
try:
    torch = version("torch")
except PackageNotFoundError:
    torch = "-"
python = "%d.%d" % sys.version_info[:2]
print(python, torch, "numpy" if find_spec("numpy") else "-", sys.executable)' 2>/dev/null
}

# at_least VERSION MAJOR MINOR
at_least() {
	major=${1%%.*} minor=${1#*.} minor=${minor%%[!0-9]*}
	case $major$minor in '' | *[!0-9]*) return 1 ;; esac
	[ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -ge "$3" ]; }
}

# use PYTHON NAME: prints it if it has a torch that will do; fails with one sentence otherwise.
use() {
	read -r python torch _ path <<-END
		$(describe "$1" || echo - - - -)
	END
	[ "$path" != - ] || fail "$2 is '$1', which is not a Python 3.10 or newer that runs."
	at_least "$python" 3 10 || fail "$2 is Python $python; 3.10 or newer is needed."
	[ "$torch" != - ] || fail "$2 ($path) has no torch; install torch 2.8 or newer there, or leave it unset."
	at_least "$torch" 2 8 || fail "$2 ($path) has torch $torch; 2.8 or newer is needed."
	printf '%s\n' "$path"
}

# Prints a Python that can make environments.
base_python() {
	seen=
	for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
		read -r python _ _ path <<-END
			$(describe "$name" || echo - - - -)
		END
		at_least "$python" 3 10 || { [ "$python" = - ] || seen="$seen; $name is Python $python"; continue; }
		"$path" -c 'import ensurepip, venv' 2>/dev/null && { printf '%s\n' "$path"; return; }
		seen="$seen; $path has no venv module (on Debian and Ubuntu: apt install python3-venv)"
	done
	fail "Python 3.10 or newer with the venv module is needed${seen:-, and no python3 is on PATH}."
}

# Held until this script and what it started have ended; the lock belongs to the open file.
lock() {
	mkdir -p "$cache" || fail "cannot write to the cache folder $cache; set CEPHALO_CACHE to one that can be written."
	exec 9>"$cache/lock"
	"$1" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null && return
	say "waiting for another set-up in $cache"
	"$1" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
}

quiet() { [ -t 2 ] || printf '%s' --quiet; }

pip() {
	python=$1
	shift
	# shellcheck disable=SC2046 # no word at all when not quiet
	PIP_USER=0 "$python" -m pip --disable-pip-version-check --no-input $(quiet) "$@" >&2
}

# A user who tells pip where packages come from, and how, gets them that way: by pip alone.
# (Certificates and PIP_FIND_LINKS do not count: uv takes them too.)
pip_is_configured() {
	"$1" -m pip config list 2>/dev/null | sed "/^:env:.find-links=/d" |
		grep -Eq '(index-url|no-index|find-links|proxy|trusted-host|client-cert|constraint)='
}

has_nvidia() { [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# within SECONDS COMMAND...: a hard limit, also where there is no timeout(1).
within() {
	"$base" -c '
import subprocess, sys
try:
    sys.exit(subprocess.run(sys.argv[2:], timeout=float(sys.argv[1])).returncode)
except (OSError, subprocess.TimeoutExpired):
    sys.exit(1)' "$@"
}

# Prints a uv that runs: the one on PATH, else one in the cache.
find_uv() {
	uv --version >/dev/null 2>&1 && command -v uv && return
	if ! [ -x "$cache/uv/bin/uv" ]; then
		rm -rf "$cache/uv" "$cache/uv.new"
		pip "$1" install --target "$cache/uv.new" uv && mv "$cache/uv.new" "$cache/uv" || return
	fi
	printf '%s\n' "$cache/uv/bin/uv"
}

# uv gets pip's certificates and local wheels.
uv_like_pip() {
	cert=${PIP_CERT:-$("$env_python" -m pip config get global.cert 2>/dev/null || true)}
	[ -z "$cert" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$cert}"
	[ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS="$PIP_FIND_LINKS"
}

# Bytecode is compiled once here: where Python may not write it, every start would compile torch.
# packages REQUIREMENTS-FILE: into $env_python. Where no GPU wants the large build and PyTorch's
# own index answers, that is PyTorch's small CPU build; else the ordinary one.
packages() {
	requirements=$1
	if ! pip_is_configured "$env_python" && uv=$(find_uv "$env_python"); then
		uv_like_pip
		set -- "$uv" pip install --quiet --compile-bytecode --python "$env_python" -r "$requirements"
		if [ "$(uname -s)" = Linux ] && ! has_nvidia; then
			if within "$probe_seconds" "$@" --torch-backend cpu --dry-run 2>/dev/null; then
				say "no NVIDIA driver here: installing PyTorch's small CPU build"
				"$@" --torch-backend cpu >&2 && return
			fi
			say "PyTorch's own index did not answer within $probe_seconds s; taking the ordinary build"
		fi
		say "installing torch"
		"$@" >&2 && return
	fi
	say "installing torch with pip"
	pip "$env_python" install -r "$requirements"
}

# Removes environments that were never finished, or that nothing points at any more.
sweep() {
	for old in "$cache"/envs/*; do
		linked=
		for link in "$cache"/*; do
			if [ "$(readlink "$link" || true)" = "envs/${old##*/}" ]; then linked=yes; fi
		done
		if [ -d "$old" ] && [ -z "$linked" ]; then rm -rf "$old"; fi
	done
}

# environment NAME REQUIREMENTS-FILE: made aside, then $cache/NAME is pointed at it in one step.
environment() {
	mkdir -p "$cache/envs"
	sweep
	new=$(mktemp -d "$cache/envs/$1.XXXXXX")
	say "making a virtual environment with torch in $cache (once; up to 5 GB and a few minutes)"
	"$base" -m venv "$new" >&2 || fail "$base could not make a virtual environment in $new."
	env_python=$new/bin/python
	packages "$2" || fail "pip could not install torch; its message is above."
	use "$new/bin/python" "the new environment" >/dev/null
	cp "$2" "$new/complete"
	"$base" -c '
import os, sys
target, link = sys.argv[1:]
os.symlink(target, link + ".new")
os.replace(link + ".new", link)' "envs/${new##*/}" "$cache/$1"
	say "done: $cache/$1"
}

ready() { [ -x "$cache/$1/bin/python" ] && cmp -s "$2" "$cache/$1/complete"; }

cached() {
	if ! ready "$1" "$2"; then
		base=$(base_python)
		lock "$base"
		rm -f "$cache/$1.new"
		ready "$1" "$2" || environment "$1" "$2"
	fi
	printf '%s\n' "$cache/$1/bin/python"
}

choose() {
	if [ -n "$1" ]; then use "$1" --python; return; fi
	if [ -n "${CEPHALO_PYTHON:-}" ]; then use "$CEPHALO_PYTHON" CEPHALO_PYTHON; return; fi
	read -r python torch _ path <<-END
		$(describe python3 || echo - - - -)
	END
	if at_least "$python" 3 10 && at_least "$torch" 2 8; then
		printf '%s\n' "$path"
	else
		cached venv "$here/requirements.txt"
	fi
}

matrix() {
	wanted=$(mktemp)
	trap 'rm -f "$wanted"' EXIT
	if [ "$1" = newest ]; then
		cat "$here/requirements.txt" >"$wanted"
		if [ -n "$(find "$cache/torch-newest/complete" -mtime +7 2>/dev/null)" ]; then rm "$cache/torch-newest"; fi
	else
		sed "s/^torch>=.*/torch==$1/" "$here/requirements.txt" >"$wanted"
	fi
	cached "torch-$1" "$wanted"
}

# Tools lie in a folder of their own, for PYTHONPATH; numpy with them where the Python has none.
tools() {
	read -r python _ numpy path <<-END
		$(describe "$1" || echo - - - -)
	END
	[ "$path" != - ] || fail "'$1' is not a Python that runs."
	folder=$cache/tools-$python
	[ "$numpy" != - ] || folder=$folder-numpy
	if ! cmp -s "$here/requirements-tools.txt" "$folder/complete"; then
		base=$(base_python)
		lock "$base"
		cmp -s "$here/requirements-tools.txt" "$folder/complete" || install_tools "$path" "$folder"
	fi
	printf '%s\n' "$folder"
}

install_tools() {
	say "installing pytest and ruff in $2 (once)"
	rm -rf "$2" "$2.new"
	set -- "$1" "$2" -r "$here/requirements-tools.txt"
	case $2 in *-numpy) set -- "$@" numpy ;; esac
	python=$1 folder=$2
	shift 2
	installer=$python
	"$python" -m pip --version >/dev/null 2>&1 || installer=$base
	version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	pip "$installer" install --target "$folder.new" --python-version "$version" --only-binary :all: "$@" ||
		fail "pip could not install the test tools; its message is above."
	cp "$here/requirements-tools.txt" "$folder.new/complete"
	mv "$folder.new" "$folder"
}

case ${1:-} in
'') choose '' ;;
--python | --torch | --tools)
	[ $# -eq 2 ] || { say "$1 needs one value."; exit 2; }
	case $1 in --python) choose "$2" ;; --torch) matrix "$2" ;; --tools) tools "$2" ;; esac
	;;
-h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" ;;
*) say "unknown argument '$1'; see setup.sh --help"; exit 2 ;;
esac
