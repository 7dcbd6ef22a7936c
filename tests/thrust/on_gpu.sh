#!/usr/bin/env bash
# Kernels on one GPU, bit by bit beside the host's:
#     bash tests/thrust/on_gpu.sh [--build]
# Needs a CUDA toolkit with nvcc, Boost.Test and one GPU. It was compiled and linked for sm_90, and
# run without a GPU, which it reports. --build compiles for sm_90 without looking for a GPU.
# Environment, with its default:
#     CUDA_HOME   /usr/local/cuda
set -euo pipefail
cd "$(dirname "$0")/../.."

build_only=no
case ${1-} in
'') ;;
--build) build_only=yes ;;
*) echo "usage: bash $0 [--build]; found '$1'" >&2; exit 2 ;;
esac
cuda=${CUDA_HOME:-/usr/local/cuda}
nvcc=$cuda/bin/nvcc
[ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
arch=native
if [ $build_only = yes ]; then
    arch=sm_90
elif ! command -v nvidia-smi > /dev/null || ! nvidia-smi --query-gpu=name,driver_version --format=csv; then
    echo "$0: there is no GPU here (nvidia-smi finds none), so nothing can be tested; --build only compiles" >&2
    exit 2
fi

build=build/on_gpu
mkdir -p "$build"
flags=(-std=c++20 --expt-relaxed-constexpr -diag-suppress "554,780,20011,20014" "-arch=$arch" -O1 -Xcompiler -Wall -Iinclude -Itests
       -DUNISONO_TEST_ON_GPU "-DUNISONO_TEST_DATA=\"$PWD/tests/data\"")
# With the static library the program also runs on a machine without Boost.
boost=$(g++ -print-file-name=libboost_unit_test_framework.a)
if [ ! -e "$boost" ]; then
    boost=-lboost_unit_test_framework
    flags+=(-DBOOST_TEST_DYN_LINK)
fi
objects=()
for source in tests/thrust/{elementwise,grid,notes,update}.cpp tests/support/main.cpp; do
    echo "nvcc $source"
    object=$build/thrust_$(basename "$source" .cpp).o
    "$nvcc" "${flags[@]}" -x cu -c "$source" -o "$object"
    objects+=("$object")
done
"$nvcc" "-arch=$arch" -o "$build/test_thrust_on_gpu" "${objects[@]}" "$boost"
[ $build_only = yes ] && exit
exec "$build/test_thrust_on_gpu" --log_level=test_suite
