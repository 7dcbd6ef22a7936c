"""Training time and trees: XGBoost over Unisono, and over its own network, in turns in one run.

    PYTHONPATH=SOURCE/python-package python integrations/xgboost/bench/compare.py --workers 2
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time


def body(way, rank, size, tracker, rows, trees, exact):
    import numpy
    import xgboost as xgb

    random = numpy.random.default_rng(0)
    x = random.normal(size=(rows, 28)).astype(numpy.float32)
    if exact:
        x = numpy.clip(x * 20 + 100, 0, 200).astype(numpy.int32).astype(numpy.float32)  # cuts do not depend on the workers
    score = x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) + x[:, 3] + 0.5 * x[:, 4] ** 2
    y = (score + random.normal(size=rows) > numpy.median(score)).astype(numpy.float32)
    mine = slice(rows * rank // size, rows * (rank + 1) // size)
    arguments = {"dmlc_communicator": "rabit" if way == "its own" else "unisono", "dmlc_task_id": str(rank), "dmlc_timeout": 300}
    arguments.update(dmlc_tracker_uri=tracker[0], dmlc_tracker_port=tracker[1])
    if way != "its own":
        arguments["unisono_transport"] = way
    with xgb.collective.CommunicatorContext(**arguments):
        parameters = {"tree_method": "hist", "objective": "binary:logistic", "base_score": 0.5, "max_depth": 6, "nthread": 1}
        data = xgb.DMatrix(x[mine], y[mine])
        model = xgb.train(parameters, data, 1)  # makes the histogram's index, and all workers have arrived
        start = time.perf_counter()
        model = xgb.train(parameters, data, trees, xgb_model=model)
        spent = time.perf_counter() - start
        answer = [spent, hashlib.sha256(model.save_raw("json")).hexdigest()[:16]]
    print(json.dumps(answer), flush=True)


def once(way, size, rows, trees, exact):
    """The time of the slowest worker, and the hash of the model."""
    from xgboost.tracker import RabitTracker

    meeting = RabitTracker(host_ip="127.0.0.1", n_workers=size, sortby="task")
    meeting.start()
    address = meeting.worker_args()
    tracker = [address["dmlc_tracker_uri"], address["dmlc_tracker_port"]]
    threading.Thread(target=meeting.wait_for, daemon=True).start()
    environment = dict(os.environ, UNISONO_XGBOOST_EXACT=str(int(exact)))
    processes = [
        subprocess.Popen([sys.executable, __file__, "--worker", json.dumps([way, rank, size, tracker, rows, trees, exact])],
                         env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    answers = []
    try:
        for process in processes:
            text, _ = process.communicate(timeout=500)
            assert process.returncode == 0, f"a worker over {way} ended with {process.returncode}: {text}"
            answers.append(json.loads(text.strip().splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()  # those that others left behind; nothing if all have ended
    models = {model for _, model in answers}
    assert len(models) == 1, f"{way}: the workers have different models: {answers}"
    return max(spent for spent, _ in answers), models.pop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exact", action="store_true", help="exact sums over Unisono, once, with 1, 2 and 4 workers")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        body(*json.loads(chosen.worker))
        sys.exit()
    if chosen.exact:
        for size in (1, 2, 4):
            print(f"{size} workers, exact sums: model {once('auto', size, chosen.rows, chosen.trees, True)[1]}", flush=True)
        sys.exit()
    ways = ["its own", "shared_memory", "tcp"]
    times, models = {way: [] for way in ways}, {way: set() for way in ways}
    for _ in range(chosen.rounds):
        for way in ways:
            spent, model = once(way, chosen.workers, chosen.rows, chosen.trees, False)
            times[way].append(spent)
            models[way].add(model)
    print(f"{chosen.workers} workers, {chosen.rows} rows of 28 features, {chosen.trees} trees of depth 6, {chosen.rounds} turns")
    for way in ways:
        ratios = [mine / theirs for mine, theirs in zip(times[way], times["its own"])]
        print(f"{way:>14}: {statistics.median(times[way]):.2f} s ({min(times[way]):.2f} to {max(times[way]):.2f}), "
              f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}), models {sorted(models[way])}")
