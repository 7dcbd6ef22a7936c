"""PyTorch's DistributedDataParallel and FSDP (fully_shard) over Gloo: what an update of Adam takes, and how much memory a rank.

Started by compare.py as `torch_sharding.py WAY RANKS WIDTH LAYERS UPDATES`; prints one line of JSON. One thread a rank, and one
sample a rank, so that next to nothing is computed: what is left is exchange, update and memory.
"""

import json
import os
import statistics
import sys
import tempfile
import time


def of_status(field):
    """Of this process, in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def train(way, rank, ranks, width, layers, updates, place):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=ranks)
    dist.barrier()
    before = of_status("VmRSS:")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
        peak.write("5")  # resets the peak
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
    if way == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters())
    sample = torch.rand(1, width)
    took = []
    for _ in range(updates):
        dist.barrier()
        begin = time.perf_counter()
        model(sample).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        took.append(time.perf_counter() - begin)
    grown = torch.tensor([float(of_status("VmHWM:") - before)])
    dist.all_reduce(grown)
    if rank == 0:
        print(json.dumps({"resident_bytes": float(grown) / ranks, "update_ms": statistics.median(took[2:]) * 1e3,
                          "version": torch.__version__}), flush=True)
    dist.barrier()


def main():
    way, (ranks, width, layers, updates) = sys.argv[1], map(int, sys.argv[2:6])
    with tempfile.TemporaryDirectory() as place:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                train(way, rank, ranks, width, layers, updates, place)
                sys.stdout.flush()
                os._exit(0)
            children.append(child)
        return 1 if any(os.waitpid(child, 0)[1] != 0 for child in children) else 0


if __name__ == "__main__":
    sys.exit(main())
