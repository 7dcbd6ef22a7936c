#!/usr/bin/env bash
# Compares raw NCCL with Unisono, Unisono's kernels with copies, and its training step with
# PyTorch's (if python3 has it), on this machine's GPUs:
#     bash bench/gpu/run.sh [--build] [--quick]
# Needs a CUDA toolkit with nvcc, NCCL 2.19 or newer, and nlohmann/json. --build only compiles,
# which needs no GPU. Environment, with defaults:
#     CUDA_HOME   /usr/local/cuda
#     NCCL_HOME   the value of CUDA_HOME
set -euo pipefail
cd "$(dirname "$0")/../.."

build_only=no
quick=()
for word in "$@"; do
    case $word in
    --build) build_only=yes ;;
    --quick) quick=(--quick) ;;
    *) echo "usage: bash $0 [--build] [--quick]; found '$word'" >&2; exit 2 ;;
    esac
done
cuda=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-$cuda}
nvcc=$cuda/bin/nvcc
arch=native
if [ $build_only = yes ]; then
    arch=sm_90
elif ! command -v nvidia-smi > /dev/null || ! nvidia-smi --query-gpu=name,driver_version --format=csv; then
    echo "$0: there is no GPU here (nvidia-smi finds none), so nothing can be measured; --build only compiles" >&2
    exit 2
fi
[ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
[ -e "$nccl/include/nccl.h" ] || { echo "$0: no $nccl/include/nccl.h; NCCL_HOME names NCCL" >&2; exit 2; }

build=build/gpu
mkdir -p "$build"
set -x
"${CXX:-g++}" -std=c++20 -O3 -DNDEBUG -Iinclude -Ibench -isystem "$nccl/include" -isystem "$cuda/include" bench/gpu/calls.cpp \
    -o "$build/calls" "-L$nccl/lib64" "-L$nccl/lib" "-L$cuda/lib64" -lnccl -lcudart "-Wl,-rpath,$nccl/lib64:$nccl/lib:$cuda/lib64" -pthread
"$nvcc" -std=c++20 --expt-relaxed-constexpr -diag-suppress 554,780,20011,20014 "-arch=$arch" -O3 -DNDEBUG -Iinclude -Ibench \
    bench/gpu/kernels/kernels.cu -o "$build/kernels"
"$nvcc" -std=c++20 --expt-relaxed-constexpr -diag-suppress 554,780,20011,20014 "-arch=$arch" -O3 -DNDEBUG -Iinclude "-I$nccl/include" \
    bench/gpu/step/step.cu -o "$build/step" "-L$nccl/lib64" "-L$nccl/lib" -lnccl -Xlinker "-rpath,$nccl/lib64:$nccl/lib"
{ set +x; } 2> /dev/null
[ $build_only = no ] || { echo "$0: compiled for $arch, nothing was run"; exit 0; }
"$build/kernels" "${quick[@]}" --json "$build/kernels.json"
"$build/calls" "${quick[@]}" --json "$build/calls.json"
python3 bench/gpu/step/compare.py "$build/step" "${quick[@]}" --json "$build/step.json"
