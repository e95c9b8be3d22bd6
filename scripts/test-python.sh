#!/bin/sh
# test-python.sh PYTHON TOOLS [pytest arguments]: runs the Python tests on that Python.
set -eu

cd "$(dirname "$0")/../pyshim"
python=$1 tools=$2
shift 2
export PYTHONPATH="$PWD:$tools" PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -p no:cacheprovider -q "$@" tests
