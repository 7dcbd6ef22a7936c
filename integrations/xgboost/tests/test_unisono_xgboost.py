"""XGBoost over Unisono: started by torchrun's variables and by XGBoost's tracker; the same trees as over its own network; a dead worker.

    PYTHONPATH=SOURCE/python-package python test_unisono_xgboost.py
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from xgboost.libpath import find_lib_path
from xgboost.tracker import RabitTracker

here = Path(__file__).resolve().parent


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def train(workers, communicator="unisono", tracker=False, exact=False, transport="auto", **options):
    """(status, found) of each worker."""
    options.update(communicator=communicator, transport=transport)
    if tracker:
        meeting = RabitTracker(host_ip="127.0.0.1", n_workers=workers, sortby="task")
        meeting.start()
        address = meeting.worker_args()
        options["tracker"] = [address["dmlc_tracker_uri"], address["dmlc_tracker_port"]]
        threading.Thread(target=meeting.wait_for, daemon=True).start()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNISONO_")}
    environment.update(WORLD_SIZE=str(workers), LOCAL_WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
                       UNISONO_XGBOOST_EXACT="1" if exact else "0")
    processes = [
        subprocess.Popen([sys.executable, str(here / "rank.py"), json.dumps(options)], text=True,
                         env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(workers)
    ]
    found = [None] * workers
    try:
        for rank, process in enumerate(processes):
            if rank == options.get("joins_no_world"):
                continue
            out, err = process.communicate(timeout=200)
            lines = [line for line in out.splitlines() if line.startswith("{")]
            found[rank] = (process.returncode, json.loads(lines[-1]) if lines else {"said": out + err})
    finally:
        for process in processes:
            process.kill()
    return found


class XGBoostOverUnisono(unittest.TestCase):
    def model_of(self, found, workers):
        models = set()
        for status, said in found:
            self.assertEqual(status, 0, said)
            self.assertEqual((said["world"], said["trees"]), (workers, 5))
            self.assertEqual(said["gathered"], [workers * (workers + 1) // 2])
            models.add(said["model"])
        self.assertEqual(len(models), 1)
        return models.pop()

    def test_trees_are_those_of_its_own_network(self):
        own = self.model_of(train(2, "rabit", tracker=True), 2)
        for transport in ("auto", "hosts", "tcp"):
            self.assertEqual(self.model_of(train(2, transport=transport), 2), own, transport)
        self.assertEqual(self.model_of(train(2, tracker=True), 2), own)

    def test_exact_sums_give_one_model_on_any_number_of_workers(self):
        models = {workers: self.model_of(train(workers, exact=True), workers) for workers in (1, 2, 3, 4)}
        self.assertEqual(len(set(models.values())), 1, models)
        self.assertEqual(self.model_of(train(4, exact=True, transport="tcp"), 4), models[1])

    def test_rounding_matters(self):
        models = {self.model_of(train(workers, rows=60000), workers) for workers in (1, 4)}
        self.assertEqual(len(models), 2, "without exact sums, 1 and 4 workers have other trees")

    def test_a_dead_worker_is_named(self):
        for tracker in (False, True):
            found = train(3, tracker=tracker, dies=1, rounds=20)
            self.assertEqual(found[1][0], -9)
            for rank in (0, 2):
                self.assertEqual(found[rank][0], 1, found[rank])
                self.assertIn("rank 1", found[rank][1]["error"])
                self.assertIn("peer_lost", found[rank][1]["error"])

    def test_a_value_that_is_not_finite_is_an_error_of_all(self):
        for status, said in train(3, exact=True, overflows=1):
            self.assertEqual(status, 1, said)
            self.assertIn("orker 1 has a gradient that is not finite", said["error"])

    def test_rank_0_that_does_not_come_is_a_timeout(self):
        start = time.monotonic()
        status, said = train(2, tracker=True, joins_no_world=0, timeout=8)[1]
        self.assertEqual(status, 1, said)
        self.assertIn("the store has no value of the key 'unisono', which rank 0 sets", said["error"])
        self.assertLess(time.monotonic() - start, 50)

    def test_the_library_exports_no_name_of_unisono(self):
        names = subprocess.run(["nm", "-D", "--defined-only", find_lib_path()[0]], capture_output=True, text=True, check=True).stdout
        names = [line.split()[-1] for line in names.splitlines()]
        self.assertEqual([name for name in names if name.startswith("unisono_") or "7unisono" in name], [])

    def test_a_word_that_is_no_transport(self):
        for status, said in train(2, transport="pigeon"):
            self.assertEqual(status, 1)
            self.assertIn("no transport is called 'pigeon'", said["error"])


if __name__ == "__main__":
    unittest.main()
