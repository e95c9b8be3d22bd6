#!/bin/sh
# Says in one sentence what is wrong with the Go on PATH, if anything is.
set -eu

fail() { printf '%s\n' "$*" >&2; exit 4; }

wanted=1.25
command -v go >/dev/null || fail "Go $wanted or newer is needed, and there is no go on PATH."
version=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
number=${version#go} minor=${number#*.} minor=${minor%%[!0-9]*}
# From 1.21 on, go fetches the toolchain that go.mod names.
if [ "${number%%.*}" -lt 2 ] && [ "${minor:-0}" -lt 21 ]; then
	fail "Go $wanted or newer is needed; go on PATH is $version."
fi
