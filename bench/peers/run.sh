#!/usr/bin/env bash
# Builds Unisono and its peers and compares them: bash bench/peers/run.sh [--quick] [what compare.py takes, see --help]
# JSON and a plot in build/bench/results. PEERS=none installs no peer: those that are there are taken.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
install_missing compiler build json python
if [ "${PEERS:-}" != none ]; then
    for peer in openmpi mpich gloo; do
        install_missing $peer || echo "goes on without $peer" >&2
    done
fi
{
    cmake --preset bench
    cmake --build --preset bench --target bench_peers
} >&2
mkdir -p build/bench/results
python3 bench/peers/compare.py build/bench/bench --json build/bench/results/peers.json \
    --plot build/bench/results/peers.svg "$@"
