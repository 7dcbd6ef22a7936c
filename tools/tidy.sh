#!/usr/bin/env bash
# Runs clang-tidy on every header, through one translation unit that includes them all:
#     bash tools/tidy.sh
# Headers that need libfabric, MPI, CUDA or NCCL are left out where that is not installed, and the
# last line says so. Thrust's are left out, since clang-tidy 14 cannot read Thrust.
set -euo pipefail
cd "$(dirname "$0")/.."
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT

options=(-std=c++20 -Iinclude)
without='thrust'
left_out=(Thrust)
has() { printf '#include <%s>\n' "$1" | clang++ -x c++ -fsyntax-only "${@:2}" - 2>/dev/null; }
needs() { # NAME PATTERN HEADER [FLAGS...]: headers whose paths match the pattern need that header
    if has "${@:3}"; then options+=("${@:4}"); else without+="|$2" left_out+=("$1"); fi
}
mpi=$(dirname "$(find /usr/lib/*/openmpi/include /usr/lib/*/mpich/include -maxdepth 1 -name mpi.h 2>/dev/null | head -n 1)")
needs libfabric 'libfabric' rdma/fabric.h
needs MPI 'unisono/mpi|extensions/mpi' mpi.h -isystem "$mpi"
needs CUDA 'cuda|nccl' cuda_runtime.h -isystem "${CUDA_HOME:-/usr/local/cuda}/include"
case $without in *nccl*) ;; *) needs NCCL 'nccl' nccl.h ;; esac

(cd include && find unisono -name '*.hpp') | sort | grep -vE "$without" | sed 's/.*/#include <&>/' >"$unit"
clang-tidy --quiet --config-file=.clang-tidy "$unit" -- "${options[@]}" 2> >(grep -v 'warnings generated' >&2)
printf '%d of %d headers; left out: %s\n' "$(wc -l <"$unit")" "$(find include -name '*.hpp' | wc -l)" "${left_out[*]}"
