#!/usr/bin/env python3
"""The figures of bench/RESULTS.md: one file per run in bench/results, and the tables of the page made from them.

    results.py                                       writes the tables of the page
    results.py --check                               fails if the page and the runs differ, or a run is wrong
    results.py add REPORT --machine NAME [--setup TEXT] [--date DAY] [--commit HASH] [--replace]
                                                     makes a run of what a benchmark wrote by --json, and then the page

A run has "benchmark", "machine" (a name from bench/results/machines.json), "date" and "rows", and if known "setup" (what else
was so on the machine), "commit", "round_trip_ns", "processor", "compiler" and "load". A row is one figure: "what", "value",
"beside", for the page; "median_us", "spread", "ratio" and "paired_ratio", as measured; "table", "machine" and "setup", if other
than the run's. `add --machine A` gives each size of the peers' benchmark the machine "A near" or "A far", by its round trip. In the
page, `<!-- results: NAME... -->` and `<!-- end -->` enclose the rows of the named benchmarks. --replace takes the rows that `add`
measured anew, of the same machine, out of older runs.

In README.md, `<!-- claim: SUBJECT -->` and `<!-- end -->` enclose what all runs together say of a collective beside other libraries,
for example of the subject "all_reduce, 2 processes", so that no run is chosen.
"""
import argparse
import datetime
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
COLUMNS = ("what", "machine", "date", "value", "beside")
TEXTS = {"benchmark", "machine", "date", "setup", "commit", "processor", "compiler"}
NUMBERS = {"round_trip_ns", "load"}
IN_ROW = {"what": str, "value": str, "beside": str, "table": str, "setup": str, "median_us": (int, float), "spread": (int, float),
          "machine": str, "ratio": (int, float), "paired_ratio": (int, float)}
SIZE = re.compile(r"(\d[\d,.]*) (B|KiB|MiB|thousand|million)\b(?: to \d[\d,.]* (?:B|KiB|MiB)\b)?")
FACTOR = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "thousand": 1000, "million": 1000000}


class Wrong(Exception):
    pass


# --- the runs

def checked(run, name, machines):
    """The run, whose keys and types are right."""
    def refuse(found, expected):
        raise Wrong(f"bench/results/{name}: found {found}; expected {expected}")
    for key in ("benchmark", "machine", "date", "rows"):
        if key not in run:
            refuse(f"no \"{key}\"", "one in each run")
    for key, value in run.items():
        if key != "rows" and not (isinstance(value, str) if key in TEXTS else key in NUMBERS and isinstance(value, (int, float))):
            refuse(f"\"{key}\": {value!r}", f"texts {sorted(TEXTS)} and numbers {sorted(NUMBERS)}")
    if run["machine"] not in machines:
        refuse(f"machine '{run['machine']}'", f"one of bench/results/machines.json: {', '.join(machines)}")
    try:
        datetime.date.fromisoformat(run["date"])
    except ValueError:
        refuse(f"date '{run['date']}'", "a day like 2026-11-28")
    subjects = [(row.get("table"), row.get("what"), row.get("machine"), row.get("setup")) for row in run["rows"]]
    for row, subject in zip(run["rows"], subjects):
        if subjects.count(subject) > 1:
            refuse(f"'{row.get('what')}' {subjects.count(subject)} times", "one figure of each subject in a run")
        for key in ("what", "value"):
            if not row.get(key):
                refuse(f"a row {row} without \"{key}\"", "one in each row")
        for key, value in row.items():
            if key == "machine" and value not in machines:
                refuse(f"machine '{value}' in a row", f"one of bench/results/machines.json: {', '.join(machines)}")
            if key not in IN_ROW or not isinstance(value, IN_ROW[key]) or isinstance(value, str) and re.search(r"[|\n]", value):
                refuse(f"\"{key}\": {value!r} in a row", f"keys {', '.join(IN_ROW)}; texts of one line without '|'")
    return run


def read(folder):
    """(the machines, the runs by file name), in the order of the page: older runs first, and of one day in the order of the machines."""
    machines = json.loads((folder / "machines.json").read_text())
    runs = {}
    for path in sorted(folder.glob("*.json")):
        if path.name != "machines.json":
            try:
                runs[path.name] = checked(json.loads(path.read_text()), path.name, list(machines))
            except json.JSONDecodeError as error:
                raise Wrong(f"bench/results/{path.name}: found no JSON ({error}); expected a run") from None
    order = list(machines)
    return machines, dict(sorted(runs.items(), key=lambda item: (item[1]["date"], order.index(item[1]["machine"]), item[0])))


def written(run):
    """JSON with one row per line."""
    head = "".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in run.items() if key != "rows")
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in run["rows"])
    return f"{{\n{head}\"rows\": [\n{rows}\n]\n}}\n"


# --- the page

def machine_of(run, row):
    return row.get("machine", run["machine"])


def size_of(match):
    return float(match[1].replace(",", "")) * FACTOR[match[2]]


def table(names, runs):
    """The rows of a table: benchmark by benchmark; equal subjects together, by their sizes."""
    lines = []
    for name in names:
        found = [(row, run) for run in runs.values() for row in run["rows"] if row.get("table", run["benchmark"]) == name and not in_sizes(run, row)]
        if not found:
            raise Wrong(f"bench/RESULTS.md: found a table of '{name}', of which there is no run; expected a file with it in bench/results")
        stem = lambda row: SIZE.sub("#", row["what"])
        first = {}
        for row, _ in found:
            first.setdefault(stem(row), len(first))
        found.sort(key=lambda pair: (first[stem(pair[0])], [size_of(match) for match in SIZE.finditer(pair[0]["what"])]))
        for row, run in found:
            setup = row.get("setup", run.get("setup"))
            lines.append({"what": row["what"], "machine": machine_of(run, row) + (f", {setup}" if setup else ""), "date": run["date"],
                          "value": row["value"], "beside": row.get("beside", "")})
    columns = [name for name in COLUMNS if any(line[name] for line in lines)]
    shown = [columns, ["---"] * len(columns), *([line[name] for name in columns] for line in lines)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in shown)


PEERS_TABLES = ("peers", "peers_sizes")
ONE_SIZE = re.compile(r"(\w+), (\d+ processes[^,]*), ([\d,]+ (?:B|KiB|MiB))")


def times_as_fast(row):
    """How many times as fast as the fastest peer Unisono is, of a row of the peers' benchmark; None if it says something else."""
    if "ratio" in row:
        return row["ratio"]
    beside = re.match(r"([\d.]+) times as fast", row.get("beside", ""))
    return float(beside[1]) if beside else float(row["value"]) if re.fullmatch(r"[\d.]+", row["value"]) else None


def in_sizes(run, row):
    """(collective, world, size) if the row is one size beside the peers: such rows have a table by size, see `sizes`."""
    size = ONE_SIZE.fullmatch(row["what"]) if row.get("table", run["benchmark"]) in PEERS_TABLES else None
    return size.groups() if size and times_as_fast(row) is not None else None


def by_size(runs):
    """(collective, world, size, times as fast as the fastest peer, near, far or nothing) of each size of each run."""
    for run in runs.values():
        for row in run["rows"]:
            if one := in_sizes(run, row):
                yield *one, times_as_fast(row), machine_of(run, row).partition(" ")[2]


def sizes(world, runs):
    """Times as fast as the fastest peer, by size, collective and regime: the range of all runs."""
    cells = {}
    for collective, of, size, ratio, regime in by_size(runs):
        if of == world:
            cells.setdefault(size, {}).setdefault(f"{collective} {regime}".strip(), []).append(ratio)
    if not cells:
        raise Wrong(f"bench/RESULTS.md: found a table of sizes for '{world}', of which there is no run")
    there = {column for row in cells.values() for column in row}
    columns = [column for name in COLLECTIVES for column in (name, f"{name} near", f"{name} far") if column in there]
    lines = [["size", *columns], ["---"] * (1 + len(columns))]
    for size in sorted(cells, key=lambda size: size_of(SIZE.fullmatch(size))):
        lines.append([size, *(range_of(cells[size].get(column, [])) for column in columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def range_of(ratios):
    return " to ".join(dict.fromkeys(f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" for ratio in (min(ratios), max(ratios)))) if ratios else ""


def page(text, machines, runs):
    """The page with its tables made anew."""
    used = set()

    def made(match):
        names = match[2].split()
        used.update(names)
        return f"{match[1]}\n\n{table(names, runs)}\n{match[4]}"

    text = re.sub(r"(<!-- results: ([\w ]+) -->)\n([^\0]*?)(<!-- end -->)", made, text)
    text, of_sizes = re.subn(r"(<!-- sizes: ([\w ]+) -->)\n[^\0]*?(<!-- end -->)", lambda match: f"{match[1]}\n\n{sizes(match[2], runs)}\n{match[3]}", text)
    if of_sizes:
        used.add("peers_sizes")
    rows = "".join(f"| {name} | {what} |\n" for name, what in machines.items())
    listed = lambda match: f"{match[1]}\n\n| machine | |\n|---|---|\n{rows}\n{match[2]}"
    text, places = re.subn(r"(<!-- machines -->)\n[^\0]*?(<!-- end -->)", listed, text)
    if places != 1:
        raise Wrong(f"bench/RESULTS.md: found {places} places for the machines; expected one, '<!-- machines -->' to '<!-- end -->'")
    there = {row.get("table", run["benchmark"]) for run in runs.values() for row in run["rows"]}
    if there != used:
        raise Wrong(f"bench/RESULTS.md: found no table of {', '.join(sorted(there - used))}; expected '<!-- results: NAME -->' for each")
    return text


# --- claims

def down(number):
    """Two digits, rounded down: a claim is not more than what was measured."""
    digits = 1 - math.floor(math.log10(number))
    return f"{math.floor(number * 10**digits + 1e-9) / 10**digits:g}"


def claim(runs, subject):
    """What all runs say of "all_reduce, 2 processes", for example."""
    rows = [(run, row) for run in runs.values() for row in run["rows"] if row.get("table", run["benchmark"]) in PEERS_TABLES]
    means = [times_as_fast(row) for run, row in rows if row["what"] == f"{subject}, mean"]
    machines = {run["machine"].split()[0] for run, row in rows if row["what"] == f"{subject}, mean"}
    single = [ratio for collective, world, _, ratio, _ in by_size(runs) if f"{collective}, {world}" == subject]
    if len(means) < 3 or not single:
        raise Wrong(f"README.md: found {len(means)} runs and {len(single)} sizes of '{subject}' in bench/results; expected at least 3 runs")
    low, high, least, most = (down(number) for number in (min(means), max(means), min(single), max(single)))
    return (f"{low} to {high} times as fast as the fastest of Open MPI, MPICH, Gloo and DeepSpeed "
            f"(means over message sizes of {len(means)} runs on {len(machines)} machine{'s' if len(machines) > 1 else ''}); at single sizes it is {least} to {most} times as fast")


def with_claims(text, runs):
    return re.sub(r"(<!-- claim: ([\w, ]+) -->)(.*?)(<!-- end -->)", lambda match: match[1] + claim(runs, match[2]) + match[4], text)


def make(bench, check):
    machines, runs = read(bench / "results")
    for path, made, expected in ((bench / "RESULTS.md", lambda text: page(text, machines, runs), "tables"),
                                 (bench.parent / "README.md", lambda text: with_claims(text, runs), "claims")):
        before = path.read_text()
        after = made(before)
        if check and before != after:
            raise Wrong(f"{path.relative_to(bench.parent)}: found other {expected} than bench/results has; expected what bench/results.py writes")
        if not check:
            path.write_text(after)
    print(f"{len(runs)} runs, {sum(len(run['rows']) for run in runs.values())} figures")


# --- reports of benchmarks

def words(number):
    """Three digits, and commas."""
    if abs(number) >= 1000:
        return f"{round(number, 2 - len(str(int(abs(number)))) + 1):,.0f}"
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}" if abs(number) >= 1 else f"{number:.3g}"


def bytes_in_words(count):
    for unit in ("MiB", "KiB"):
        if count >= FACTOR[unit] and count % FACTOR[unit] == 0:
            return f"{count // FACTOR[unit]} {unit}"
    return f"{count} B"


def world(ranks, cores):
    return f"{ranks} processes" + (f" on {cores} cores" if ranks > cores else "")


# Of benchmarks that say "case": how the page names a case. Others have the case's own name.
NAMES = {"all_reduce": "all_reduce, 2 threads, {}", "executor": "a ring by the executor, {}", "oversubscribed": "all_reduce, 8 ranks on 2 cores, {} per rank",
         "update": "an update of {} parameters, one rank", "idle_ranks": "all_reduce, {}", "reproducible": "sums on a grid, {}"}
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
PEERS = {"openmpi": "Open MPI", "openmpi5": "Open MPI 5", "mpich": "MPICH", "mpich5": "MPICH 5", "gloo": "Gloo", "deepspeed": "DeepSpeed"}


def compared(report):
    """Rows of cases that stand beside others: Report::compare of bench/support/report.hpp."""
    groups = {case["group"].removeprefix("us, ") for case in report["cases"] if "group" in case}
    for case in report["cases"]:
        if "case" in case and isinstance(case.get("ratio"), float) and "ours" not in case:
            kinds = [f"{key} {value}" for key, value in case.items() if isinstance(value, int)]
            yield {"what": ", ".join([case["case"], *kinds]), "value": f"{case['ratio']:.2f} x", "ratio": case["ratio"]}
        if "ours" not in case or "others" not in case:
            continue
        name, *kinds = case["case"].split(", ")
        what = ", ".join([NAMES.get(report["benchmark"], "{}").format(name), *kinds])
        if len(groups) > 1:
            what += f", {case['group'].removeprefix('us, ')}"
        others = ", ".join(f"{other['name']} {words(other['median_us'])} us" for other in case["others"])
        by_time = case.get("goal", {}).get("unit") == "us"
        yield {"what": what,
               "value": f"{case['more_us']:+.2f} us" if by_time else f"{case['ratio']:.2f} x", "beside": others,
               "median_us": case["ours"]["median_us"], "spread": case["ours"]["spread"], "ratio": case["ratio"], "paired_ratio": case["paired_ratio"]}


def near_or_far(round_trip_ns):
    """The two regimes of the virtual machines: a line goes from core to core and back in 50 to 130 ns, or in 470 to 560 ns."""
    return "near" if round_trip_ns < 250 else "far"


def peers(report):
    cores = report["machine"]["cores"]
    for entry in report["summary"]:
        if entry["collective"] == "barrier":
            continue
        mine = [case for case in report["cases"] if (case["collective"], case["ranks"]) == (entry["collective"], entry["ranks"])]
        ratios = [case["fastest"]["ratio"] for case in mine if "fastest" in case]
        regimes = {near_or_far(case["round_trip_ns"]) for case in mine if case.get("round_trip_ns")}
        name = f"{entry['collective']}, {world(entry['ranks'], cores)}"
        for key, what in (("fastest", "mean"), ("fastest_with_malloc_set", "mean, the peers' malloc tuned")):
            if key in entry:
                one = entry[key]
                most = f", most {words(max(ratios))}" if key == "fastest" else ""
                yield {"what": f"{name}, {what}", "value": words(one["geometric_mean"]), "regimes": regimes, "beside": f"least {words(one['least'])} ({bytes_in_words(one['least_bytes'])}){most}",
                       "ratio": one["geometric_mean"]}
    for case in report["cases"]:
        if "fastest" in case:
            ours, best = case["contenders"]["unisono"], case["fastest"]
            barrier = case["collective"] == "barrier"
            size = "" if barrier else f", {bytes_in_words(case['bytes'])}"
            yield {"what": f"{case['collective']}, {world(case['ranks'], cores)}{size}", "value": f"{words(ours['median_us'])} us",
                   "beside": f"{words(best['ratio'])} times as fast as {PEERS.get(best['peer'], best['peer'])}", "table": "peers" if barrier else "peers_sizes",
                   "regimes": {near_or_far(case["round_trip_ns"])} if case.get("round_trip_ns") else set(),
                   "median_us": ours["median_us"], "spread": ours["spread"], "ratio": best["ratio"], "paired_ratio": best["paired_ratio"]}


def network(report):
    places = {"namespaces": "name spaces"}
    for entry in report["summary"]:
        if "all" not in entry:
            continue
        one, ranks = entry["all"], "" if entry["ranks"] == 2 else f", {world(entry['ranks'], report['machine']['cores'])}"
        raw = f"; raw {words(entry['least_of_raw_socket'])}" if "least_of_raw_socket" in entry else ""
        what = "one message" if entry["collective"] == "send" else entry["collective"]
        yield {"what": f"{what}, `{entry['ours'].capitalize()}`{ranks}, {places.get(entry['where'], entry['where'])}", "value": words(one["geometric_mean"]),
               "beside": f"least {words(one['least'])} ({bytes_in_words(one['least_bytes'])}){raw}", "ratio": one["geometric_mean"]}


def training_step(report):
    kinds = {"unisono": "plain loops", "blocked": "fast kernels", "torch": "PyTorch DDP with Gloo"}
    for case in report["cases"]:
        count = case["parameters"]
        name = (f"{count / 1e6:.1f} million" if count >= 1e6 else f"{count / 1000:.0f} thousand") + " parameters"
        for contender, ways in case["contenders"].items():
            one, sharded = ways["together"], ways.get("sharded")
            more = f"{one['paired_over_floor_us']:.0f} us more" if contender == "torch" else f"{one['paired_over_floor_us']:+.1f} us"
            beside = more if contender == "torch" else f"{more}; sharded {sharded['ratio']:.2f} x, {sharded['paired_over_floor_us']:+.1f} us" if sharded else more
            yield {"what": f"{name}, {kinds[contender]}", "value": f"{one['ratio']:.2f} x", "beside": beside, "median_us": one["median_us"], "spread": one["spread"],
                   "ratio": one["ratio"], "paired_ratio": one["paired_ratio"]}


def ways_to_train(report):
    for case in report["cases"]:
        through = f"; {case['bytes_through_rank_0'] / (1 << 20):.0f} MiB through rank 0" if case["bytes_through_rank_0"] >= 1 << 20 else ""
        yield {"what": f"{case['case'].strip()}, {case['parameters']:,} parameters", "value": f"{case['speed_up']:.2f}", "beside": f"predicted {case['predicted_speed_up']:.2f}{through}",
               "median_us": case["seconds"]["median_us"], "spread": case["seconds"]["spread"], "ratio": case["speed_up"]}


def kernels(report):
    for case in report["cases"]:
        yield {"what": f"{case['case']}, {bytes_in_words(case['elements'] * 4)}", "value": f"{100 * case['of_copy']:.0f} %", "beside": f"goal {100 * case['goal']:.0f} %",
               "median_us": case["times"]["median_us"], "spread": case["times"]["spread"], "ratio": case["of_copy"]}


def gpu_step(report):
    for case in report["cases"]:
        ours, theirs = (statistics.median(case[key]) if case[key] else None for key in ("unisono_us", "torch_us"))
        ratios = [b / a for a, b in zip(case["unisono_us"], case["torch_us"])]
        beside = {"beside": f"PyTorch eager {words(theirs)} us: {statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} to {max(ratios):.1f})"} if theirs else {}
        yield {"what": f"a training step of digits, {case['hidden']} hidden units, {case['rows']} samples", "value": f"{words(ours)} us", "table": "gpu_calls",
               "median_us": ours} | beside


def sharding_units(report):
    for case in report["cases"]:
        name = report["names"][case["way"]]
        yield {"what": f"{name}, memory per rank", "value": f"{case['resident_bytes'] / (1 << 20):.0f} MiB"}
        yield {"what": f"{name}, an update", "value": f"{statistics.median(case['update_ms']):.0f} ms", "median_us": 1000 * statistics.median(case["update_ms"]),
               "beside": f"{min(case['update_ms']):.0f} to {max(case['update_ms']):.0f} ms"}


def name_of(benchmark):
    """The benchmark's name in the page, which is also the begin of a file's name."""
    for begin, name in (("gpu, kernels", "gpu_kernels"), ("gpu, calls", "gpu_calls"), ("update modes", "update_modes")):
        if benchmark.startswith(begin):
            return name
    return benchmark


READERS = {"gpu_step": gpu_step, "sharding_units": sharding_units, "peers": peers, "network": network, "training_step": training_step, "ways_to_train": ways_to_train, "gpu_kernels": kernels}


def rows_of(report, name):
    """Rows of a report, or why there are none."""
    if not isinstance(report, dict) or "benchmark" not in report or "cases" not in report:
        raise Wrong(f"{name}: found no \"benchmark\" with \"cases\"; expected what a benchmark writes by --json")
    if report.get("quick"):
        raise Wrong(f"{name}: found a run with --quick, which proves nothing about speed; expected a whole run")
    rows = list(READERS.get(name_of(report["benchmark"]), compared)(report))
    if not rows:
        raise Wrong(f"{name}: found cases of '{report['benchmark']}' without a time of others beside them and without a ratio; expected such, or a report of {', '.join(READERS)}")
    return rows


def add(bench, options):
    try:
        report = json.loads(Path(options.report).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise Wrong(f"{options.report}: found no JSON ({error}); expected what a benchmark writes by --json") from None
    machines, runs = read(bench / "results")
    run = {"benchmark": name_of(report.get("benchmark", "")) if isinstance(report, dict) else "", "machine": options.machine, "date": options.date}
    rows = rows_of(report, options.report)
    if options.replace and run["benchmark"] in PEERS_TABLES:
        raise Wrong("--replace: found a report beside other libraries; expected another, since the README's claim is made of all such runs")
    if options.setup:
        run["setup"] = options.setup
    run["commit"] = options.commit or head()
    for key in ("round_trip_ns", "processor", "compiler", "load"):
        if key in report.get("machine", {}):
            run[key] = report["machine"][key].strip() if isinstance(report["machine"][key], str) else report["machine"][key]
    for row in rows:
        regimes = row.pop("regimes", set())
        if len(regimes) == 1 and (apart := f"{options.machine} {min(regimes)}") in machines:
            row["machine"] = apart
    run["rows"] = rows
    stem = f"{run['benchmark']}-{options.machine.replace(' ', '_')}-{options.date}"
    name = next(name for n in range(1, 1000) if (name := f"{stem}{f'-{n}' if n > 1 else ''}.json") not in runs)
    checked(run, name, list(machines))
    left_of = {}
    if options.replace:
        subject = lambda one, row: (row.get("table", one["benchmark"]), row["what"], machine_of(one, row))
        new = {subject(run, row) for row in rows}
        for older, one in runs.items():
            left = [row for row in one["rows"] if subject(one, row) not in new]
            if len(left) < len(one["rows"]):
                print(f"{older}: {len(one['rows']) - len(left)} rows replaced")
                left_of[older] = one | {"rows": left}
    runs = {older: left_of.get(older, one) for older, one in runs.items()} | {name: run}
    runs = {older: one for older, one in runs.items() if one["rows"]}
    page((bench / "RESULTS.md").read_text(), machines, runs)  # refuses before anything is written
    for older, one in left_of.items():
        path = bench / "results" / older
        path.write_text(written(one)) if one["rows"] else path.unlink()
    (bench / "results" / name).write_text(written(run))
    print(f"bench/results/{name}: {len(rows)} figures")
    make(bench, False)


def head():
    try:
        found = subprocess.run(["git", "-C", BENCH, "describe", "--always", "--abbrev=12", "--dirty", "--exclude", "*"], capture_output=True, text=True)
    except OSError:  # no git
        return "unknown"
    return found.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--bench", type=Path, default=BENCH, help=argparse.SUPPRESS)  # for the test
    actions = parser.add_subparsers(dest="action")
    adding = actions.add_parser("add", help="make a run of a benchmark's report")
    adding.add_argument("report", help="what a benchmark wrote by --json")
    adding.add_argument("--machine", required=True, help="its name in bench/results/machines.json")
    adding.add_argument("--setup", help="what else was so, for example 'load 7'")
    adding.add_argument("--date", default=datetime.date.today().isoformat())
    adding.add_argument("--commit", help="default: that of the working tree")
    adding.add_argument("--replace", action="store_true", help="take the same figures of the same machine out of older runs")
    options = parser.parse_args()
    try:
        add(options.bench, options) if options.action == "add" else make(options.bench, options.check)
    except Wrong as wrong:
        sys.exit(str(wrong))


if __name__ == "__main__":
    main()
