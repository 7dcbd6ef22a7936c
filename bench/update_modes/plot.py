#!/usr/bin/env python3
"""Draws what bench_update_modes has measured: accuracy over virtual time, a line for each mode.

    bash bench/update_modes/plot.sh [results.json [plot.svg]]
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (after the choice of a back end)


def main(results: str, plot: str) -> None:
    with open(results, encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    cases = [case for case in cases if case.get("course")]
    if not cases:
        sys.exit(f"{results}: found no case with a course; expected the JSON of bench_update_modes")
    kinds = ["", "; a straggler"]
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(14, 6), sharey=True)
    for axis, kind in zip(axes, kinds):
        axis.set_prop_cycle(color=pyplot.get_cmap("tab20").colors)
        for case in cases:
            name, _, suffix = case["case"].partition(";")
            if suffix != kind[1:]:
                continue
            seconds, accuracies = zip(*case["course"])
            axis.plot(seconds, [100 * accuracy for accuracy in accuracies], label=name.strip(), linewidth=1.2)
        axis.axhline(95, color="grey", linestyle=":")
        axis.set_xscale("log")
        axis.set_xlabel("virtual seconds")
        axis.set_title("four equal workers" if not kind else "one of them takes 100 ms a micro-batch")
        axis.legend(fontsize="small")
    axes[0].set_ylabel("digits recognised, %")
    figure.suptitle("100 Mbit/s and 20 ms between any two ranks")
    figure.tight_layout()
    figure.savefig(plot)
    print(f"{plot}: {len(cases)} modes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
