#!/usr/bin/env bash
# Runs clang-tidy over every header that the umbrella and reproducible.hpp reach, through one translation unit: bash tools/tidy.sh
set -euo pipefail
cd "$(dirname "$0")/.."
unit=$(mktemp --suffix=.cpp)
trap 'rm -f "$unit"' EXIT
echo '#include <unisono/reproducible.hpp>' >"$unit" # and with it the umbrella
clang-tidy --quiet --config-file=.clang-tidy "$unit" -- -std=c++20 -Iinclude 2> >(grep -v 'warnings generated' >&2)
