#!/usr/bin/env python3
"""Draws what bench_update_modes has measured: accuracy over virtual time, a line for each mode.

    bash bench/update_modes/plot.sh [results.json [plot.svg]]
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (after the choice of a back end)


def smooth(values: list, last: int = 3) -> list:
    """Means of each value and those before it, `last` at most."""
    return [sum(values[max(0, i + 1 - last):i + 1]) / min(i + 1, last) for i in range(len(values))]


def main(results: str, plot: str) -> None:
    with open(results, encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    cases = [case for case in cases if case.get("course")]
    if not cases:
        sys.exit(f"{results}: found no case with a course; expected the JSON of bench_update_modes")
    kinds = ["", "; a straggler"]
    names = list(dict.fromkeys(case["case"].partition(";")[0].strip() for case in cases))
    colours = dict(zip(names, pyplot.get_cmap("tab20").colors * (1 + len(names) // 20)))
    figure, axes = pyplot.subplots(len(kinds), 1, figsize=(9, 10), sharex=True, sharey=True, layout="constrained")
    lines = {}
    for axis, kind in zip(axes, kinds):
        for case in cases:
            name, _, suffix = case["case"].partition(";")
            if suffix != kind[1:]:
                continue
            seconds, accuracies = zip(*case["course"])
            lines[name.strip()], = axis.plot(seconds, smooth([100 * accuracy for accuracy in accuracies]), color=colours[name.strip()],
                                             linewidth=1.4)
        axis.axhline(95, color="grey", linestyle=":")
        axis.set_xscale("log")
        axis.grid(alpha=0.3)
        axis.set_ylabel("digits recognised (%)")
        axis.set_title("Four equal workers" if not kind else "One of four workers takes 100 ms per micro-batch")
    axes[-1].set_xlabel("virtual time (s)")
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle("Accuracy by update mode; 100 Mbit/s and 20 ms between any two ranks; means of 3 evaluations")
    figure.savefig(plot)
    print(f"{plot}: {len(cases)} modes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
