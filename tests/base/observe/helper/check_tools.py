"""tools/plot_metrics.py draws curves and scaling from files as un::JsonLinesFile writes them, tools/log_to_mlflow.py gives all of it to
MLflow; both say what is wrong with a bad file. check_tools.py ROOT plots|mlflow; status 77 without matplotlib, or MLflow's client."""
import json, os, pathlib, subprocess, sys, tempfile

TOOLS = pathlib.Path(sys.argv[1], "tools")


def run(tool, *arguments, expected=0, **more):
    ran = subprocess.run([sys.executable, TOOLS / tool, *map(str, arguments)], capture_output=True, text=True, timeout=100, **more)
    assert ran.returncode == expected, (tool, arguments, ran.returncode, ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


def write(path, rate):
    with path.open("w") as file:
        for step in range(1, 51):
            loss = None if step == 7 else 1 / step
            file.write(json.dumps({"step": step, "seconds": 100 + 0.1 * step, "loss": loss, "samples_per_second": rate}) + "\n")


def plots(folder):
    one, two = folder / "one.jsonl", folder / "two.jsonl"
    picture = folder / "picture.png"
    run("plot_metrics.py", one, two, "--smooth", 5, "--output", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    said = run("plot_metrics.py", "--scaling", f"1={one}", f"2={two}", "--output", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert said.splitlines()[2].split() == ["2", "1800", "1.80", "90", "%"], said
    assert "expected RANKS=FILE" in run("plot_metrics.py", "--scaling", one, "--output", picture, expected=2)
    assert "are given twice" in run("plot_metrics.py", "--scaling", f"1={one}", f"1={two}", "--output", picture, expected=2)
    assert "has no 'lost'" in run("plot_metrics.py", one, "--name", "lost", "--output", picture, expected=1)


def mlflow(folder):
    import mlflow

    store = f"file://{folder}/runs"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"}
    assert "50 lines" in run("log_to_mlflow.py", folder / "one.jsonl", "--parameter", "ranks=1", env=environment)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = mlflow.MlflowClient(store)
    (kept,) = client.search_runs([client.get_experiment_by_name("unisono").experiment_id])
    assert kept.data.params == {"ranks": "1"}
    losses = client.get_metric_history(kept.info.run_id, "loss")
    assert sorted((one.step, one.value) for one in losses) == [(step, 1 / step) for step in range(1, 51) if step != 7]
    (folder / "bad.jsonl").write_text('{"step":1,"seconds":2,"loss":3}\n{"step":2,"seconds":\n')
    assert "bad.jsonl, line 2" in run("log_to_mlflow.py", folder / "bad.jsonl", env=environment, expected=1)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write(folder / "one.jsonl", 1000)
    write(folder / "two.jsonl", 1800)
    module, part = {"plots": ("matplotlib", plots), "mlflow": ("mlflow", mlflow)}[sys.argv[2]]
    try:
        __import__(module)
    except ImportError:
        print(f"skipped: {module} is not installed")
        sys.exit(77)
    part(folder)
