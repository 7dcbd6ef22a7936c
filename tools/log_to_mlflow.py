#!/usr/bin/env python3
"""Gives the metrics of a run (un::JsonLinesFile) to MLflow, when it is over or while it goes on.

log_to_mlflow.py run.jsonl [--experiment NAME] [--run NAME] [--follow] [--parameter NAME=VALUE ...]

Where MLflow keeps them is MLflow's affair (MLFLOW_TRACKING_URI; by default a folder here). Needs MLflow's client: pip install mlflow-skinny.
With --follow it waits for more lines, until it is interrupted or the file has not grown for --patience seconds.
"""
import argparse, json, pathlib, sys, time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("file", type=pathlib.Path)
arguments.add_argument("--experiment", default="unisono")
arguments.add_argument("--run", help="its name; by default the file's")
arguments.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE", help="to be kept with the run")
arguments.add_argument("--follow", action="store_true")
arguments.add_argument("--patience", type=float, default=600, metavar="SECONDS")
options = arguments.parse_args()
parameters = dict(one.partition("=")[::2] for one in options.parameter)
if any("=" not in one for one in options.parameter):
    arguments.error("--parameter: expected NAME=VALUE")
try:
    file = options.file.open()
except OSError as wrong:
    sys.exit(f"log_to_mlflow.py: {wrong}")
try:
    import mlflow
    from mlflow.entities import Metric
except ImportError:
    sys.exit("log_to_mlflow.py needs MLflow's client: pip install mlflow-skinny")


def lines():
    """Whole lines, as they come."""
    part, last = "", time.monotonic()
    while True:
        part += file.readline()
        if part.endswith("\n"):
            yield part
            part, last = "", time.monotonic()
        elif not options.follow or time.monotonic() - last > options.patience:
            if part:
                print(f"log_to_mlflow.py: {options.file}: the last line is incomplete; left out", file=sys.stderr)
            return
        else:
            time.sleep(0.5)


def metrics(line, number):
    """What one line says; what is not finite has no value, and is left out."""
    try:
        one = json.loads(line)
        at = int(time.time() * 1000) if options.follow else int(one["seconds"] * 1000)
        return [Metric(name, float(value), at, int(one["step"]))
                for name, value in one.items() if name not in ("step", "seconds") and value is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        sys.exit(f"log_to_mlflow.py: {options.file}, line {number}: {wrong}")


client = mlflow.MlflowClient()
mlflow.set_experiment(options.experiment)
with mlflow.start_run(run_name=options.run or options.file.stem) as run:
    if parameters:
        mlflow.log_params(parameters)
    waiting, steps = [], 0
    try:
        for number, line in enumerate(lines(), 1):
            waiting += metrics(line, number)
            steps += 1
            if len(waiting) > 800 or options.follow:
                client.log_batch(run.info.run_id, metrics=waiting)
                waiting = []
    except KeyboardInterrupt:
        pass
    if waiting:
        client.log_batch(run.info.run_id, metrics=waiting)
print(f"{steps} lines in run {run.info.run_id} of experiment '{options.experiment}'")
