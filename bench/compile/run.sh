#!/usr/bin/env bash
# How long it takes to compile an empty main with the umbrella, and a whole Trainer program: bash bench/compile/run.sh
# Processor seconds, median of five, each beside the standard headers alone, since machines differ.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#include <unisono/unisono.hpp>\nint main() {}\n' >"$work/umbrella.cpp"
printf '#include <%s>\n' algorithm array atomic bit chrono cmath concepts condition_variable cstring memory mutex optional \
    span string string_view thread tuple unordered_map vector >"$work/standard.cpp"
printf 'int main() {}\n' >>"$work/standard.cpp"
sed -n '/^```cpp/,/^```/p' README.md | awk '/^```cpp/ { block++; next } /^```/ { next } block == 1' >"$work/trainer.cpp"

median_seconds() { # COMPILER FILE
    for _ in 1 2 3 4 5; do
        { TIMEFORMAT=%U; time "$1" -std=c++20 -O2 -Iinclude -c "$2" -o "$work/out.o"; } 2>&1
    done | sort -n | sed -n 3p
}

printf '%-10s %22s %22s %22s\n' compiler "standard headers, s" "the umbrella, s" "a Trainer program, s"
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    printf '%-10s %22s %22s %22s\n' $compiler "$(median_seconds $compiler "$work/standard.cpp")" \
        "$(median_seconds $compiler "$work/umbrella.cpp")" "$(median_seconds $compiler "$work/trainer.cpp")"
done
