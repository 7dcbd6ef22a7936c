#!/usr/bin/env bash
# What trains on GPUs: the digits example, one rank a GPU, to the accuracy of the host's; on one GPU the same; and an epoch under
# compute-sanitizer. bash tests/device/on_gpu.sh (tests/nccl/on_gpu.sh calls it). NEVER RUN YET: no GPU has been at hand.
set -euo pipefail
cd "$(dirname "$0")/../.."

bash examples/digits_on_gpu/run.sh
bash examples/digits_on_gpu/run.sh 1
bash examples/digits_on_gpu/run.sh --sanitize 1
