#!/usr/bin/env bash
# Compares raw NCCL with Unisono, Unisono's kernels with copies, and its training step with
# PyTorch's (if python3 has it), on this machine's GPUs:
#     bash bench/gpu/run.sh [--build] [--quick]
# Needs a CUDA toolkit with nvcc, NCCL 2.19 or newer, and nlohmann/json. --build only compiles, for
# sm_90, which needs no GPU. tools/gpu.sh says where the toolkit and NCCL are found.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/gpu.sh

build_only=no
quick=()
for word in "$@"; do
    case $word in
    --build) build_only=yes ;;
    --quick) quick=(--quick) ;;
    *) echo "usage: bash $0 [--build] [--quick]; found '$word'" >&2; exit 2 ;;
    esac
done
need_nvcc $build_only
need_nccl

build=build/gpu
mkdir -p "$build"
compilers=()
set -x
"$nvcc" "${nvcc_flags[@]}" -O3 -DNDEBUG -Iinclude -Ibench "$nccl_include" bench/gpu/calls.cpp -o "$build/calls" "${nccl_library[@]}" &
compilers+=($!)
"$nvcc" "${nvcc_flags[@]}" -O3 -DNDEBUG -Iinclude -Ibench bench/gpu/kernels/kernels.cu -o "$build/kernels" &
compilers+=($!)
"$nvcc" "${nvcc_flags[@]}" -O3 -DNDEBUG -Iinclude "$nccl_include" bench/gpu/step/step.cu -o "$build/step" "${nccl_library[@]}" &
compilers+=($!)
for job in "${compilers[@]}"; do wait "$job"; done
{ set +x; } 2> /dev/null
[ $build_only = no ] || { echo "$0: compiled for sm_90, nothing was run"; exit 0; }
"$build/kernels" "${quick[@]}" --json "$build/kernels.json"
"$build/calls" "${quick[@]}" --json "$build/calls.json"
python3 bench/gpu/step/compare.py "$build/step" "${quick[@]}" --json "$build/step.json"
