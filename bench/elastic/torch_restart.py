#!/usr/bin/env python3
"""The same death under PyTorch: torchrun starts all ranks again, and they go on from a checkpoint.

    python3 bench/elastic/torch_restart.py [--ranks 4] [--kills 5]

One of the ranks kills itself after update 15 of DistributedDataParallel over Gloo with 4.3 million parameters; the last checkpoint
is of update 10. Printed is the time from the kill until all ranks have made update 16, with torchrun looking every 0.1 s.
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

KILLED_AT, EVERY = 15, 10


def be_rank(folder):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4_300_000, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    checkpoint = os.path.join(folder, "checkpoint.pt")
    first, begin = not os.path.exists(checkpoint), 0
    if not first:
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["updates"]
    batch = torch.ones(1, 4_300_000)
    for update in range(begin + 1, KILLED_AT + 2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if update % EVERY == 0:
            if rank == 0:
                torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "updates": update},
                           checkpoint + ".new")
                os.rename(checkpoint + ".new", checkpoint)
            dist.barrier()
        if first and update == KILLED_AT and rank == 1:
            with open(os.path.join(folder, "killed"), "w") as file:
                file.write(str(time.monotonic_ns()))
            os.kill(os.getpid(), signal.SIGKILL)
        if not first and update == KILLED_AT + 1:
            with open(os.path.join(folder, f"next{rank}"), "w") as file:
                file.write(str(time.monotonic_ns()))


def launch(arguments):
    """torchrun; that of PyTorch 1.13 does not start under Python 3.11, which gives None for its option --redirects."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import Std

    if Std.from_str("0") is None:
        Std.from_str = classmethod(lambda cls, text: cls.NONE)
    run.main(arguments)


def read(folder, name):
    with open(os.path.join(folder, name)) as file:
        return int(file.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    if sys.argv[1:2] == ["--launch"]:
        return launch(sys.argv[2:])
    options = parser.parse_args()
    if options.folder:
        return be_rank(options.folder)
    took = []
    for _ in range(options.kills):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, __file__, "--launch", "--nproc_per_node", str(options.ranks), "--max_restarts",
                            "1", "--monitor_interval", "0.1", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", __file__,
                            "--folder", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=300)
            last = max(read(folder, f"next{rank}") for rank in range(options.ranks))
            took.append((last - read(folder, "killed")) / 1e6)
    print(f"torchrun, {options.ranks} ranks, 4300000 parameters: from the kill to the next update of all ranks "
          f"{statistics.median(took):.0f} ms (least {min(took):.0f}, worst {max(took):.0f}; {len(took)} kills)")


if __name__ == "__main__":
    main()
