#!/usr/bin/env bash
# Builds the extension in a folder and tests it:
#     bash integrations/torch/tests/run.sh FOLDER
# UNISONO_TEST_TORCH names a Python that has PyTorch, setuptools and ninja. Without it the test is
# skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${UNISONO_TEST_TORCH:-}
if [ -z "$python" ]; then
    echo "skipped: UNISONO_TEST_TORCH names no Python that has PyTorch"
    exit 77
fi
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "skipped: $python has no PyTorch"
    exit 77
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$here"
UNISONO_TORCH_FLAGS=${UNISONO_TORCH_FLAGS:--O1} "$python" setup.py -q build --build-base "$folder" --build-lib "$folder/package"
cd "$folder" # the ranks of some tests are `python -c`, which would find the package's sources here
PYTHONPATH=$folder/package "$python" "$here/tests/test_unisono_torch.py"
PYTHONPATH=$folder/package "$python" "$here/tests/test_futures.py"
