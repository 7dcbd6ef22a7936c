#!/usr/bin/env bash
# Formats the C++ files that git tracks, and the Markdown: bash tools/format.sh [--check] [FILE...]
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
files=("$@")
cd "$(dirname "$0")/.."
formatter=${CLANG_FORMAT:-clang-format-16}
if ! command -v "$formatter" >/dev/null; then
    echo "$0: $formatter is missing (Debian: apt-get install clang-format-16)" >&2
    exit 1
fi
if [ ${#files[@]} = 0 ]; then
    python3 tools/markdown.py ${check:+--check}
    mapfile -t files < <(git ls-files -- '*.hpp' '*.cpp' '*.cu' '*.cuh')
fi
[ ${#files[@]} != 0 ] || exit 0
if [ -n "$check" ]; then
    "$formatter" --dry-run --Werror "${files[@]}"
else
    "$formatter" -i "${files[@]}"
fi
