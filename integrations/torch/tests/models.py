"""DDP of ResNet-18 and of a small transformer on the process group 'unisono': Gloo's losses, and one hash on 1, 2 and 4 workers.

    python integrations/torch/tests/models.py
"""

import hashlib
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from ranks import run
from torch import nn

import unisono_torch

UPDATES, REPLICAS = 3, 4


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.aside = nn.Identity()
        if stride != 1 or inner != outer:
            self.aside = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return torch.relu(self.body(x) + self.aside(x))


def resnet_18():
    """He et al. 2016, table 1, with 10 classes: 11.2 million parameters."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inner, outer, stride), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x)).mean(1))


def make(which):
    torch.manual_seed(5)
    return resnet_18() if which == "ResNet-18" else Transformer()


def micro_batches(which):
    generator = torch.Generator().manual_seed(7)
    for _ in range(UPDATES * REPLICAS):
        y = torch.randint(0, 10, (4,), generator=generator)
        if which == "ResNet-18":
            yield torch.randn(4, 3, 32, 32, generator=generator), y
        else:
            yield torch.randint(0, 50, (4, 16), generator=generator), y


def train(which, reproducible):
    """Losses of this rank, and a hash of the parameters."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(make(which))
    per_rank = REPLICAS // size
    if reproducible:
        unisono_torch.MicroBatches(model, per_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data, losses = list(micro_batches(which)), []
    for update in range(UPDATES):
        for i, (x, y) in enumerate(data[REPLICAS * update : REPLICAS * (update + 1)][rank::size]):
            last = reproducible or i + 1 == per_rank
            with nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y)
                losses.append(loss.item())
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return losses, digest.hexdigest()[:16]


def main():
    failed = False
    for which in ("transformer", "ResNet-18"):
        for size in (2, 4):
            ours = run(size, train, which, False)
            gloos = run(size, train, which, False, environment={"TEST_BACKEND": "gloo"})
            most = max(
                abs(a - b) / abs(b) for mine, theirs in zip(ours, gloos) for a, b in zip(mine[0], theirs[0])
            )
            print(f"{which}, {size} workers: losses differ from Gloo's by {most:.1e} at most, of their own size", flush=True)
            # Rounding grows from update to update, most with batch norm of few samples.
            failed |= most > 1e-3
        hashes = {size: {digest for _, digest in run(size, train, which, True)} for size in (1, 2, 4)}
        print(f"{which}: hashes on 1, 2 and 4 workers {hashes}", flush=True)
        failed |= len(set.union(*hashes.values())) != 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
