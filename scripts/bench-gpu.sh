#!/bin/sh
# Compares stock FSDP2 with cephalorun on one GPU cut into four unequal parts; under 5 minutes.
# Arguments are those of bench_accumulation.py. Needs bin/cephalorun, but no Go.
set -eu

cd "$(dirname "$0")/.."
python=$(scripts/setup.sh)
mkdir -p .cephalo
exec "$python" scripts/bench_accumulation.py --json .cephalo/bench-gpu.json "$@"
