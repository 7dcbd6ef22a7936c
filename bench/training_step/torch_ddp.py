"""PyTorch's part of the comparison: the same network, batches and optimizer in DistributedDataParallel over Gloo.

Started by compare.py as `torch_ddp.py DIRECTORY RANKS`; see main.cpp for the lines that it answers. One thread a rank.
"""

import json
import math
import os
import signal
import socket
import sys
import time

PIXELS, KINDS, ROWS, CYCLE = 64, 10, 32, 8


def serve(place, rank, ranks):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=ranks)
    line = socket.socket(socket.AF_UNIX)
    line.connect(f"{place}/driver")
    line.sendall(f"hello {rank}\n".encode())
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.rand(ROWS, PIXELS, generator=generator), torch.randint(KINDS, (ROWS,), generator=generator))
               for _ in range(CYCLE)]
    loss_of = torch.nn.CrossEntropyLoss()
    ways = {}
    state = {"next": 0, "wrong": ""}

    def network(hidden):
        torch.manual_seed(0)
        layers = torch.nn.Linear(PIXELS, hidden), torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, KINDS)
        return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])

    def training(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

        def step():
            inputs, labels = batches[state["next"] % CYCLE]
            state["next"] += 1
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return float(loss)

        return step

    def prepare(hidden):
        model = network(hidden)
        ways.clear()
        ways["alone"] = training(network(hidden))
        ways["together"] = training(DistributedDataParallel(model))
        state["model"] = model
        for _ in range(3):
            ways["together"]()
        return {"parameters": sum(p.numel() for p in model.parameters()), "ways": ["one", "floor", "together"],
                "wrong": check()}

    def check():
        """All ranks hold the same bits."""
        mine = torch.cat([p.detach().flatten() for p in state["model"].parameters()])
        first = mine.clone()
        dist.broadcast(first, 0)
        return state["wrong"] or ("" if torch.equal(first, mine) else "the ranks' weights differ")

    def run(way, steps):
        if way == "one" and rank != 0:
            return 0.0
        step = ways["together" if way == "together" else "alone"]
        loss = step()
        if way != "one":
            dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            loss += step()
        end = time.perf_counter()
        if not math.isfinite(loss):
            state["wrong"] = f"the loss is {loss}"
        return (end - begin) / steps

    heard = b""
    while True:
        signal.alarm(0)
        while b"\n" not in heard:
            some = line.recv(512)
            if not some:
                os._exit(0)
            heard += some
        words, heard = heard.split(b"\n", 1)
        signal.alarm(240)
        verb, *rest = words.decode().split()
        if verb == "prepare":
            answer = prepare(int(rest[0]))
        elif verb == "run":
            answer = {"seconds": run(rest[0], int(rest[1]))}
        elif verb == "check":
            answer = {"wrong": check()}
        elif verb == "version":
            answer = {"version": torch.__version__}
        else:
            raise SystemExit(f"does not know '{verb}'")
        line.sendall((json.dumps(answer) + "\n").encode())


def main():
    place, ranks = sys.argv[1], int(sys.argv[2])
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            serve(place, rank, ranks)
        children.append(child)
    failed = any(os.waitpid(child, 0)[1] != 0 for child in children)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
