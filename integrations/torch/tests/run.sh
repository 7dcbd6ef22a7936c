#!/usr/bin/env bash
# Builds the extension in a folder and tests it:
#     bash integrations/torch/tests/run.sh FOLDER [--stand_in | --device]
# --stand_in: the build in which tensors of the host play those of a device (tests/stand_in), which
# has all tests. --device: those of tensors of a device alone, on this machine's GPUs.
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
which=${2:-}
case $which in
"") ;;
--stand_in) export UNISONO_TORCH_DEVICE=stand_in ;;
--device) export UNISONO_TORCH_DEVICE=cuda ;;
*) echo "usage: bash $0 FOLDER [--stand_in | --device]; found '$which'" >&2; exit 2 ;;
esac
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$here"
UNISONO_TORCH_FLAGS=${UNISONO_TORCH_FLAGS:--O1} "$python" setup.py -q build --build-base "$folder" --build-lib "$folder/package"
cd "$folder" # the ranks of some tests are `python -c`, which would find the package's sources here
export PYTHONPATH=$folder/package
[ "$which" = --device ] || {
    # A script's own work on the stand-in's tensors is done by the host at once.
    [ "$which" != --stand_in ] || export UNISONO_TORCH_BLOCKING_WAIT=1
    "$python" "$here/tests/test_setup.py"
    "$python" "$here/tests/test_unisono_torch.py"
    "$python" "$here/tests/test_futures.py"
    unset UNISONO_TORCH_BLOCKING_WAIT
}
case $which in
--stand_in)
    "$python" "$here/tests/test_device.py"
    "$python" "$here/tests/test_direct.py"
    ;;
--device)
    UNISONO_TORCH_NCCL=0 "$python" "$here/tests/test_device.py"
    # Ranks that share a GPU do not use NCCL.
    [ "$("$python" -c 'import torch; print(torch.cuda.device_count())')" -lt 2 ] || "$python" "$here/tests/test_device.py" Device
    ;;
esac
