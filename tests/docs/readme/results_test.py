#!/usr/bin/env python3
"""bench/results.py: the page follows from the runs, and wrong runs and reports are refused. results_test.py ROOT"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()


def run(bench, *words):
    done = subprocess.run([sys.executable, root / "bench/results.py", "--bench", bench, *map(str, words)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def refused(bench, expected, *words):
    status, text = run(bench, *words)
    assert status != 0 and expected in text, f"{words}: found status {status} and '{text}'; expected a refusal with '{expected}'"


def accepted(bench, *words):
    status, text = run(bench, *words)
    assert status == 0, f"{words}: {text}"
    return text


def series(name, us):
    return {"name": name, "median_us": us, "best_quarter_us": us, "spread": 0.02, "repetitions": 9}


def report(**other):
    case = {"group": "us, 1 rank", "case": "8", "ours": series("Trainer", 0.5), "others": [series("by hand", 0.44)], "against": "by hand",
            "ratio": 1.136, "paired_ratio": 1.13, "more_us": 0.06, "goal": {"at_most": 1.0, "unit": "us"}}
    return {"benchmark": "update", "quick": False, "machine": {"cores": 2, "round_trip_ns": 110.5, "load": 0.2, "compiler": "g++ 12 "}, "cases": [case]} | other


def contest(benchmark):
    """A report of bench/peers or bench/network, of one size."""
    fastest = {"peer": "deepspeed", "ratio": 0.43, "paired_ratio": 0.42}
    case = {"collective": "all_reduce", "ranks": 2, "bytes": 8, "round_trip_ns": 501.5, "contenders": {"unisono": series("", 0.085)}, "fastest": fastest}
    mean = {"geometric_mean": 13.5, "least": 1.15, "least_bytes": 128, "least_to": "deepspeed"}
    summary = {"peers": {"collective": "all_reduce", "ranks": 2, "fastest": mean},
               "network": {"where": "loopback", "collective": "all_reduce", "ranks": 2, "ours": "tcp", "all": mean, "least_of_raw_socket": 1.49}}
    return report(benchmark=benchmark, summary=[summary[benchmark]], cases=[case])


with tempfile.TemporaryDirectory() as folder:
    bench = pathlib.Path(folder, "bench")
    shutil.copytree(root / "bench/results", bench / "results")
    shutil.copy(root / "bench/RESULTS.md", bench)
    shutil.copy(root / "README.md", folder)
    page = bench / "RESULTS.md"
    accepted(bench, "--check")
    before = page.read_text()

    # A figure of another value, and a row that no run has.
    page.write_text(before.replace("1.19 to 1.48 x", "1.19 to 1.47 x"))
    refused(bench, "other tables", "--check")
    page.write_text(before.replace("| all_reduce, 2 threads, 1 MiB |", "| nothing | A | 2026-11-28 | 1 x | |\n| all_reduce, 2 threads, 1 MiB |", 1))
    refused(bench, "other tables", "--check")
    accepted(bench)
    assert page.read_text() == before, "the page is not what it was after it is made anew"

    given = bench / "report.json"

    def add(content, *words, machine="A near"):
        given.write_text(json.dumps(content))
        return "add", given, "--machine", machine, "--date", "2026-12-24", "--commit", "abc", *words

    accepted(bench, *add(report(), "--replace"))
    made = json.loads((bench / "results/update-A_near-2026-12-24.json").read_text())
    assert (made["commit"], made["round_trip_ns"], made["rows"][0]["median_us"], made["rows"][0]["spread"]) == ("abc", 110.5, 0.5, 0.02), made
    line = "| an update of 8 parameters, one rank | A near | 2026-12-24 | +0.06 us | by hand 0.44 us |\n"
    assert page.read_text().count(line) == 1, "the page has not the row that was added"
    assert "| an update of 8 parameters, one rank | A near | 2026-11-28 |" not in page.read_text(), "--replace left the older figure"
    assert "| an update of 8 parameters, one rank | A far | 2026-11-21 |" in page.read_text(), "--replace took another machine's figure"
    accepted(bench, "--check")
    for benchmark, expected in (("peers", "| all_reduce, 2 processes, mean | A near | 2026-12-24 | 13.5 | least 1.15 (128 B), most 0.43 |"),
                                ("network", "| all_reduce, `Tcp`, loopback | A near | 2026-12-24 | 13.5 | least 1.15 (128 B); raw 1.49 |")):
        accepted(bench, *add(contest(benchmark)))
        assert expected in page.read_text(), f"{benchmark}: expected the row {expected}"

    # The README's claim and the table by size follow from all runs; a round trip is a regime.
    readme = pathlib.Path(folder, "README.md")
    accepted(bench, *add(contest("peers"), machine="A"))
    accepted(bench, "--check")
    far = re.search(r"^\| 8 B \|[^|]*\| ([\d.]+) to ", page.read_text(), re.M)
    assert far and far[1] == "0.43", "the table by size has not the size that was added, of the far regime"
    claimed = re.search(r"<!-- claim: all_reduce, 2 processes -->(.*?)<!-- end -->", readme.read_text())[1]
    assert " to 13 times as fast" in claimed and "at single sizes it is 0.43 to 12 times" in claimed, claimed
    made = readme.read_text()
    readme.write_text(made.replace("to 13 times", "to 14 times"))
    refused(bench, "README.md: found other claims", "--check")
    readme.write_text(made.replace("claim: all_reduce, 2 processes", "claim: all_reduce, 3 processes"))
    refused(bench, "expected at least 3 runs", "--check")
    readme.write_text(made)

    times = {"hidden": 64, "rows": 32, "ranks": 1, "unisono_us": [146, 147, 145], "torch_us": [1377, 1380, 1370]}
    accepted(bench, *add({"benchmark": "gpu_step", "cases": [times]}, machine="G"))
    assert "| a training step of digits, 64 hidden units, 32 samples | G | 2026-12-24 | 146 us | PyTorch eager 1,380 us: 9.4 times" in page.read_text()
    kernel = {"case": "cast to bfloat16", "elements": 16 << 20, "of_copy": 0.954, "goal": 0.9, "times": series("", 50), "copy": series("", 48)}
    accepted(bench, *add(report(benchmark="gpu, kernels on a GPU", cases=[kernel]), "--replace", machine="G"))
    assert "| cast to bfloat16, 64 MiB | G | 2026-12-24 | 95 % | goal 90 % |" in page.read_text()

    refused(bench, "--quick", *add(report(quick=True)))
    refused(bench, "all such runs", *add(contest("peers"), "--replace"))
    refused(bench, "'Z'", *add(report(), machine="Z"))
    refused(bench, "without a time of others", *add(report(cases=[{"case": "8"}])))
    refused(bench, "no \"benchmark\"", *add([1, 2]))
    refused(bench, "no table of new", *add(report(benchmark="new")))
    assert not (bench / "results/new-A_near-2026-12-24.json").exists()
    twice = report()
    refused(bench, "2 times", *add(twice | {"cases": twice["cases"] * 2}))
    for wrong, expected in (({"machine": "A"}, "no \"date\""), ({"machine": "A", "date": "24 December"}, "24 December"),
                            ({"machine": "A", "date": "2026-12-24", "color": "red"}, "color"),
                            ({"machine": "A", "date": "2026-12-24", "rows": [{"what": "a | b", "value": "1"}]}, "a | b"),
                            ({"machine": "A", "date": "2026-12-24", "rows": [{"what": "a", "value": "1", "machine": "Z"}]}, "'Z' in a row"),
                            ({"machine": "A", "date": "2026-12-24", "rows": [{"what": "a"}]}, "without \"value\"")):
        (bench / "results/wrong.json").write_text(json.dumps({"benchmark": "update", "rows": []} | wrong))
        refused(bench, expected, "--check")
    (bench / "results/wrong.json").write_text("{")
    refused(bench, "wrong.json: found no JSON", "--check")
print("the page follows from the runs; wrong ones are refused")
