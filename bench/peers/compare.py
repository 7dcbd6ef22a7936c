#!/usr/bin/env python3
"""Unisono beside Open MPI, MPICH, Gloo and a copy, as processes of one host; run.sh builds them and starts it.

Each contender's processes live as long as the comparison and sleep while they have no turn. On each size a round gives
every contender a turn of some milliseconds, and there are several rounds, so that all see the same machine. What is
measured, and how results are verified, is in contenders/contender.hpp and the same for all.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import plot
from contenders import Contender, Failed, median, quantile

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]
SIZES = [8 * 4**k for k in range(13)] + [256 << 20]
PEERS = ["openmpi", "mpich", "gloo"]
TUNED = "openmpi_malloc"
TITLES = {"unisono": "unisono", "unisono_own_memory": "own memory", "openmpi": "Open MPI", TUNED: "its malloc set",
          "mpich": "MPICH", "gloo": "Gloo", "floor": "copy"}
NAMES = TITLES | {"unisono_own_memory": "unisono in its own memory", TUNED: "Open MPI with its malloc set",
                  "floor": "the copy"}
LEARN_AT = 512 << 10
COPY_FROM = 512 << 10  # below, a copy is no floor: nothing is exchanged


def in_words(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def launcher(names, word):
    """The first of these programs that is an mpirun of that make."""
    for name in names:
        path = shutil.which(name)
        if path and word in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def launch_of(name, programs, ranks, cores):
    """Command and environment of a contender, or why it is left out."""
    program = programs / f"peers_{name.split('_')[0]}"
    if not program.exists():
        return None, f"it was not built, since its library was not found ({program})"
    if name == "mpich":
        if ranks > cores:
            return None, f"with {ranks} ranks on {cores} cores it takes milliseconds for a byte"
        run = launcher(["mpirun.mpich", "mpiexec.hydra", "mpirun"], "HYDRA")
        return ([run, "-n", str(ranks), str(program)], {}) if run else (None, "its mpirun was not found")
    if name in ("openmpi", TUNED):
        run = launcher(["mpirun.openmpi", "mpirun"], "Open MPI") or launcher(["mpirun.openmpi", "mpirun"], "OpenRTE")
        if not run:
            return None, "its mpirun was not found"
        command = [run, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        if ranks > cores:
            command += ["--mca", "mpi_yield_when_idle", "1"]
        variables = {}
        if name == TUNED:
            variables = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
        return command + [str(program)], {"variables": variables}
    if name == "unisono_own_memory":
        return [str(program)], {"arguments": ["own_memory"]}
    return [str(program)], {}


def available_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


class Case:
    """One collective on one size: rounds, in which each contender has a turn on each of its ways."""

    def __init__(self, collective, size, ranks, cores, settings):
        self.collective, self.size, self.ranks, self.settings = collective, size, ranks, settings
        # What is shorter than the clock can tell is timed in batches, and the writing of its input with it.
        self.in_batches = collective == "barrier" or size <= (2048 if ranks <= cores else 8192)
        self.entries = []  # (contender, way, command, [round][repetition])
        self.wrong = []

    def prepare(self, contenders):
        self.contenders = contenders
        for contender in contenders:
            collective = "copy" if contender.name == "floor" else self.collective
            if self.size > LEARN_AT and contender.name == "gloo" and collective not in contender.learned:
                contender.order(f"prepare {collective} {LEARN_AT}")  # which ways are hopeless: some would take minutes
            contender.learned.add(collective)
            answers = contender.order(f"prepare {collective} {self.size}")
            right = []
            for number, way in enumerate(answers[0]["ways"]):
                wrong = next(filter(None, (answer["ways"][number]["wrong"] for answer in answers)), None)
                if wrong:
                    self.note_wrong(contender, way["name"], wrong)
                else:
                    right.append((way["seconds"], number, way["name"]))
            # A probe of a moment says who is out of the question, not who is best.
            kept = [way for way in right if way[0] <= 1.25 * min(right)[0]]
            contender.order("keep " + " ".join(str(number) for _, number, _ in kept))
            for seconds, number, name in kept:
                once = max(seconds, 1e-8)
                turn = self.settings["turn_s"]
                batch, around = 1, self.size / 1e9  # the input is written and the result checked
                if self.in_batches:
                    batch, around = min(2000, max(2, int(turn / 40 / once))), 0
                repetitions = min(30, max(1, int(turn / (batch * once + around))))
                self.entries.append((contender, name, f"run {number} {batch} {repetitions}", []))
        if not any(entry[0].name == "unisono" for entry in self.entries):
            raise Failed(f"Unisono has no right result of {self.collective}, {self.size} bytes, {self.ranks} ranks")

    def note_wrong(self, contender, way, wrong):
        what = (f"{NAMES[contender.name]} ({way}): wrong result of {self.collective}, {self.size} bytes, "
                f"{self.ranks} ranks: {wrong}")
        self.wrong.append(what)
        print(what, flush=True)

    def measure(self):
        begin = time.monotonic()
        rounds = 0
        budget = self.settings["case_s"](self.collective, self.size)
        while rounds < self.settings["least_rounds"] or (rounds < 15 and time.monotonic() - begin < budget):
            first = rounds % len(self.entries)
            for entry in self.entries[first:] + self.entries[:first]:
                contender, way, command, series = entry
                answers = contender.order(command)
                series.append(answers[0]["seconds"])
                wrong = next(filter(None, (answer["wrong"] for answer in answers)), None)
                if wrong:
                    self.note_wrong(contender, way, wrong)
                    self.entries.remove(entry)
            rounds += 1
        for contender in self.contenders:
            contender.order("drop")

    def result(self, round_trip_ns):
        best = {}
        for contender, way, _, series in self.entries:
            seconds = [one for turn in series for one in turn]
            entry = {"way": way, "median_us": median(seconds) * 1e6, "best_quarter_us": quantile(seconds, 0.125) * 1e6,
                     "spread": (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median(seconds),
                     "repetitions": len(seconds), "rounds_us": [median(turn) * 1e6 for turn in series]}
            if contender.name not in best or entry["median_us"] < best[contender.name]["median_us"]:
                best[contender.name] = entry
        result = {"collective": self.collective, "ranks": self.ranks, "bytes": self.size,
                  "round_trip_ns": round_trip_ns, "contenders": best, "wrong": self.wrong}
        ours = best["unisono"]
        for key, names in (("fastest", PEERS), ("fastest_with_malloc_set", PEERS + [TUNED])):
            there = [name for name in names if name in best]
            if not there:
                continue
            peer = min(there, key=lambda name: best[name]["median_us"])
            paired = [a / b for a, b in zip(best[peer]["rounds_us"], ours["rounds_us"])]
            result[key] = {"peer": peer, "ratio": best[peer]["median_us"] / ours["median_us"],
                           "paired_ratio": median(paired)}
        if "floor" in best and self.size >= COPY_FROM and self.collective != "barrier":
            paired = [a / b for a, b in zip(ours["rounds_us"], best["floor"]["rounds_us"])]
            result["over_copy"] = {"ratio": ours["median_us"] / best["floor"]["median_us"],
                                   "paired_ratio": median(paired)}
        return result


def print_row(cells):
    print("".join(cell.ljust(10) if i == 0 else cell.rjust(15) for i, cell in enumerate(cells)), flush=True)


def others(names):
    return [name for name in names if name not in ("unisono", "floor")]


def header(collective, ranks, names):
    print(f"\n-- {collective}, {ranks} processes; us, and how many times as fast as the fastest peer")
    columns = ["size", "unisono", "spread"] + [TITLES[name] for name in others(names)]
    print_row(columns + ["x as fast", "paired", "malloc set", "copy", "of copy", "round trip"])


def row(result, names):
    best = result["contenders"]
    cells = [in_words(result["bytes"]) if result["collective"] != "barrier" else "-",
             f"{best['unisono']['median_us']:.3f}", f"{best['unisono']['spread'] * 100:.0f} %"]
    cells += [f"{best[name]['median_us']:.3f}" if name in best else "-" for name in others(names)]
    fastest, tuned, copy = (result.get(key) for key in ("fastest", "fastest_with_malloc_set", "over_copy"))
    cells += [f"{fastest['ratio']:.2f} x", f"{fastest['paired_ratio']:.2f} x"] if fastest else ["-", "-"]
    cells += [f"{tuned['ratio']:.2f} x" if tuned and TUNED in best else "-"]
    cells += [f"{best['floor']['median_us']:.1f}", f"{copy['ratio']:.2f} x"] if copy else ["-", "-"]
    print_row(cells + [f"{result['round_trip_ns']:.0f} ns"])


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def summarise(results):
    """Per collective and world: the mean over the sizes, the least, and the most over a copy from 16 MiB on."""
    summary = []
    for collective in COLLECTIVES:
        for ranks in sorted({one["ranks"] for one in results}):
            mine = [one for one in results if one["collective"] == collective and one["ranks"] == ranks]
            entry = {"collective": collective, "ranks": ranks}
            for key in ("fastest", "fastest_with_malloc_set"):
                there = [one for one in mine if key in one]
                if there:
                    least = min(there, key=lambda one: one[key]["ratio"])
                    entry[key] = {"geometric_mean": geometric_mean([one[key]["ratio"] for one in there]),
                                  "least": least[key]["ratio"], "least_bytes": least["bytes"],
                                  "least_to": least[key]["peer"]}
            large = [one["over_copy"]["ratio"] for one in mine if "over_copy" in one and one["bytes"] >= 16 << 20]
            if large:
                entry["most_over_copy"] = max(large)
            if len(entry) > 2:
                summary.append(entry)
    return summary


def print_summary(summary):
    print("\n-- times as fast as the fastest peer: mean over the sizes (geometric), and the least")
    print_row(["ranks", "collective", "mean", "least", "at", "next to", "mean, malloc", "least, malloc",
               "of copy, 16 M+"])
    for entry in summary:
        cells = [str(entry["ranks"]), entry["collective"]]
        fastest, tuned = entry.get("fastest"), entry.get("fastest_with_malloc_set")
        cells += [f"{fastest['geometric_mean']:.2f} x", f"{fastest['least']:.2f} x", in_words(fastest["least_bytes"]),
                  TITLES[fastest["least_to"]]] if fastest else ["-"] * 4
        cells += [f"{tuned['geometric_mean']:.2f} x", f"{tuned['least']:.2f} x"] if tuned else ["-"] * 2
        print_row(cells + [f"{entry['most_over_copy']:.2f} x" if "most_over_copy" in entry else "-"])


def settings_of(quick):
    """How long a turn and a case take; a case is over after `least_rounds` at the earliest."""

    def full(collective, size):
        whole = 1 if size <= 512 << 10 else 2 if size <= 8 << 20 else 5
        return whole if collective == "all_reduce" else whole / 2

    if quick:
        return {"turn_s": 0.002, "least_rounds": 2, "case_s": lambda *_: 0, "sizes": [8, 2048, 512 << 10, 8 << 20]}
    return {"turn_s": 0.01, "least_rounds": 3, "case_s": full, "sizes": SIZES}


def compare(arguments, place):
    settings = settings_of(arguments.quick)
    sizes = arguments.sizes or settings["sizes"]
    cores = len(os.sched_getaffinity(0))
    programs = Path(arguments.programs)
    results, failures, machine = [], [], None
    names = ["unisono", "openmpi", TUNED, "mpich", "gloo", "floor"]
    if arguments.own_memory:
        names.insert(1, "unisono_own_memory")
    begin = time.monotonic()
    for ranks in arguments.ranks:
        world = []
        try:
            for name in names:
                command, environment = launch_of(name, programs, ranks, cores)
                if command is None:
                    print(f"{NAMES[name]} is left out with {ranks} ranks: {environment}")
                    continue
                try:
                    world.append(Contender(name, NAMES[name], command, environment, ranks,
                                           place / f"{name}_{ranks}"))
                except Failed as failed:
                    if name in ("unisono", "floor"):
                        raise
                    failures.append(str(failed))
                    print(failed)
            floor = next(one for one in world if one.name == "floor")
            if machine is None:
                machine = floor.order("machine")[0]["machine"]
                print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['compiler']}; "
                      f"core to core and back {machine['round_trip_ns']:.0f} ns; load {machine['load']:.1f}")
            for collective in arguments.collectives:
                there = [one.name for one in world]
                header(collective, ranks, there)
                for size in sizes if collective != "barrier" else [4]:
                    if collective in ("reduce_scatter", "all_gather") and size % (4 * ranks) != 0:
                        continue
                    if 2.5 * size * ranks * len(world) > available_bytes():
                        print(f"{in_words(size)} is left out: too little memory is free")
                        continue
                    case = Case(collective, size, ranks, cores, settings)
                    try:
                        case.prepare([one for one in world if one.name != "floor" or collective != "barrier"])
                        case.measure()
                    except Failed as failed:
                        if failed.contender is None or failed.contender.name in ("unisono", "floor"):
                            raise
                        world.remove(failed.contender)
                        failures.append(str(failed))
                        print(f"{failed}\nIt is left out from here on, and so is this size.")
                        continue
                    results.append(case.result(floor.order("round_trip")[0]["round_trip_ns"]))
                    row(results[-1], there)
                    # A peer that is wrong is left out of this comparison and said to be; we and the MPIs must not be.
                    failures += [wrong for wrong in case.wrong if not wrong.startswith(NAMES["gloo"])]
        except Failed as failed:
            failures.append(str(failed))
            print(failed)
        finally:
            for one in world:
                one.stop()
    summary = summarise(results)
    print_summary(summary)
    ways = sorted({one["contenders"]["gloo"]["way"] for one in results if "gloo" in one["contenders"]})
    if ways:
        print("Gloo's best ways were: " + "; ".join(ways))
    trips = [one["round_trip_ns"] for one in results]
    if trips:
        print(f"core to core and back: {min(trips):.0f} to {max(trips):.0f} ns; "
              f"{time.monotonic() - begin:.0f} s in all; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        report = {"benchmark": "peers", "quick": arguments.quick, "machine": machine, "summary": summary,
                  "cases": results, "failures": failures}
        Path(arguments.json).write_text(json.dumps(report, indent=1))
    if arguments.plot and results:
        Path(arguments.plot).write_text(plot.draw(results, NAMES, machine))
        print(f"plot: {arguments.plot}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", help="where the contenders were built")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: does it run?")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES, choices=COLLECTIVES)
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes, multiples of 4")
    parser.add_argument("--own-memory", action="store_true", help="also Unisono in buffers that its peers cannot see")
    parser.add_argument("--json")
    parser.add_argument("--plot", help="an SVG file")
    parser.add_argument("--skip-without-mpi", action="store_true", help="exit with 77 if no MPI was built: for ctest")
    arguments = parser.parse_args()
    if any(size < 4 or size % 4 != 0 for size in arguments.sizes or []):
        parser.error("sizes must be positive multiples of 4, the bytes of a float")
    built = [name for name in ("openmpi", "mpich") if (Path(arguments.programs) / f"peers_{name}").exists()]
    if arguments.skip_without_mpi and not built:
        print("skipped: neither Open MPI nor MPICH was found when the benchmarks were built")
        return 77
    shared = Path("/dev/shm")  # the page where ranks meet must not be written to a disk
    with tempfile.TemporaryDirectory(prefix="peers_", dir=shared if shared.is_dir() else None) as place:
        return compare(arguments, Path(place))


if __name__ == "__main__":
    sys.exit(main())
