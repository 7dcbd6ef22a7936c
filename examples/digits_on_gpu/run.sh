#!/usr/bin/env bash
# Builds digits_on_gpu with nvcc and trains on this machine's GPUs:
#     bash examples/digits_on_gpu/run.sh [--build | --sanitize] [RANKS [EPOCHS]]
# Without RANKS, one rank per GPU. Fails if the accuracy on test images is below that of the host's
# example. --sanitize trains for one epoch under memcheck, racecheck and initcheck of
# compute-sanitizer. --build compiles for sm_90, which needs no GPU. tools/gpu.sh says where the
# toolkit and NCCL are found.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/gpu.sh

mode=${1:-}
case $mode in
--build) shift; need_nvcc yes ;;
--sanitize) shift; need_nvcc no >&2 ;;
--*) echo "usage: bash $0 [--build | --sanitize] [RANKS [EPOCHS]]; found '$mode'" >&2; exit 2 ;;
*) need_nvcc no >&2 ;;
esac
need_nccl
build=build/digits_on_gpu
mkdir -p "$build"
"$nvcc" "${nvcc_flags[@]}" -O2 -Iinclude "$nccl_include" -o "$build/digits_on_gpu" examples/digits_on_gpu/digits_on_gpu.cu "${nccl_library[@]}" >&2
[ "$mode" != --build ] || exit 0
if [ "$mode" = --sanitize ]; then
    for tool in memcheck racecheck initcheck; do
        echo "compute-sanitizer --tool $tool"
        "$cuda/bin/compute-sanitizer" --tool "$tool" --error-exitcode 3 "$build/digits_on_gpu" "${1:-0}" 1
    done
    exit 0
fi
"$build/digits_on_gpu" "$@" | tee "$build/said"
accuracy=$(sed -n 's/^test accuracy \([0-9.]*\),.*/\1/p' "$build/said")
awk -v found="$accuracy" 'BEGIN { if (found < 0.95) { print "accuracy " found "; expected at least 0.95" > "/dev/stderr"; exit 1 } }'
