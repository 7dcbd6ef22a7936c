#!/usr/bin/env bash
# Installs what is missing, builds the main example and runs it:
#     bash examples/run.sh [OPTIONS OF data_parallel...]
# The output of build and installation goes to stderr. stdout has only the example's output.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh
{
    install_missing compiler build json cli11
    cmake --preset examples
    cmake --build build/examples --target data_parallel --parallel "$(nproc)"
} >&2
exec build/examples/examples/data_parallel "$@"
