"""PyTorch's part of the comparison of training steps: the same network, batches, first weights and optimizer; DistributedDataParallel over NCCL
where there are several GPUs.

    torch_step.py HIDDEN ROWS STEPS WEIGHTS [--device cpu]

Prints what step.cu prints. On the CPU it is one rank: for trying the script.
"""

import argparse
import json
import os
import tempfile
import time

import torch

PIXELS, KINDS, CYCLE, TRIAL = 64, 10, 8, 50


def batch_of(rank, number, rows):
    sample = (rank * CYCLE + number) * rows + torch.arange(rows)
    values = ((sample[:, None] * PIXELS + torch.arange(PIXELS)) * 37 % 17).float() / 16
    return values, sample * 7 % KINDS


def network_of(hidden, path):
    """Weights as they are written: for each layer those of its inputs, a row an input, then its biases."""
    numbers = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.float32)
    layers, at = [], 0
    for inputs, outputs in ((PIXELS, hidden), (hidden, hidden), (hidden, KINDS)):
        layer = torch.nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(numbers[at : at + inputs * outputs].view(inputs, outputs).t())
            at += inputs * outputs
            layer.bias.copy_(numbers[at : at + outputs])
            at += outputs
        layers += [layer, torch.nn.ReLU()]
    assert at == len(numbers), f"{path} has {len(numbers)} numbers; expected {at}"
    return torch.nn.Sequential(*layers[:-1])


def measure(rank, ranks, given, place):
    on_gpu = given.device == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    model = network_of(given.hidden, given.weights).to(device)
    if ranks > 1:
        torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl", init_method=f"file://{place}/store", rank=rank, world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    batches = [batch_of(rank, b, given.rows) for b in range(CYCLE)]
    if on_gpu:
        batches = [(values.pin_memory(), labels.pin_memory()) for values, labels in batches]

    def step(i):
        values, labels = (one.to(device, non_blocking=True) for one in batches[i % CYCLE])
        optimizer.zero_grad()
        loss = loss_of(model(values), labels)
        loss.backward()
        optimizer.step()
        return loss.item()  # Unisono's step returns it as well

    loss = [step(i) for i in range(TRIAL)][-1]
    if ranks > 1:
        whole = torch.tensor([loss], device=device)
        torch.distributed.all_reduce(whole)
        loss = whole.item() / ranks
        torch.distributed.barrier()
    begin = time.perf_counter()
    for i in range(given.steps):
        step(i)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({"ranks": ranks, "us": seconds * 1e6 / given.steps, "loss": loss}), flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    for name in ("hidden", "rows", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("weights")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    given = parser.parse_args()
    ranks = torch.cuda.device_count() if given.device == "cuda" else 1
    if ranks == 0:
        raise SystemExit("torch_step.py: PyTorch finds no GPU")
    with tempfile.TemporaryDirectory() as place:
        if ranks == 1:
            measure(0, 1, given, place)
        else:
            os.environ.setdefault("NCCL_DEBUG", "WARN")
            torch.multiprocessing.spawn(measure, args=(ranks, given, place), nprocs=ranks)


if __name__ == "__main__":
    main()
