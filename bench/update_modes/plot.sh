#!/usr/bin/env bash
# Draws accuracy over virtual time from the output of bench_update_modes:
#     plot.sh [results.json [plot.svg]]
# Installs matplotlib from PyPI into a virtual environment under build/ if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
results=${1:-build/bench/results/update_modes.json}
plot=${2:-${results%.json}.svg}
if [ ! -f "$results" ]; then
    echo "plot.sh: found no $results; expected what 'bench_update_modes --json FILE' writes" >&2
    exit 1
fi
source tools/install_missing.sh
install_missing python venv
python=python3
if ! python3 -c 'import matplotlib' 2>/dev/null; then
    install_python_packages build/python matplotlib
    python=build/python/bin/python3
fi
"$python" bench/update_modes/plot.py "$results" "$plot"
