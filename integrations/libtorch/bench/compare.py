"""A step of a network in C++ by LibTorch and Unisono, and in Python by DistributedDataParallel over Gloo, in turns in one run.

    UNISONO_TEST_TORCH=$(which python) bash integrations/libtorch/bench/run.sh build/libtorch build/dev/unisono-run

Where unisono_torch is installed, DistributedDataParallel over it is measured, too.
"""

import argparse
import datetime
import os
import socket
import statistics
import subprocess
import sys
import time

WARM = 20


def python_rank(backend, width, steps):
    import torch
    import torch.distributed as dist

    if backend == "unisono":
        import unisono_torch  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 256), torch.randint(0, 10, (16,))
    times = []
    for step in range(-WARM, steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step >= 0:
            times.append(time.perf_counter() - start)
    longest = torch.tensor(statistics.median(times), dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(f"{longest.item():.9f}", flush=True)
    dist.barrier()
    # Without this, Gloo's threads sometimes end the process with "terminate called".
    os._exit(0)


def in_python(backend, ranks, width, steps):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        words = [sys.executable, __file__, "--rank", backend, str(width), str(steps)]
        processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        answers = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), f"{backend}: {answers}"
    return float(answers[0].split()[-1])


def in_cpp(program, launcher, ranks, width, steps):
    words = [launcher, "-n", str(ranks), "--no-label", program, str(width), str(steps)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("launcher")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    chosen = parser.parse_args()
    import torch

    ways = {"LibTorch with Unisono": lambda *what: in_cpp(chosen.program, chosen.launcher, *what),
            "Python's DDP over Gloo": lambda *what: in_python("gloo", *what)}
    try:
        import unisono_torch  # noqa: F401

        ways["Python's DDP over Unisono"] = lambda *what: in_python("unisono", *what)
    except ImportError:
        pass
    print(f"PyTorch {torch.__version__}, {chosen.ranks} processes, medians of {chosen.rounds} turns of {chosen.steps} steps")
    for width in (384, 1920):
        times = {name: [] for name in ways}
        for _ in range(chosen.rounds):
            for name, way in ways.items():
                times[name].append(way(chosen.ranks, width, chosen.steps))
        count = 257 * width + (width + 1) * width + 10 * (width + 1)
        ours = times["LibTorch with Unisono"]
        for name, each in times.items():
            ratio = statistics.median(theirs / mine for theirs, mine in zip(each, ours))
            print(f"{count} parameters, {name:>26}: {statistics.median(each) * 1e3:.3f} ms a step, {ratio:.2f} times as long as in C++")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--rank":
        python_rank(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
