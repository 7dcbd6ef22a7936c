#!/usr/bin/env bash
# Training on GPUs: the digits example with one rank per GPU, to the accuracy of the host's; the
# same on one GPU; and one epoch under compute-sanitizer:
#     bash tests/device/on_gpu.sh
# tests/nccl/on_gpu.sh calls it. NEVER RUN YET, because no GPU was available.
set -euo pipefail
cd "$(dirname "$0")/../.."

bash examples/digits_on_gpu/run.sh
bash examples/digits_on_gpu/run.sh 1
bash examples/digits_on_gpu/run.sh --sanitize 1
