#!/usr/bin/env bash
# Builds a training with LibTorch and runs it on 1, 2 and 4 ranks:
#     bash integrations/libtorch/tests/run.sh FOLDER UNISONO_RUN
# UNISONO_TEST_TORCH names a Python that has PyTorch, whose LibTorch is used. Without it the test is
# skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${UNISONO_TEST_TORCH:-}
if [ -z "$python" ] || ! "$python" -c 'import torch' 2>/dev/null; then
    echo "skipped: UNISONO_TEST_TORCH names no Python that has PyTorch"
    exit 77
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
launcher=$(realpath "${2:?the path of unisono-run}")
torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
compiler=${CXX:-c++}
if command -v ccache >/dev/null; then compiler="ccache $compiler"; fi
$compiler -std=c++20 ${UNISONO_LIBTORCH_FLAGS:--O0} -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
    -I "$here/../../include" -I "$here" -c "$here/tests/training.cpp" -o "$folder/training.o"
${CXX:-c++} "$folder/training.o" -o "$folder/training" -L "$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch_cpu -lc10 -pthread

cd "$folder"
rm -rf run
run() { "$launcher" -n "$1" --no-label --timeout 120 "$folder/training" "${@:2}"; }
expected=$(run 1 run/one 4 all | tee /dev/stderr | grep '^hash ')
for ranks in 2 4; do
    found=$(run $ranks run/$ranks 4 all | tee /dev/stderr | grep '^hash ')
    [ "$found" = "$expected" ] || { echo "$ranks ranks have '$found', expected '$expected' as 1 rank"; exit 1; }
done
run 2 run/stopped 2 >/dev/null
found=$(run 4 run/stopped 4 | grep '^hash ')
[ "$found" = "$expected" ] || { echo "stopped on 2 ranks and resumed on 4: '$found', expected '$expected'"; exit 1; }
echo "1, 2 and 4 ranks, stopped or not: $expected"
