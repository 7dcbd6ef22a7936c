"""The process group ``unisono`` for ``torch.distributed``: collectives of tensors of CPUs and GPUs by Unisono.

    import torch.distributed as dist
    import unisono_torch

    dist.init_process_group("unisono")

See README.md for what it has, its options and its errors.
"""

from __future__ import annotations

import atexit
import dataclasses
import os

import torch  # noqa: F401  (its libraries are what the extension is linked to)
import torch.distributed as dist

from . import _C

__all__ = ["MicroBatches", "Options", "device_transport", "transport"]


def _truth(name: str, otherwise: str = "0") -> bool:
    value = os.environ.get(name, otherwise).lower()
    if value in ("0", "", "false", "no", "off"):
        return False
    if value in ("1", "true", "yes", "on"):
        return True
    raise ValueError(f"unisono_torch: {name} is {value!r}; expected 0 or 1")


@dataclasses.dataclass
class Options:
    """What a process group is made with: ``init_process_group("unisono", pg_options=Options(...))``.

    reproducible: sums of floating types are exact but for one rounding, so that their bits do not depend on the order of the ranks.
        By default what the environment's UNISONO_TORCH_REPRODUCIBLE says (0 or 1), else not.
    transport: "auto" (shared memory where all ranks share a host, otherwise shared memory within hosts and sockets between them),
        "shared_memory", "hosts" or "tcp"; the same on all ranks. By default UNISONO_TORCH_TRANSPORT, else "auto".
    blocking_wait: what ``wait()`` does for tensors of a GPU. By default only the current stream waits; with True the host waits, too, so
        that an error is thrown there and not by a later call. By default UNISONO_TORCH_BLOCKING_WAIT, else not.
    nccl: whether collectives on tensors of GPUs go by NCCL where they can; the same on all ranks. By default UNISONO_TORCH_NCCL, else yes.
    """

    reproducible: bool = dataclasses.field(default_factory=lambda: _truth("UNISONO_TORCH_REPRODUCIBLE"))
    transport: str = dataclasses.field(default_factory=lambda: os.environ.get("UNISONO_TORCH_TRANSPORT", "auto"))
    blocking_wait: bool = dataclasses.field(default_factory=lambda: _truth("UNISONO_TORCH_BLOCKING_WAIT"))
    nccl: bool = dataclasses.field(default_factory=lambda: _truth("UNISONO_TORCH_NCCL", "1"))


_joined_by = None  # the process that joined the first group


def _create(options, backend_options):
    global _joined_by
    if dist.is_initialized() and _joined_by not in (None, os.getpid()):
        raise RuntimeError(
            f"unisono_torch: process {os.getpid()} is a forked child of process {_joined_by}, which is a rank; expected new groups from "
            f"process {_joined_by} only (a child that calls destroy_process_group first can join a job of its own)"
        )
    _joined_by = os.getpid()
    chosen = Options() if backend_options is None else backend_options
    if not isinstance(chosen, Options):
        raise TypeError(f"unisono_torch: pg_options is a {type(chosen).__name__}; expected unisono_torch.Options")
    ranks = list(options.global_ranks_in_group)
    hosts = [name for name in os.environ.get("UNISONO_HOSTS", "").split(",") if name]
    # One for each rank of the job. This group has some of them.
    if ranks and len(hosts) > max(ranks):
        hosts = [hosts[rank] for rank in ranks]
    return _C.create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        transport=chosen.transport,
        reproducible=chosen.reproducible,
        blocking_wait=chosen.blocking_wait,
        global_ranks=ranks,
        hosts=hosts,
        nccl=chosen.nccl,
    )


def _backend_of(group):
    group = dist.group.WORLD if group is None else group
    return group._get_backend(next(iter(group._device_types)))  # one for all of them


def transport(group=None) -> str:
    """The transport that a process group has chosen: "shared_memory", "hosts" or "tcp"."""
    return _C.transport(_backend_of(group))


def device_transport(group=None) -> str:
    """How the collectives of a process group on tensors of a GPU go: "nccl", or why not by NCCL. It is decided by the first one."""
    return _C.device_transport(_backend_of(group))


class MicroBatches:
    """Makes DDP's gradients the exact mean over all micro-batches of all workers.

    ``count`` micro-batches per worker make one update. Their gradients, unlike PyTorch's, are not added to one another in floating
    point: all of them, of all workers, are summed exactly and rounded once. So the bits of the gradient do not depend on how many
    workers share the micro-batches.

        model = DistributedDataParallel(net)
        unisono_torch.MicroBatches(model, count=8 // dist.get_world_size())
        for micro_batch in mine:         # `count` of them, without no_sync()
            loss(model(micro_batch)).backward()
        optimizer.step()
        optimizer.zero_grad()

    Cost: the gradients of ``count`` micro-batches are kept, and sums of 8 bytes an element travel once per update. Until the last
    micro-batch of an update the gradients of the parameters are zero.
    """

    def __init__(self, model, count: int, group=None):
        if count < 1:
            raise ValueError(f"unisono_torch.MicroBatches: count is {count}; expected at least 1")
        self.count = count
        self._group = model.process_group if group is None else group
        self._backend = _backend_of(self._group)
        self._factor = 1.0 / (count * self._group.size())
        self._kept: dict[int, list[torch.Tensor]] = {}
        model.register_comm_hook(self, MicroBatches._hook)

    @staticmethod
    def _hook(self, bucket):
        # By parameter, because DDP divides its buckets again after the first backward pass.
        buffer = bucket.buffer()
        parameters = bucket.parameters()
        kept = [self._kept.setdefault(parameter.data_ptr(), []) for parameter in parameters]
        for mine, part in zip(kept, buffer.split([parameter.numel() for parameter in parameters])):
            mine.append(part.clone())
        if len(kept[0]) < self.count:
            future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
            future.set_result(torch.zeros_like(buffer))
            return future
        addends = [torch.cat(parts) for parts in zip(*kept)]
        for mine in kept:
            mine.clear()
        work = _C.sum_exactly(self._backend, addends, buffer, self._factor)
        return work.get_future().then(lambda done: done.value()[0])


# In a job that is bound to devices, PyTorch calls this on ranks that are not in a new group: with
# NCCL all ranks take part in a split. Here a new group concerns its members alone.
if not hasattr(torch._C._distributed_c10d.Backend, "perform_nocolor_split"):
    torch._C._distributed_c10d.Backend.perform_nocolor_split = lambda self, device: None

# To ask for GPUs would initialise CUDA's driver, and no process may fork and use it afterwards.
# Whether there are any, the ranks find out when they join.
_devices = ["cpu", "cuda"] if _C.knows_devices and torch.version.cuda else ["cpu"]
dist.Backend.register_backend("unisono", _create, extended_api=True, devices=_devices)
atexit.register(_C.say_goodbye)
