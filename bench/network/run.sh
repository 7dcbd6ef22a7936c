#!/usr/bin/env bash
# Builds Unisono and its peers and compares them over sockets:
#     bash bench/network/run.sh [--quick] [--namespaces] [compare.py's options, see --help]
# JSON and a plot in build/bench/results. PEERS=none installs no peer, and uses those that are
# installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
install_missing compiler build json python
if [ "${PEERS:-}" != none ]; then
    for peer in openmpi mpich gloo libfabric iproute2; do
        install_missing $peer || echo "goes on without $peer" >&2
    done
fi
{
    cmake --preset bench
    cmake --build --preset bench --target bench_peers network_lab
} >&2
mkdir -p build/bench/results
python3 bench/network/compare.py build/bench/bench --json build/bench/results/network.json \
    --plot build/bench/results/network.svg "$@"
