#!/usr/bin/env python3
"""Draws runs beside each other from their JSON lines (un::JsonLinesFile): a curve a file.

plot_metrics.py run.jsonl [other.jsonl ...] [--name loss] [--against step|seconds] [--smooth 20] [--log] --output loss.png
"""
import argparse, json, pathlib, sys

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("files", nargs="+", type=pathlib.Path)
arguments.add_argument("--name", default="loss", help="which number (loss); samples_per_second shows the throughput")
arguments.add_argument("--against", choices=["step", "seconds"], default="step")
arguments.add_argument("--smooth", type=int, default=1, metavar="N", help="mean of the last N values")
arguments.add_argument("--log", action="store_true", help="logarithmic")
arguments.add_argument("--output", type=pathlib.Path, required=True, help="a file that ends in .png, .svg or .pdf")
options = arguments.parse_args()
if options.smooth < 1:
    arguments.error(f"--smooth is {options.smooth}; expected at least 1")

try:
    import matplotlib
except ImportError:
    sys.exit("plot_metrics.py needs matplotlib: pip install matplotlib, or Debian's python3-matplotlib")
matplotlib.use("agg")
from matplotlib import pyplot


def curve(path):
    """All (x, y) of one file, in its order."""
    found, names = [], set()
    try:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            one = json.loads(line)
            names |= one.keys()
            if one.get(options.name) is not None: # null: not finite
                found.append((one[options.against], one[options.name]))
    except (OSError, ValueError, KeyError, AttributeError) as wrong:
        sys.exit(f"plot_metrics.py: {path}{'' if isinstance(wrong, OSError) else f', line {number}'}: {wrong}")
    if not found:
        sys.exit(f"plot_metrics.py: {path} has no '{options.name}'; it has {', '.join(sorted(names)) or 'nothing'}")
    return found


figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
for path in options.files:
    points = curve(path)
    ys = [y for _, y in points]
    smooth = [sum(ys[max(0, i + 1 - options.smooth):i + 1]) / min(i + 1, options.smooth) for i in range(len(ys))]
    axes.plot([x for x, _ in points], smooth, label=path.stem, linewidth=1)
axes.set_xlabel(options.against)
axes.set_ylabel(options.name.replace("_", " "))
axes.set_yscale("log" if options.log else "linear")
axes.grid(alpha=0.3)
axes.legend()
figure.savefig(options.output, dpi=150)
print(options.output)
