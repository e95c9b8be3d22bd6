#!/bin/sh
# Real training on CPU ranks under random faults; see chaos/. Needs bin/cephalorun.
#   scripts/chaos.sh              30 minutes
#   scripts/chaos.sh --faults 3   the short form
set -eu

cd "$(dirname "$0")/.."
python=$(scripts/setup.sh)
# The disk that gets full is a small tmpfs in a mount namespace of our own, which is gone with us.
enter=
for way in "unshare --mount" "unshare --user --map-root-user --mount"; do
	if $way true 2>/dev/null; then
		enter=$way
		break
	fi
done
PYTHONPATH=scripts exec $enter "$python" -m chaos --python "$python" "$@"
