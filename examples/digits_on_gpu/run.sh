#!/usr/bin/env bash
# Builds digits_on_gpu with nvcc and trains on all GPUs:
#     bash examples/digits_on_gpu/run.sh [--sanitize] [RANKS [EPOCHS]]
# Fails if the accuracy on test images is below that of the host's example. --sanitize trains for
# one epoch under compute-sanitizer. NEVER RUN ON A GPU YET. Environment, with defaults:
#     CUDA_HOME    /usr/local/cuda
#     NCCL_HOME    the value of CUDA_HOME
#     NVCC_FLAGS   -arch=native
set -euo pipefail
cd "$(dirname "$0")/../.."

sanitize=()
if [ "${1:-}" = --sanitize ]; then
    shift
    sanitize=(yes)
fi
cuda=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-$cuda}
nvcc=$cuda/bin/nvcc
[ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
build=build/digits_on_gpu
mkdir -p "$build"
# shellcheck disable=SC2086 # several flags
"$nvcc" -std=c++20 --expt-relaxed-constexpr -diag-suppress "554,780,20014" ${NVCC_FLAGS:--arch=native} -O2 -Iinclude "-I$nccl/include" \
    -o "$build/digits_on_gpu" examples/digits_on_gpu/digits_on_gpu.cu "-L$nccl/lib" "-L$nccl/lib64" -lnccl \
    -Xlinker "-rpath,$nccl/lib:$nccl/lib64" >&2
if [ ${#sanitize[@]} -gt 0 ]; then
    exec "$cuda/bin/compute-sanitizer" --error-exitcode 3 "$build/digits_on_gpu" "${1:-0}" 1
fi
"$build/digits_on_gpu" "$@" | tee "$build/said"
accuracy=$(sed -n 's/^test accuracy \([0-9.]*\),.*/\1/p' "$build/said")
awk -v found="$accuracy" 'BEGIN { if (found < 0.95) { print "accuracy " found "; expected at least 0.95" > "/dev/stderr"; exit 1 } }'
