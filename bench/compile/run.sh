#!/usr/bin/env bash
# The cost of compiling with Unisono, compared with the standard headers and other libraries:
#     bash bench/compile/run.sh [--peers]
# --peers installs clang-19, Eigen, Asio, {fmt} and nlohmann-json (Debian) if they are missing. The
# tables leave out what is absent.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --peers ]; then
    . tools/install_missing.sh
    install_optional compiler clang clang19 eigen asio fmt json
fi
exec python3 bench/compile/measure.py
