#!/usr/bin/env bash
# Tests of ranks with a GPU over sockets, shared memory and pretended hosts, on real GPUs:
#     bash tests/cuda/on_gpu.sh [--build]
# Needs a CUDA toolkit with nvcc, NCCL's headers (2.19 or newer; NCCL itself is not linked) and one
# GPU, which the ranks share. --build compiles for sm_90 without looking for a GPU. Environment,
# with defaults:
#     CUDA_HOME   /usr/local/cuda
#     NCCL_HOME   the value of CUDA_HOME
set -euo pipefail
cd "$(dirname "$0")/../.."

build_only=no
case ${1-} in
'') ;;
--build) build_only=yes ;;
*) echo "usage: bash $0 [--build]; found '$1'" >&2; exit 2 ;;
esac
cuda=${CUDA_HOME:-/usr/local/cuda}
nccl=${NCCL_HOME:-$cuda}
nvcc=$cuda/bin/nvcc
[ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
[ -e "$nccl/include/nccl.h" ] || { echo "$0: no $nccl/include/nccl.h; NCCL_HOME names NCCL" >&2; exit 2; }
arch=native
if [ $build_only = yes ]; then
    arch=sm_90
elif ! command -v nvidia-smi > /dev/null || ! nvidia-smi --query-gpu=name,driver_version --format=csv; then
    echo "$0: there is no GPU here (nvidia-smi finds none), so nothing can be tested; --build only compiles" >&2
    exit 2
fi

build=build/on_gpu/cuda
mkdir -p "$build"
flags=(-std=c++20 --expt-relaxed-constexpr -diag-suppress "554,780,20011,20014" "-arch=$arch" -O1 -Iinclude -Itests "-I$nccl/include"
       -DUNISONO_TEST_ON_GPU "-DUNISONO_TEST_DATA=\"$PWD/tests/data\"")
# The static library if there is one: then the executable also runs where Boost is not installed.
boost=$(c++ -print-file-name=libboost_unit_test_framework.a)
if [ ! -e "$boost" ]; then
    boost=-lboost_unit_test_framework
    flags+=(-DBOOST_TEST_DYN_LINK)
fi
for source in tests/cuda/{networks,staged,training}.cpp tests/support/main.cpp; do
    echo "nvcc $source"
    "$nvcc" "${flags[@]}" -x cu -c "$source" -o "$build/$(basename "$source" .cpp).o"
done
"$nvcc" -o "$build/test_cuda_on_gpu" "$build"/{networks,staged,training,main}.o "$boost"
# Without a GPU this says so immediately, with the status 2.
[ $build_only = yes ] || "$build/test_cuda_on_gpu" --log_level=test_suite
