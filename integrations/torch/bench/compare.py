"""all_reduce and a DDP step: unisono beside Gloo, in turns in one run.

    python integrations/torch/bench/compare.py --ranks 2
"""

import argparse
import datetime
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import unisono_torch


def together(group, seconds):
    """The time of the slowest rank."""
    longest = torch.tensor(seconds)
    dist.all_reduce(longest, dist.ReduceOp.MAX, group=group)
    return longest.item()


def all_reduces(groups, rounds):
    rows = []
    for power in range(3, 27):
        size = 1 << power
        if power > 10 and power % 2:
            continue
        data = {name: torch.ones(size // 4) for name in groups}
        repeats = max(3, min(200, (1 << 24) // size))
        times = {name: [] for name in groups}
        for turn in range(rounds + 1):
            for name, group in groups.items():
                dist.barrier(group=group)
                start = time.perf_counter()
                for _ in range(repeats):
                    dist.all_reduce(data[name], group=group)
                spent = together(group, (time.perf_counter() - start) / repeats)
                data[name].fill_(1.0)
                if turn:  # the first one warms up
                    times[name].append(spent)
        rows.append((size, {name: statistics.median(each) for name, each in times.items()}))
    return rows


def model_of(width):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )


def steps(groups, width, rounds):
    models = {
        name: torch.nn.parallel.DistributedDataParallel(model_of(width), process_group=group)
        for name, group in groups.items()
    }
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    x, y = torch.randn(16, 256), torch.randint(0, 10, (16,))
    times = {name: [] for name in groups}
    for turn in range(rounds + 1):
        for name, group in groups.items():
            dist.barrier(group=group)
            start = time.perf_counter()
            for _ in range(10):
                optimizers[name].zero_grad()
                torch.nn.functional.cross_entropy(models[name](x), y).backward()
                optimizers[name].step()
            spent = together(group, (time.perf_counter() - start) / 10)
            if turn:
                times[name].append(spent)
    count = sum(parameter.numel() for parameter in model_of(width).parameters())
    return count, {name: statistics.median(each) for name, each in times.items()}


def body(rank, ranks, port, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("unisono", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    groups = {"unisono": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if rank == 0:
        print(f"PyTorch {torch.__version__}, {ranks} processes, transport {unisono_torch.transport()}, medians of {rounds} turns")
        print(f"{'all_reduce':>16} {'unisono':>12} {'gloo':>12} {'gloo/unisono':>13}")
    ratios = []
    for size, times in all_reduces(groups, rounds):
        ratios.append(times["gloo"] / times["unisono"])
        if rank == 0:
            print(f"{size:>14} B {times['unisono'] * 1e6:>9.1f} us {times['gloo'] * 1e6:>9.1f} us {ratios[-1]:>13.2f}")
    if rank == 0:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    for width in (384, 1920):
        count, times = steps(groups, width, rounds)
        if rank == 0:
            print(
                f"DDP step, {count} parameters: unisono {times['unisono'] * 1e3:.2f} ms, gloo {times['gloo'] * 1e3:.2f} ms, "
                f"gloo/unisono {times['gloo'] / times['unisono']:.2f}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free = listener.getsockname()[1]
    multiprocessing.spawn(body, (chosen.ranks, free, chosen.rounds), chosen.ranks)
