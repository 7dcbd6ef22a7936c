#!/usr/bin/env bash
# Builds XGBoost with the communicator unisono, and tests it:
#     bash integrations/xgboost/tests/run.sh FOLDER
# UNISONO_TEST_XGBOOST names a source tree of XGBoost with its submodule dmlc-core, of which FOLDER
# gets a copy; UNISONO_TEST_PYTHON a Python that has NumPy and SciPy. Without either the test is
# skipped. The first build takes some minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
source=${UNISONO_TEST_XGBOOST:-}
python=${UNISONO_TEST_PYTHON:-python3}
if [ ! -f "$source/src/collective/comm_group.cc" ]; then
    echo "skipped: UNISONO_TEST_XGBOOST names no source tree of XGBoost"
    exit 77
fi
if ! "$python" -c 'import numpy, scipy' 2>/dev/null; then
    echo "skipped: $python has no NumPy and SciPy; UNISONO_TEST_PYTHON names one that has"
    exit 77
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ -d "$folder/source" ] || cp -r "$source" "$folder/source"
bash "$here/build.sh" "$folder/source" "$folder/build"
PYTHONPATH=$folder/source/python-package exec "$python" -B "$here/tests/test_unisono_xgboost.py"
