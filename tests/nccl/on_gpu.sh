#!/usr/bin/env bash
# The tests of ranks over NCCL, over NCCL itself, one rank a GPU: bash tests/nccl/on_gpu.sh
# Needs a CUDA toolkit with nvcc, NCCL 2.19 or newer, and two GPUs or more for most of it. NEVER RUN YET: no GPU has been at hand.
#   CUDA_HOME   /usr/local/cuda, if not another;   NCCL_HOME   the same
set -euo pipefail
cd "$(dirname "$0")/../.."

cuda=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-$cuda}
nvcc=$cuda/bin/nvcc
[ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
[ -e "$nccl/include/nccl.h" ] || { echo "$0: no $nccl/include/nccl.h; NCCL_HOME names NCCL" >&2; exit 2; }
command -v nvidia-smi > /dev/null || { echo "$0: no nvidia-smi, so no GPU" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version --format=csv

build=build/on_gpu
mkdir -p "$build"
flags=(-std=c++20 --expt-relaxed-constexpr -diag-suppress "554,780,20014" -arch=native -O1 -Iinclude -Itests "-I$nccl/include"
       -DUNISONO_TEST_ON_GPU -DBOOST_TEST_DYN_LINK "-DUNISONO_TEST_DATA=\"$PWD/tests/data\"")
for source in tests/nccl/{collectives,faults,laws,training}.cpp tests/support/main.cpp; do
    echo "nvcc $source"
    "$nvcc" "${flags[@]}" -x cu -c "$source" -o "$build/$(basename "$source" .cpp).o"
done
"$nvcc" -o "$build/test_nccl" "$build"/*.o "-L$nccl/lib" "-L$nccl/lib64" -lnccl -lboost_unit_test_framework \
    -Xlinker "-rpath,$nccl/lib:$nccl/lib64"
"$build/test_nccl" --log_level=test_suite
bash tests/device/on_gpu.sh # the digits example, and compute-sanitizer
