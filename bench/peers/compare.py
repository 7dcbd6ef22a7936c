#!/usr/bin/env python3
"""Unisono beside Open MPI, MPICH, Gloo, DeepSpeed and a copy, as processes of one host; run.sh builds them and starts it.

How turns are given is in bench/support/contest.py; what is measured, and how results are verified, in
contenders/contender.hpp, the same for all.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import contest
from contest import geometric_mean, in_words, print_row

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]
SIZES = [8 * 4**k for k in range(13)] + [256 << 20]
PEERS = ["openmpi", "mpich", "openmpi5", "mpich5", "gloo", "deepspeed"]
TUNED = "openmpi_malloc"
TITLES = {"unisono": "unisono", "unisono_own_memory": "own memory", "openmpi": "Open MPI", TUNED: "its malloc set",
          "mpich": "MPICH", "openmpi5": "Open MPI 5", "mpich5": "MPICH 5", "gloo": "Gloo", "deepspeed": "DeepSpeed", "floor": "copy"}
NAMES = TITLES | {"unisono_own_memory": "unisono in its own memory", TUNED: "Open MPI with its malloc set",
                  "floor": "the copy"}
COPY_FROM = 512 << 10  # below, a copy is no floor: nothing is exchanged


def others(names):
    return [name for name in names if name not in ("unisono", "floor")]


class SharedMemoryContest(contest.Contest):
    ours = ("unisono",)
    peers = PEERS
    floor = "floor"
    # A peer with wrong results is left out of this comparison, which says so. Unisono and the MPIs
    # must be right.
    excused = ("gloo",)
    names = NAMES

    def __init__(self, programs):
        self.programs = programs

    def launch(self, name, ranks, cores):
        program = self.programs / f"peers_{name.split('_')[0]}"
        if not program.exists():
            return None, f"it was not built, since its library was not found ({program})"
        if name == "deepspeed" and ranks > cores:
            return None, f"with {ranks} ranks on {cores} cores it polls for milliseconds"
        if name in ("mpich", "mpich5"):
            if ranks > cores:
                return None, f"with {ranks} ranks on {cores} cores it takes milliseconds for a byte"
            run = self.newer(name, "mpiexec") if name == "mpich5" else contest.launcher_of_mpich()
            return ([run, "-n", str(ranks), str(program)], {}) if run else (None, "its mpirun was not found")
        if name in ("openmpi", "openmpi5", TUNED):
            run = self.newer(name, "mpirun") if name == "openmpi5" else contest.launcher_of_openmpi()
            if not run:
                return None, "its mpirun was not found"
            variables = {}
            if name == TUNED:
                variables = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
            return [run, *contest.openmpi_options(ranks, cores), str(program)], {"variables": variables}
        if name == "unisono_own_memory":
            return [str(program)], {"arguments": ["own_memory"]}
        return [str(program)], {}

    @staticmethod
    def newer(name, program):
        """Where run.sh has installed it; None if it has not."""
        found = Path(__file__).resolve().parents[2] / "build" / "bench" / name / "bin" / program
        return str(found) if found.exists() else None

    def collective_of(self, name, collective):
        return "copy" if name == "floor" else collective

    def joins(self, name, collective):
        return collective == "all_reduce" if name == "deepspeed" else name != "floor" or collective != "barrier"

    def fits(self, collective, size, ranks):
        return collective not in ("reduce_scatter", "all_gather") or size % (4 * ranks) == 0

    def add_ratios(self, result):
        best = result["contenders"]
        for key, names in (("fastest", PEERS), ("fastest_with_malloc_set", PEERS + [TUNED])):
            peer = self.fastest_peer(best, names)
            if peer:
                result[key] = {"peer": peer} | contest.over(best, peer, "unisono")
        if "floor" in best and result["bytes"] >= COPY_FROM and result["collective"] != "barrier":
            result["over_copy"] = contest.over(best, "unisono", "floor")


class Table:
    @staticmethod
    def header(collective, ranks, names):
        print(f"\n-- {collective}, {ranks} processes; us, and how many times as fast as the fastest peer")
        columns = ["size", "unisono", "spread"] + [TITLES[name] for name in others(names)]
        print_row(columns + ["x as fast", "paired", "malloc set", "copy", "of copy", "round trip"])

    @staticmethod
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
    names = ["unisono", "openmpi", TUNED, "mpich", "openmpi5", "mpich5", "gloo", "deepspeed", "floor"]
    if arguments.own_memory:
        names.insert(1, "unisono_own_memory")
    begin = time.monotonic()
    found = contest.run(SharedMemoryContest(Path(arguments.programs)), names, arguments.collectives, arguments.ranks,
                        arguments.sizes or settings["sizes"], settings, place, Table)
    results = found[0]
    summary = summarise(results)
    print_summary(summary)
    ways = sorted({one["contenders"]["gloo"]["way"] for one in results if "gloo" in one["contenders"]})
    if ways:
        print("Gloo's best ways were: " + "; ".join(ways))
    return contest.finish("peers", arguments, found, summary, begin, NAMES, {"": results})


def main():
    parser = contest.parser_of(__doc__.splitlines()[0], COLLECTIVES, [2, 4])
    parser.add_argument("--own-memory", action="store_true", help="also Unisono in buffers that its peers cannot see")
    parser.add_argument("--skip-without-mpi", action="store_true", help="exit with 77 if no MPI was built: for ctest")
    arguments = contest.parse(parser)
    built = [name for name in ("openmpi", "mpich", "openmpi5", "mpich5") if (Path(arguments.programs) / f"peers_{name}").exists()]
    if arguments.skip_without_mpi and not built:
        print("skipped: neither Open MPI nor MPICH was found when the benchmarks were built")
        return 77
    with contest.meeting_place() as place:
        return compare(arguments, Path(place))


if __name__ == "__main__":
    sys.exit(main())
