#!/usr/bin/env bash
# Builds and runs the comparison of training steps:
#     bash bench/training_step/run.sh [--quick] [compare.py's options]
# JSON and a plot in build/bench/results. PyTorch takes part if python3 has torch (Debian:
# python3-torch).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
install_missing compiler build json python
{
    cmake --preset bench
    cmake --build --preset bench --target bench_training_step
} >&2
mkdir -p build/bench/results
python3 bench/training_step/compare.py build/bench/bench/bench_training_step \
    --json build/bench/results/training_step.json --plot build/bench/results/training_step.svg "$@"
