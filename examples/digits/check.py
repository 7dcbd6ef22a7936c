"""Checks what the digits example reaches: check.py PROGRAM DATA UNISONO_RUN CASE."""
import json, pathlib, re, subprocess, sys, tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import launched

program, data, unisono_run, case = sys.argv[1:5]


def run(*arguments, status=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=500)
    assert done.returncode == status, f"{arguments}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done


def judged(*arguments):
    found = re.match(r"test accuracy ([\d.]+), loss ([\d.]+), on 357 images\n", run("--quiet", *arguments).stdout)
    accuracy, loss = map(float, found.groups())
    assert accuracy >= 0.95, f"{arguments}: accuracy {accuracy}, expected at least 0.95"
    return accuracy, loss


def ranks():
    first = judged("--ranks", 1)
    for count in (2, 4):
        other = judged("--ranks", count)
        # Each update uses the same samples. Only the order in which gradients are added differs.
        assert abs(first[0] - other[0]) < 0.015 and abs(first[1] - other[1]) < 0.02, f"1 rank: {first}, {count}: {other}"
    told = run("--ranks", 2, "--epochs", 1)
    for part in ("2, this is rank 0", "16 samples = 32 samples", "epoch 1/1: 1,440 samples"):
        assert part in told.stderr, told.stderr
    assert "trained on 1,440 samples" in told.stdout and "the first image not recognised" in told.stdout


def observed():
    """What is written of a training, and a drawing of it where there is matplotlib (tests/run.sh --all installs it)."""
    root = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        metrics, trace, plot = (pathlib.Path(folder, name) for name in ("run.jsonl", "trace.json", "loss.png"))
        told = run("--ranks", 2, "--epochs", 2, "--quiet", "--metrics", metrics, "--trace", trace)
        assert re.search(r"^rank +seconds +compute", told.stderr, re.M) and re.search(r"^1 +0\.", told.stderr, re.M), told.stderr
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, 91)) and lines[-1]["loss"] < lines[0]["loss"], lines
        events = json.loads(trace.read_text())["traceEvents"]
        for rank in (0, 1):
            updates = [one["args"]["update"] for one in events if one["pid"] == rank and one["name"] == "apply"]
            assert updates == list(range(90)), updates
        python = root / "build/python/bin/python3"
        tool = [python if python.exists() else sys.executable, root / "tools/plot_metrics.py"]
        if subprocess.run([tool[0], "-c", "import matplotlib"], capture_output=True).returncode != 0:
            return print("no plot: there is no matplotlib")
        subprocess.run([*tool, metrics, "--smooth", "5", "--log", "--output", plot], check=True, timeout=120)
        assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 5000
        wrong = subprocess.run([*tool, metrics, "--name", "luck", "--output", plot], capture_output=True, text=True, timeout=120)
        assert wrong.returncode == 1 and "has no 'luck'; it has learning_rate, loss" in wrong.stderr, wrong


def optimizers():
    for name in ("adam", "adamw"):
        judged("--optimizer", name, "--ranks", 2)
        judged("--optimizer", name, "--hidden", 32, "--batch-size", 48, "--ranks", 3)


def processes():
    """Processes give the same bits as the same number of threads, with any launcher."""
    for count in (2, 3):
        asked = ["--quiet", "--bits", "--epochs", 3, "--batch-size", 24]
        expected = without_time(run(*asked, "--ranks", count).stdout)
        assert re.search("^bits [0-9a-f]{16}$", expected, re.M), expected
        assert without_time(run(*asked, "--ranks", count, "--transport", "shared_memory").stdout) == expected
        for launcher, out, err in launched.all(unisono_run, count, [program, *map(str, asked)]):
            assert without_time(out) == expected, f"{launcher}:\n{out}\nexpected:\n{expected}{err}"
    out, err, status = launched.by_unisono_run(unisono_run, 2, [program, "--ranks", "3", "--batch-size", "24"])
    assert status == 2 and out == "" and "--ranks 3, but unisono-run has started 2 ranks" in err, err
    assert launched.by_unisono_run(unisono_run, 2, [program, "--ranks", "2", "--quiet", "--epochs", "1"])[2] == 0


def without_time(text):
    return re.sub(r"in [\d.]+ s, [\d,]+ samples/s, ", "", text)


def bad_input():
    def refused(part, *arguments):
        done = run("--quiet", *arguments, status=2)
        assert done.stdout == "" and done.stderr.count("\n") == 1 and part in done.stderr, done

    refused("--ranks", "--ranks", 0)
    refused("--epochs", "--epochs", "nan")
    refused("--hidden", "--hidden", 10**18)
    refused("nobody", "--optimizer", "nobody")
    refused("multiple of 3", "--ranks", 3)
    refused("batch_size", "--batch-size", 5000)
    refused("no-such-file", "--data", "no-such-file")
    lines = pathlib.Path(data).read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        spoilt = pathlib.Path(folder) / "spoilt.csv"
        for number, (line, part) in enumerate([("1,2,3", "64 pixels"), ("17" + lines[1][1:], "found 17"), ("", "64 pixels"),
                                               (lines[1] + ",0", "64 pixels"), ("nan" + lines[1][1:], "64 pixels")]):
            spoilt.write_text("\n".join([lines[0], line, *lines[2:]]))
            refused(part, "--data", spoilt)
            refused("spoilt.csv:2:", "--data", spoilt)
        spoilt.write_text("\n".join(lines[:100]))
        refused("found 100 images", "--data", spoilt)
    assert "--optimizer" in run("--help").stdout


{"ranks": ranks, "observed": observed, "optimizers": optimizers, "processes": processes, "bad_input": bad_input}[case]()
