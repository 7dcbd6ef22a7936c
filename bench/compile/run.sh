#!/usr/bin/env bash
# What it costs to compile with Unisono, beside the standard headers and other libraries: bash bench/compile/run.sh [--peers]
# --peers installs what is missing of clang-19, Eigen, Asio, {fmt} and nlohmann-json (Debian); what is absent is left out of the tables.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --peers ]; then
    . tools/install_missing.sh
    install_optional compiler clang clang19 eigen asio fmt json
fi
exec python3 bench/compile/measure.py
