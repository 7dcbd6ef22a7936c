#!/usr/bin/env bash
# Tests the integration:
#     bash integrations/lightgbm/tests/run.sh [LIBRARY] [PYTHON]
# LIBRARY: unisono_lightgbm.cpp, linked to unisono::c. Without it, the installed package is tested.
# PYTHON has LightGBM.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${2:-$(command -v python3)}
if ! "$python" -c 'import lightgbm' 2>/dev/null; then
    echo "skipped: $python has no LightGBM (pip install lightgbm)"
    exit 77
fi
if [ -n "${1:-}" ]; then
    export UNISONO_LIGHTGBM_LIBRARY=$1 PYTHONPATH=$here
fi
cd "$here/tests"
exec "$python" -B test_unisono_lightgbm.py
