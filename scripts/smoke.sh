#!/bin/sh
# Trains for about two minutes on whatever this machine has, and checks the outcome: unequal GPUs,
# one GPU cut into parts, or virtual devices on the processor. Needs bin/cephalorun.
set -eu

cd "$(dirname "$0")/.."
python=$(scripts/setup.sh)
state=$(mktemp -d "${TMPDIR:-/tmp}/cephalo-smoke.XXXXXX")
limit_seconds=600

say() { printf 'smoke: %s\n' "$*"; }
fail() { say "FAILED: $*; the run's files are in $state"; exit 1; }

# One line per GPU: memory in MiB, name.
gpus() {
	command -v nvidia-smi >/dev/null || return 0
	nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits 2>/dev/null | grep '^[0-9]' || true
}

# parts MIB: a devices file that cuts GPU 0 into four unequal parts (docs/devices.md: why these).
parts() {
	echo "devices:"
	for share in 48 27 12 10; do
		echo "  - { name: part-$share, kind: cuda, index: 0, sm_percent: $share, memory: $(($1 * share / 105))MiB }"
	done
}

# Processes that still name this run's folder.
left() {
	for process in /proc/[0-9]*; do
		if tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -qF "$state"; then
			printf '%s ' "${process#/proc/}"
		fi
	done
}

found=$(gpus)
count=$(printf '%s' "$found" | grep -c '^' || true)
kinds=$(printf '%s\n' "$found" | sort -u | grep -c '^' || true)
gpu_options="--layers 8 --width 512 --heads 8 --sequence 256 --dtype bf16 --lr 1e-3 --steps 300"
set --
case $count in
0)
	what="virtual devices on the processor (no NVIDIA GPU here)"
	set -- --devices examples/devices-cpu.yaml
	script_options="--batch-size 8 --steps 120"
	;;
1)
	what="one GPU cut into four unequal parts by MPS: $found"
	command -v nvidia-cuda-mps-control >/dev/null || fail "nvidia-cuda-mps-control is not on PATH"
	parts "${found%%,*}" >"$state/devices.yaml"
	set -- --devices "$state/devices.yaml"
	script_options="$gpu_options --batch-size 32 --backend gloo"
	;;
*)
	what="$count GPUs of $kinds kinds"
	script_options="$gpu_options --batch-size 32"
	;;
esac
say "training on $what"

code=0
# shellcheck disable=SC2086 # the options are words
timeout "$limit_seconds" bin/cephalorun --python "$python" --state-dir "$state" "$@" \
	examples/train_gpt.py $script_options || code=$?

[ "$code" -eq 0 ] || fail "cephalorun ended with $code (124: not done after $limit_seconds s)"
run=$state/runs/latest
losses=$(sed -n 's/.*step *[0-9]* *loss \([0-9.]*\).*/\1/p' "$run/logs/rank-0.log")
first=$(printf '%s\n' "$losses" | head -n 1)
last=$(printf '%s\n' "$losses" | tail -n 1)
awk -v first="${first:-0}" -v last="${last:-9}" 'BEGIN { exit !(first > 4.5 && last < 3.3) }' ||
	fail "the loss should fall from about 5.5 to under 3.3, and went from '$first' to '$last'"
[ -s "$run/report.html" ] || fail "there is no report.html"
survivors=$(left)
[ -z "$survivors" ] || fail "processes are left: $survivors"

say "passed: loss $first to $last on $what; report written; no process left"
rm -rf "$state"
