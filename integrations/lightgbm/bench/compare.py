"""Training time and quality: LightGBM over Unisono, and over its own sockets, in turns in one run.

    python integrations/lightgbm/bench/compare.py --ranks 2
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def body(way, rank, ports, rows, iterations):
    import lightgbm
    import numpy

    size = len(ports)
    random = numpy.random.default_rng(0)
    x = random.normal(size=(rows, 28)).astype(numpy.float32)
    score = x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) + x[:, 3] + 0.5 * x[:, 4] ** 2
    y = (score + random.normal(size=rows) > 0.5).astype(float)
    held = rows // 10
    train = numpy.arange(held, rows)
    mine = train[len(train) * rank // size : len(train) * (rank + 1) // size]
    if way == "sockets":
        library = lightgbm.basic._LIB
        machines = ",".join(f"127.0.0.1:{port}" for port in ports)
        assert library.LGBM_NetworkInit(machines.encode(), ports[rank], 2, size) == 0, library.LGBM_GetLastError()
        parameters = {"num_machines": size, "tree_learner": "data", "pre_partition": True}
    else:
        import unisono_lightgbm

        network = unisono_lightgbm.Network(way)
        parameters = network.parameters
    data = lightgbm.Dataset(x[mine], y[mine], params=parameters).construct()
    parameters = {**parameters, "objective": "binary", "num_leaves": 63, "num_threads": 1, "verbose": -1}
    model = lightgbm.Booster(parameters, data)
    model.update()  # the first one warms up, and all ranks have arrived
    start = time.perf_counter()
    for _ in range(iterations):
        model.update()
    spent = time.perf_counter() - start
    order = numpy.argsort(model.predict(x[:held]))
    positive = y[:held][order] > 0
    ranks = numpy.flatnonzero(positive) + 1
    pairs = positive.sum() * (~positive).sum()
    area = (ranks.sum() - positive.sum() * (positive.sum() + 1) / 2) / pairs
    if way != "sockets":
        network.leave()
    print(json.dumps([spent, area]), flush=True)


def once(way, size, rows, iterations):
    """The time of the slowest rank, and the area under the curve."""
    import os

    from launch import free_ports

    ports = free_ports(size + 1)
    processes = []
    for rank in range(size):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[-1]))
        words = [sys.executable, __file__, "--rank", json.dumps([way, rank, ports[:-1], rows, iterations])]
        processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    answers = []
    try:
        for process in processes:
            text, _ = process.communicate(timeout=500)
            assert process.returncode == 0, f"a rank of {way} ended with {process.returncode}: {text}"
            answers.append(json.loads(text.strip().splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()  # those that others left behind; nothing if all have ended
    return max(spent for spent, _ in answers), answers[0][1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank:
        body(*json.loads(chosen.rank))
        sys.exit()
    ways = ["sockets", "shared_memory", "tcp"]
    times, areas = {way: [] for way in ways}, {}
    for _ in range(chosen.rounds):
        for way in ways:
            spent, areas[way] = once(way, chosen.ranks, chosen.rows, chosen.iterations)
            times[way].append(spent)
    print(f"{chosen.ranks} ranks, {chosen.rows * 9 // 10} rows of 28 features, {chosen.iterations} trees of 63 leaves, medians of {chosen.rounds} turns")
    base = times["sockets"]
    for way in ways:
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times[way], base))
        name = "LightGBM's sockets" if way == "sockets" else f"unisono, {way}"
        print(f"{name:>24}: {statistics.median(times[way]):.2f} s, {ratio:.2f} x, area under the curve {areas[way]:.5f}")
