"""What one rank does: rank.py TASK [JSON]. The last line that it prints is JSON."""

import hashlib
import json
import os
import re
import signal
import sys
import time

import lightgbm
import numpy

import unisono_lightgbm

ROWS, FEATURES = 3000, 8


def data_of(kind):
    random = numpy.random.default_rng(1)
    x = random.normal(size=(ROWS, FEATURES))
    x[:, 3] = numpy.round(x[:, 3])
    x[:, 5] = numpy.where(x[:, 5] > 1, x[:, 5], 0)
    score = x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) + x[:, 3] + 0.5 * random.normal(size=ROWS)
    if kind == "binary":
        return x, (score > 0).astype(float)
    return x, numpy.exp(3 * score)  # sums of such numbers round in double


def logistic(predictions, data):
    p = 1 / (1 + numpy.exp(-predictions))
    return p - data.get_label(), p * (1 - p)


def square(predictions, data):
    return predictions - data.get_label(), numpy.ones_like(predictions)


OBJECTIVES = {"binary": logistic, "regression": square}
BASE = {"num_leaves": 15, "verbose": -1, "num_threads": 1, "boost_from_average": False, "min_data_in_leaf": 1}


def share(rank, size):
    return slice(ROWS * rank // size, ROWS * (rank + 1) // size)


def trees(model):
    """The trees without the numbers of rows, which LightGBM counts on one rank and estimates from hessians on several."""
    text = model.model_to_string().split("\nparameters:")[0]
    return re.sub(r"^(leaf_count|internal_count|tree_sizes)=.*\n", "", text, flags=re.M)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def same_trees(network, rounded):
    """Hashes of models with shared bins and own objectives."""
    answers = {}
    for kind, objective in OBJECTIVES.items():
        x, y = data_of(kind)
        mine = share(network.rank, network.size)
        parameters = {**BASE, **network.parameters, "objective": network.reproducible(objective) if rounded else objective}
        bins = network.shared_bins(x[:1000] if network.rank == 0 else None, parameters)
        model = lightgbm.train(parameters, lightgbm.Dataset(x[mine], y[mine], reference=bins), 8)
        answers[kind] = [digest(trees(model)), hashlib.sha256(model.predict(x).tobytes()).hexdigest()[:16]]
    return answers


def like_sockets(rank, size, network_parameters, ours):
    """Hashes of models with LightGBM's own bins and objectives: what a network must not change."""
    answers = {}
    for name, more in {
        "binary": {"objective": "binary"},
        "regression": {"objective": "regression"},
        "quantized": {"objective": "binary", "use_quantized_grad": True, "stochastic_rounding": False},
        "many_bins": {"objective": "binary", "use_quantized_grad": True, "num_grad_quant_bins": 16, "stochastic_rounding": False},
        "voting": {"objective": "binary", "tree_learner": "voting", "top_k": 3},
        # From about 450 on, LightGBM reduces splits in place, which its own sockets do wrong. From
        # about 1,000 on, a split has more than 4 KiB.
        "many_categories": {"objective": "binary", "max_cat_threshold": 500 if ours else 400, "categorical_feature": [3]},
        "large_splits": {"objective": "binary", "max_cat_threshold": 3000 if ours else 400, "categorical_feature": [3]},
    }.items():
        x, y = data_of("regression" if name == "regression" else "binary")
        if name in ("many_categories", "large_splits"):
            x[:, 3] = numpy.abs(numpy.round(100 * x[:, 0]))
        mine = share(rank, size)
        parameters = {**BASE, "min_data_in_leaf": 20, **network_parameters, **more}
        model = lightgbm.train(parameters, lightgbm.Dataset(x[mine], y[mine]), 5)
        answers[name] = digest(trees(model))
    return answers


def train_until_killed(network):
    x, y = data_of("binary")
    mine = share(network.rank, network.size)
    parameters = {**BASE, **network.parameters, "objective": "binary", "num_leaves": 31, "min_data_in_leaf": 20}
    data = lightgbm.Dataset(x[mine], y[mine])
    for i in range(1_000_000):
        if i % 50 == 0:
            model = lightgbm.Booster(parameters, data)
        model.update()
        if i == 0:
            print("training", flush=True)


def refuses(network):
    """An objective that is not finite on the last rank, and then one that is."""
    x, y = data_of("binary")
    mine = share(network.rank, network.size)
    bins = network.shared_bins(x[:1000] if network.rank == 0 else None)

    def bad(predictions, data):
        gradients, hessians = logistic(predictions, data)
        if network.rank == network.size - 1:
            gradients[3] = numpy.inf
        return gradients, hessians

    def train(objective):
        parameters = {**BASE, **network.parameters, "objective": network.reproducible(objective)}
        return lightgbm.train(parameters, lightgbm.Dataset(x[mine], y[mine], reference=bins), 1)

    try:
        train(bad)
        return {"error": None}
    except unisono_lightgbm.Error as error:
        return {"error": str(error), "trees": train(logistic).num_trees(), "sum": network.sum([network.rank, 1]).tolist()}


def fails(network):
    if network.rank == 1:
        raise RuntimeError("the disk is full")
    train_until_killed(network)


def run(task, arguments):
    if task == "sockets":
        rank, ports = arguments["rank"], arguments["ports"]
        machines = ",".join(f"127.0.0.1:{port}" for port in ports)
        # Once, as for Unisono. A training with the parameter `machines` connects again.
        library = lightgbm.basic._LIB
        assert library.LGBM_NetworkInit(machines.encode(), ports[rank], 1, len(ports)) == 0, library.LGBM_GetLastError()
        parameters = {"num_machines": len(ports), "tree_learner": "data", "pre_partition": True}
        return like_sockets(rank, len(ports), parameters, ours=False)
    with unisono_lightgbm.Network(arguments.get("transport", "auto"), timeout=60) as network:
        if task == "same_trees":
            return same_trees(network, arguments["rounded"])
        if task == "unisono":
            return like_sockets(network.rank, network.size, network.parameters, ours=True)
        return globals()[task](network)


if __name__ == "__main__":
    signal.alarm(300)  # no rank outlives its test
    try:
        print(json.dumps(run(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})), flush=True)
    except Exception as error:
        print(json.dumps({"raised": type(error).__name__, "text": str(error), "at": time.time()}), flush=True)
        os._exit(3)  # as a program that ends with an error; it need not say goodbye
