"""One worker: rank.py OPTIONS (JSON). Prints what it found, as JSON."""

import hashlib
import json
import os
import signal
import sys
import time

import numpy as np
import xgboost as xgb

options = json.loads(sys.argv[1])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rows, features, rounds = options.get("rows", 6000), 12, options.get("rounds", 5)


def data():
    """Features with few values, so that their cuts do not depend on who has which rows."""
    numbers = np.random.default_rng(7)
    x = numbers.integers(0, 100, (rows, features)).astype(np.float32)
    y = (numbers.lognormal(0, 6, rows) * (1 + x[:, 0] * x[:, 1])).astype(np.float32)  # of many magnitudes: sums round
    mine = slice(rows * rank // world, rows * (rank + 1) // world)
    x, y, weights = x[mine], y[mine], np.ones(rows, np.float32)[mine]
    if rank == options.get("overflows"):
        y[5], weights[5] = 3e38, 1e10
    return xgb.DMatrix(x, y, weight=weights)


class Die(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        if epoch == 2 and rank == options.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        return False


arguments = {"dmlc_communicator": options["communicator"], "dmlc_task_id": str(rank), "dmlc_timeout": options.get("timeout", 60)}
if rank == options.get("joins_no_world"):  # meets the others at the tracker, and that is all
    arguments["dmlc_communicator"] = "rabit"
if "tracker" in options:
    arguments.update(dmlc_tracker_uri=options["tracker"][0], dmlc_tracker_port=options["tracker"][1])
if "transport" in options:
    arguments["unisono_transport"] = options["transport"]
found = {}
try:
    with xgb.collective.CommunicatorContext(**arguments):
        found["world"] = xgb.collective.get_world_size()
        if rank == options.get("joins_no_world"):
            time.sleep(60)
        parameters = {"tree_method": "hist", "objective": "reg:squarederror", "base_score": 0.5, "max_depth": 5, "nthread": 1}
        booster = xgb.train(parameters, data(), rounds, callbacks=[Die()])
        found["model"] = hashlib.sha256(booster.save_raw("json")).hexdigest()
        found["trees"] = len(booster.get_dump())
        found["gathered"] = xgb.collective.allreduce(np.array([rank + 1], np.int32), xgb.collective.Op.SUM).tolist()
except xgb.core.XGBoostError as failed:
    found["error"] = str(failed)
print(json.dumps(found), flush=True)
os._exit(1 if "error" in found else 0)  # nothing is left to say to the others
