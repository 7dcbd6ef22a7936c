#!/usr/bin/env python3
"""Draws runs beside each other from their JSON lines (un::JsonLinesFile): a curve a file, or how they scale.

plot_metrics.py run.jsonl [other.jsonl ...] [--name loss] [--against step|seconds] [--smooth N] [--title WORDS] [--log] --output loss.png
plot_metrics.py --scaling 1=one.jsonl 2=two.jsonl 4=four.jsonl --output scaling.png

Curves are means of the last N values, by default of a fiftieth of the run; behind them, pale, the values themselves. --smooth 1 draws these alone.

With --scaling each file is named with its number of ranks. Drawn is the median of samples_per_second, over the fewest ranks'; what that many
ranks would give if nothing were lost; and printed, the efficiency.
"""
import argparse, json, pathlib, re, statistics, sys

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("files", nargs="+", metavar="FILE or RANKS=FILE")
arguments.add_argument("--scaling", action="store_true", help="throughput over ranks")
arguments.add_argument("--name", default="loss", help="which number (loss); samples_per_second shows the throughput")
arguments.add_argument("--against", choices=["step", "seconds"], default="step")
arguments.add_argument("--smooth", type=int, metavar="N", help="mean of the last N values (default: a fiftieth of the run)")
arguments.add_argument("--title", help="above the picture; by default what is drawn")
arguments.add_argument("--log", action="store_true", help="logarithmic")
arguments.add_argument("--output", type=pathlib.Path, required=True, help="a file that ends in .png, .svg or .pdf")
options = arguments.parse_args()
if options.smooth is not None and options.smooth < 1:
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


def draw_curves(axes):
    for path in map(pathlib.Path, options.files):
        points = curve(path)
        ys = [y for _, y in points]
        last = options.smooth or max(1, len(ys) // 50)
        smooth = [sum(ys[max(0, i + 1 - last):i + 1]) / min(i + 1, last) for i in range(len(ys))]
        xs = [x for x, _ in points]
        line, = axes.plot(xs, smooth, label=path.stem if last == 1 else f"{path.stem}, mean of {last}", linewidth=1.5, zorder=2)
        if last > 1:
            axes.plot(xs, ys, color=line.get_color(), alpha=0.2, linewidth=0.5, zorder=1)
    axes.set_title(options.title or f"{options.name.replace('_', ' ').capitalize()} of each update")
    axes.set_xlabel({"step": "update", "seconds": "seconds"}[options.against])
    axes.set_ylabel(options.name.replace("_", " "))
    axes.set_yscale("log" if options.log else "linear")


def draw_scaling(axes):
    options.name = "samples_per_second"
    throughput = {}
    for given in options.files:
        parts = re.fullmatch(r"([1-9][0-9]*)=(.+)", given)
        if not parts:
            arguments.error(f"--scaling: found '{given}'; expected RANKS=FILE")
        if int(parts[1]) in throughput:
            arguments.error(f"--scaling: {parts[1]} ranks are given twice")
        throughput[int(parts[1])] = statistics.median(y for _, y in curve(pathlib.Path(parts[2])))
    fewest = min(throughput)
    ranks = sorted(throughput)
    axes.plot(ranks, [n / fewest for n in ranks], label="nothing lost", linewidth=1, linestyle="--", color="gray")
    axes.plot(ranks, [throughput[n] / throughput[fewest] for n in ranks], label="measured", marker="o")
    axes.set_title(options.title or "Throughput over ranks")
    axes.set_xticks(ranks)
    axes.set_xlabel("ranks")
    axes.set_ylabel(f"samples per second, relative to {fewest} rank{'s' if fewest > 1 else ''}")
    print("ranks  samples/s  times  efficiency")
    for n in ranks:
        times = throughput[n] / throughput[fewest]
        print(f"{n:5}  {throughput[n]:9.0f}  {times:5.2f}  {100 * times * fewest / n:8.0f} %")


figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
draw_scaling(axes) if options.scaling else draw_curves(axes)
axes.grid(alpha=0.3)
axes.legend()
figure.savefig(options.output, dpi=150)
print(options.output)
