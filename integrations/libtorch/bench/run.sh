#!/usr/bin/env bash
# Builds step.cpp and compares it with Python:
#     bash integrations/libtorch/bench/run.sh FOLDER UNISONO_RUN [compare.py's options]
# UNISONO_TEST_TORCH names a Python that has PyTorch, whose LibTorch is used.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${UNISONO_TEST_TORCH:-python3}
torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)') || { echo "UNISONO_TEST_TORCH names no Python that has PyTorch" >&2; exit 1; }
mkdir -p "$1"
${CXX:-c++} -std=c++20 -O2 -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" -I "$here/../../include" -I "$here" \
    "$here/bench/step.cpp" -o "$1/step" -L "$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch_cpu -lc10 -pthread
exec "$python" "$here/bench/compare.py" "$1/step" "${2:?the path of unisono-run}" "${@:3}"
