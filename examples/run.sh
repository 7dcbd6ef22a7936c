#!/usr/bin/env bash
# Installs what is missing, builds the main example and runs it: bash examples/run.sh [OPTIONS OF data_parallel...]
# What is built and installed goes to stderr, so that stdout is the example's alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh
{
    install_missing compiler build json cli11
    cmake --preset examples
    cmake --build build/examples --target data_parallel --parallel "$(nproc)"
} >&2
exec build/examples/examples/data_parallel "$@"
