#!/usr/bin/env bash
# Runs clang-tidy, through one translation unit, on every header that the umbrella,
# reproducible.hpp, sharded.hpp and checkpoints.hpp include:
#     bash tools/tidy.sh
set -euo pipefail
cd "$(dirname "$0")/.."
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT
printf '#include <unisono/%s>\n' reproducible.hpp sharded.hpp checkpoint/checkpoints.hpp >"$unit" # and with the first the umbrella
clang-tidy --quiet --config-file=.clang-tidy "$unit" -- -std=c++20 -Iinclude 2> >(grep -v 'warnings generated' >&2)
