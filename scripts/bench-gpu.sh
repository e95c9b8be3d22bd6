#!/bin/sh
# Compares stock FSDP2 with cephalorun on one GPU cut into parts; about 15 minutes for all suites.
# Arguments are those of bench/main.py, such as --suites equal. Needs bin/cephalorun, but no Go.
set -eu

cd "$(dirname "$0")/.."
python=$(scripts/setup.sh)
mkdir -p .cephalo
sync # a fresh Python takes gigabytes to the disk, which would go on beside what is measured
exec "$python" scripts/bench/main.py --json .cephalo/bench-gpu.json "$@"
