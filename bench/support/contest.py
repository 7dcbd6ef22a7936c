"""What comparisons of collectives have in common: who takes part, the turns on one size, and what is made of the times.

A contest says who is compared and how each is launched (bench/peers: over shared memory; bench/network: over sockets). Each
contender's processes live as long as the comparison and sleep while they have no turn. On each size a round gives every
contender a turn of some milliseconds, and there are several rounds, so that all see the same machine. What is measured, and
how results are verified, is in bench/peers/contenders/contender.hpp and the same for all.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import contest_plot
from contenders import Contender, Failed, median, quantile

LEARN_AT = 512 << 10
ROUNDS = 15


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


def launcher_of_openmpi():
    return launcher(["mpirun.openmpi", "mpirun"], "Open MPI") or launcher(["mpirun.openmpi", "mpirun"], "OpenRTE")


def launcher_of_mpich():
    return launcher(["mpirun.mpich", "mpiexec.hydra", "mpirun"], "HYDRA")


def openmpi_options(ranks, cores):
    options = ["--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    if ranks > cores:
        options += ["--mca", "mpi_yield_when_idle", "1"]
    return options


def available_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def print_row(cells):
    print("".join(cell.ljust(10) if i == 0 else cell.rjust(15) for i, cell in enumerate(cells)), flush=True)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def over(best, slower, faster):
    """How many times as long `slower` takes: of the medians, and the median of the rounds' own ratios."""
    paired = [a / b for a, b in zip(best[slower]["rounds_us"], best[faster]["rounds_us"])]
    return {"ratio": best[slower]["median_us"] / best[faster]["median_us"], "paired_ratio": median(paired)}


class Contest:
    """Who is compared with whom. A subclass says it."""

    ours = ()  # contenders of this project, which must have right results
    peers = ()  # names of the contenders to compare with
    floor = ""
    excused = ()  # their wrong results are reported, and are no failure
    names = {}  # for sentences

    def launch(self, name, ranks, cores):
        """Command and environment of a contender, or None and why it is left out."""
        raise NotImplementedError

    def collective_of(self, name, collective):
        return collective

    def joins(self, name, collective):
        return True

    def fits(self, collective, size, ranks):
        return True

    def prove(self, contender):
        """Raises Failed where a contender that has started is not what it is said to be."""

    def add_ratios(self, result):
        """Puts into `result` what its figures say."""
        raise NotImplementedError

    def case_of(self, *what):
        return Case(self, *what)

    def fastest_peer(self, best, among):
        there = [name for name in among if name in best]
        return min(there, key=lambda name: best[name]["median_us"]) if there else None


class Case:
    """One collective on one size: rounds, in which each contender has a turn on each of its ways."""

    def __init__(self, contest, collective, size, ranks, cores, settings):
        self.contest = contest
        self.collective, self.size, self.ranks, self.settings = collective, size, ranks, settings
        # What the clock cannot resolve is timed in batches, together with the writing of its input.
        self.in_batches = collective == "barrier" or size <= (2048 if ranks <= cores else 8192)
        self.entries = []  # (contender, way, command, [round][repetition])
        self.wrong = []

    def prepare(self, contenders):
        self.contenders = contenders
        for contender in contenders:
            collective = self.contest.collective_of(contender.name, self.collective)
            if self.size > LEARN_AT and contender.name == "gloo" and collective not in contender.learned:
                # To learn which ways are hopeless: some would take minutes.
                contender.order(f"prepare {collective} {LEARN_AT}")
            contender.learned.add(collective)
            answers = contender.order(f"prepare {collective} {self.size}")
            right = []
            for number, way in enumerate(answers[0]["ways"]):
                wrong = next(filter(None, (answer["ways"][number]["wrong"] for answer in answers)), None)
                if wrong:
                    self.note_wrong(contender, way["name"], wrong)
                else:
                    right.append((way["seconds"], number, way["name"]))
            # A short probe shows which ways are hopeless, not which one is best.
            kept = [way for way in right if way[0] <= 1.25 * min(right)[0]]
            contender.order("keep " + " ".join(str(number) for _, number, _ in kept))
            for seconds, number, name in kept:
                once = max(seconds, 1e-8)
                turn = self.settings["turn_s"]
                batch, around = 1, self.size / 1e9  # the input is written and the result is checked
                if self.in_batches:
                    batch, around = min(2000, max(2, int(turn / 40 / once))), 0
                repetitions = min(30, max(1, int(turn / (batch * once + around))))
                self.entries.append((contender, name, f"run {number} {batch} {repetitions}", []))
        for name in self.contest.ours:
            taking_part = [one for one in contenders if one.name == name]
            if taking_part and not any(entry[0].name == name for entry in self.entries):
                raise Failed(f"{self.contest.names[name]} has no right result of {self.collective}, {self.size} bytes, "
                             f"{self.ranks} ranks")

    def note_wrong(self, contender, way, wrong):
        what = (f"{self.contest.names[contender.name]} ({way}): wrong result of {self.collective}, {self.size} bytes, "
                f"{self.ranks} ranks: {wrong}")
        self.wrong.append((contender.name, what))
        print(what, flush=True)

    def measure(self):
        begin = time.monotonic()
        rounds = 0
        budget = self.settings["case_s"](self.collective, self.size)
        while rounds < self.settings["least_rounds"] or (rounds < ROUNDS and time.monotonic() - begin < budget):
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
                  "round_trip_ns": round_trip_ns, "contenders": best, "wrong": [what for _, what in self.wrong]}
        self.contest.add_ratios(result)
        return result


def run(contest, contenders, collectives, worlds, sizes, settings, place, table):
    """All cases; (results, failures, the machine). `table` offers header(collective, ranks, names) and row(result, names)."""
    cores = len(os.sched_getaffinity(0))
    results, failures, machine = [], [], None
    for ranks in worlds:
        world = []
        try:
            for name in contenders:
                command, environment = contest.launch(name, ranks, cores)
                if command is None:
                    print(f"{contest.names[name]} is left out with {ranks} ranks: {environment}", flush=True)
                    continue
                try:
                    started = Contender(name, contest.names[name], command, environment, ranks, place / f"{name}_{ranks}")
                    world.append(started)
                    contest.prove(started)
                except Failed as failed:
                    if name in contest.ours or name == contest.floor:
                        raise
                    world = [one for one in world if one is not failed.contender]
                    failures.append(str(failed))
                    print(failed, flush=True)
            floor = next(one for one in world if one.name == contest.floor)
            if machine is None:
                machine = floor.order("machine")[0]["machine"]
                print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, {machine['compiler']}; "
                      f"core to core and back {machine['round_trip_ns']:.0f} ns; load {machine['load']:.1f}", flush=True)
            for collective in collectives:
                there = [one.name for one in world]
                table.header(collective, ranks, there)
                for size in sizes if collective != "barrier" else [4]:
                    if not contest.fits(collective, size, ranks):
                        continue
                    if 2.5 * size * ranks * len(world) > available_bytes():
                        print(f"{in_words(size)} is left out: too little memory is free")
                        continue
                    case = contest.case_of(collective, size, ranks, cores, settings)
                    try:
                        case.prepare([one for one in world if contest.joins(one.name, collective)])
                        case.measure()
                    except Failed as failed:
                        if failed.contender is None or failed.contender.name in (*contest.ours, contest.floor):
                            raise
                        world.remove(failed.contender)
                        failures.append(str(failed))
                        print(f"{failed}\nIt is left out from here on, and so is this size.", flush=True)
                        continue
                    results.append(case.result(floor.order("round_trip")[0]["round_trip_ns"]))
                    table.row(results[-1], there)
                    failures += [what for name, what in case.wrong if name not in contest.excused]
        except Failed as failed:
            failures.append(str(failed))
            print(failed, flush=True)
        finally:
            for one in world:
                one.stop()
    return results, failures, machine


def parser_of(description, collectives, worlds):
    """What both comparisons take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("programs", help="where the contenders were built")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: does it run?")
    parser.add_argument("--ranks", type=int, nargs="+", default=worlds)
    parser.add_argument("--collectives", nargs="+", default=collectives, choices=collectives)
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes, multiples of 4")
    parser.add_argument("--json")
    parser.add_argument("--plot", help="an SVG file")
    return parser


def parse(parser):
    arguments = parser.parse_args()
    if any(size < 4 or size % 4 != 0 for size in arguments.sizes or []):
        parser.error("sizes must be positive multiples of 4, the bytes of a float")
    return arguments


def meeting_place():
    """A directory that goes with the comparison; the page where ranks meet must not be written to a disk."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="peers_", dir=shared if shared.is_dir() else None)


def finish(benchmark, arguments, found, summary, begin, names, pictures):
    """The last lines, and the JSON and the plots that `arguments` ask for; the exit status. `found` is what `run` returned;
    `pictures` says what is drawn, by what is added to the plot's name."""
    results, failures, machine = found
    trips = [one["round_trip_ns"] for one in results]
    if trips:
        print(f"core to core and back: {min(trips):.0f} to {max(trips):.0f} ns; "
              f"{time.monotonic() - begin:.0f} s in all; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        report = {"benchmark": benchmark, "quick": arguments.quick, "machine": machine, "summary": summary,
                  "cases": results, "failures": failures}
        Path(arguments.json).write_text(json.dumps(report, indent=1))
    for addition, shown in pictures.items():
        if arguments.plot and shown:
            path = Path(arguments.plot)
            path = path.with_name(path.stem + addition + path.suffix)
            path.write_text(contest_plot.draw(shown, names, machine))
            print(f"plot: {path}")
    return 1 if failures else 0
