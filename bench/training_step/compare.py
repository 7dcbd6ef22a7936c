#!/usr/bin/env python3
"""A training step on two processes against one, with the same batch a rank; run.sh builds it and starts it.

Three ways take turns, in one run and in the same processes: *one* rank alone while the other process sleeps; the
*floor*, in which both train alone at once and exchange nothing; and both *together* as ranks of one training. Where
python3 has torch, DistributedDataParallel over Gloo does the same beside it. Ranks train together in two ways, each
rank updating all parameters or its slices of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import plot
from contenders import Contender, Failed, median, quantile

# Two layers of this many units: 9 thousand, 300 thousand and 4.3 million parameters.
HIDDEN = [64, 512, 2048]
# Relative to one rank's time: near, remote.
GOALS = {64: (1.08, 1.15), 512: (1.05, 1.15), 2048: (1.03, 1.06)}
NEAR_NS = 200  # a round trip of a line up to which cores count as near
TITLES = {"unisono": "unisono", "blocked": "unisono, blocked kernels", "torch": "PyTorch DDP, Gloo"}


def torch_or_why():
    """None where python3 has torch with Gloo, else why it is left out."""
    probe = "import sys, torch.distributed as d; sys.exit(0 if d.is_available() and d.is_gloo_available() else 3)"
    try:
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as failed:
        return f"it could not be looked for: {failed}"
    if done.returncode == 0:
        return None
    if done.returncode == 3:
        return "this torch has no Gloo"
    return (done.stderr.strip().splitlines() or ["python3 cannot import torch"])[-1]


class Case:
    """One network: rounds, in which each way of each contender has a turn."""

    def __init__(self, hidden, contenders, settings):
        self.hidden, self.contenders, self.settings = hidden, contenders, settings
        # (contender, way, steps per turn, seconds of each round's step on the slowest rank)
        self.entries = []

    def prepare(self):
        for contender in self.contenders:
            answers = contender.order(f"prepare {self.hidden}")
            self.refuse_wrong(contender, answers)
            self.parameters = answers[0]["parameters"]
            for way in answers[0]["ways"]:
                once = self.turn(contender, way, 2)
                self.entries.append((contender, way, max(2, min(2000, int(self.settings["turn_s"] / once))), []))

    @staticmethod
    def turn(contender, way, steps):
        return max(answer["seconds"] for answer in contender.order(f"run {way} {steps}"))

    @staticmethod
    def refuse_wrong(contender, answers):
        wrong = next((answer["wrong"] for answer in answers if answer["wrong"]), None)
        if wrong:
            raise Failed(f"{contender.title}: {wrong}", contender)

    def measure(self):
        begin = time.monotonic()
        rounds = 0
        while rounds < self.settings["least_rounds"] or time.monotonic() - begin < self.settings["case_s"]:
            first = rounds % len(self.entries)
            for contender, way, steps, series in self.entries[first:] + self.entries[:first]:
                series.append(self.turn(contender, way, steps))
            rounds += 1
        for contender in self.contenders:
            self.refuse_wrong(contender, contender.order("check"))

    def result(self, round_trip_ns):
        result = {"hidden": self.hidden, "parameters": self.parameters,
                  "round_trip_ns": round_trip_ns,
                  "goal_at_most": GOALS[self.hidden][0 if round_trip_ns <= NEAR_NS else 1], "contenders": {}}
        for contender in self.contenders:
            ways = {way: series for other, way, _, series in self.entries if other is contender}
            floor = ways["floor"]
            result["contenders"][contender.name] = {
                way: {"median_us": median(series) * 1e6, "best_quarter_us": quantile(series, 0.125) * 1e6,
                      "spread": (quantile(series, 0.75) - quantile(series, 0.25)) / median(series),
                      "ratio": median(series) / median(ways["one"]),
                      "best_quarter_ratio": quantile(series, 0.125) / quantile(ways["one"], 0.125),
                      "paired_ratio": median([a / b for a, b in zip(series, ways["one"])]), 
                      "paired_over_floor_us": median([a - b for a, b in zip(series, floor)]) * 1e6,
                      "rounds": len(series)}
                for way, series in ways.items()}
        return result


def print_row(cells):
    print("".join(cell.ljust(20) if i == 0 else cell.rjust(13) for i, cell in enumerate(cells)), flush=True)


def print_result(result):
    for name, ways in result["contenders"].items():
        print(f"\n-- {result['parameters']:,} parameters, {TITLES[name]}; us a step; core to core and back "
              f"{result['round_trip_ns']:.0f} ns")
        print_row(["way", "median", "spread", "of one", "paired", "best quarter", "over floor", "goal"])
        for way, one in ways.items():
            goal = f"{result['goal_at_most']:.2f} x" if name != "torch" and way not in ("one", "floor", "lockstep") else ""
            print_row([WAYS[way], f"{one['median_us']:.1f}", f"{one['spread'] * 100:.0f} %"] +
                      ([f"{one[key]:.3f} x" for key in ("ratio", "paired_ratio", "best_quarter_ratio")]
                       if way != "one" else ["", "", ""]) +
                      ([f"{one['paired_over_floor_us']:+.1f} us"] if way not in ("one", "floor") else [""]) + [goal])


WAYS = {"one": "one rank", "floor": "floor: two alone", "lockstep": "the same, in lockstep",
        "together": "two ranks", "sharded": "two, state sharded"}


def compare(arguments, place):
    settings = {"turn_s": 0.01, "case_s": 0, "least_rounds": 2} if arguments.quick else \
        {"turn_s": 0.06, "case_s": arguments.seconds, "least_rounds": 5}
    hidden = HIDDEN[:1] if arguments.quick else arguments.hidden
    contenders, results = [], []
    try:
        contenders.append(Contender("unisono", TITLES["unisono"], [arguments.program], {}, 2, place / "unisono"))
        contenders.append(Contender("blocked", TITLES["blocked"], [arguments.program], {"arguments": ["blocked"]}, 2,
                                    place / "blocked"))
        why = "--without-torch" if arguments.without_torch else torch_or_why()
        if why is None:
            script = str(Path(__file__).parent / "torch_ddp.py")
            contenders.append(Contender("torch", TITLES["torch"], [sys.executable, script], {}, 2, place / "torch"))
        else:
            print(f"PyTorch is left out: {why}")
        unisono = contenders[0]
        machine = unisono.order("machine")[0]["machine"]
        machine |= {"torch": contenders[-1].order("version")[0]["version"]} if why is None else {}
        print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['compiler']}"
              f"{', PyTorch ' + machine['torch'] if why is None else ''}; core to core and back "
              f"{machine['round_trip_ns']:.0f} ns; load {machine['load']:.1f}")
        for width in hidden:
            case = Case(width, contenders, settings)
            case.prepare()
            case.measure()
            results.append(case.result(unisono.order("round_trip")[0]["round_trip_ns"]))
            print_result(results[-1])
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    finally:
        for one in contenders:
            one.stop()
    print(f"\nload {os.getloadavg()[0]:.1f}")
    if arguments.json:
        report = {"benchmark": "training_step", "quick": arguments.quick, "machine": machine, "cases": results}
        Path(arguments.json).write_text(json.dumps(report, indent=1))
    if arguments.plot:
        Path(arguments.plot).write_text(plot.draw(results, TITLES, WAYS, machine))
        print(f"plot: {arguments.plot}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="bench_training_step, where it was built")
    parser.add_argument("--quick", action="store_true", help="the smallest network and few turns: does it run?")
    parser.add_argument("--hidden", type=int, nargs="+", default=HIDDEN, choices=HIDDEN)
    parser.add_argument("--seconds", type=float, default=30, help="for each network")
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--plot", help="an SVG file")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: it needs two cores, one for each rank")
        return 77
    with tempfile.TemporaryDirectory(prefix="training_step_") as place:
        return compare(arguments, Path(place))


if __name__ == "__main__":
    sys.exit(main())
