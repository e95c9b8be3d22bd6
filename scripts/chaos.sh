#!/bin/sh
# Real training on CPU ranks under random faults; see chaos.py. Needs bin/cephalorun.
#   scripts/chaos.sh              30 minutes
#   scripts/chaos.sh --faults 3   the short form
set -eu

cd "$(dirname "$0")/.."
python=$(scripts/setup.sh)
exec "$python" scripts/chaos.py --python "$python" "$@"
