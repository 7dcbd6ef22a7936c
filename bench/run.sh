#!/usr/bin/env bash
# Builds the benchmarks and runs them. Tables go to the terminal, JSON to build/bench/results:
#     bash bench/run.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh
install_missing compiler build json cli11 python
quick=()
[ "${1:-}" != --quick ] || quick=(--quick)
{
    cmake --preset bench
    cmake --build --preset bench --parallel "$(nproc)"
} >&2
mkdir -p build/bench/results
for name in all_reduce executor cores idle_ranks overlap oversubscribed parallel reproducible sharding update update_modes ways_to_train; do
    printf '\n== %s\n' "$name"
    build/bench/bench/bench_"$name" "${quick[@]}" --json "build/bench/results/$name.json"
done
printf '\n== training_step\n'
python3 bench/training_step/compare.py build/bench/bench/bench_training_step "${quick[@]}" \
    --json build/bench/results/training_step.json --plot build/bench/results/training_step.svg
printf '\n== network\n'
python3 bench/network/compare.py build/bench/bench "${quick[@]}" --ranks 2 --json build/bench/results/network.json \
    --plot build/bench/results/network.svg
[ ${#quick[@]} = 0 ] || exit 0
printf '\n== simulated\n'
build/bench/bench/bench_simulated
printf '\n== arithmetic\n'
build/bench/bench/bench_arithmetic
printf '\n== compile\n'
bash bench/compile/run.sh
