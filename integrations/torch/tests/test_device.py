"""Tensors of a device: those of a GPU, if there is one, or those of the host where the stand-in's build plays a device with them."""

import contextlib
import ctypes
import datetime
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import weakref

import torch
import torch.distributed as dist
from ranks import free_port, plays_device, run
from test_unisono_torch import expect_error, micro_batches, numbers, same

import unisono_torch
from unisono_torch import _C

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A script's own work on the stand-in's tensors is done by the host at once, so the host must wait.
WAITING = {"UNISONO_TORCH_BLOCKING_WAIT": "1"} if DEVICE == "cpu" else {}
# Each call that may wait for the device does so, as CUDA's calls do at their first use.
SLOW = {"UNISONO_STAND_IN_WAITS": "1"}
# Processes that share a GPU take turns in slices of time.
FEW = 2 if DEVICE == "cuda" else 3


class CurrentStream:
    """The stream on which a script's work on tensors is."""

    def __init__(self):
        self.kept = []  # functions that the stream calls later
        if DEVICE == "cpu":
            self.library = ctypes.CDLL(_C.__file__)

    def enqueue(self, work):
        if DEVICE == "cuda":
            return work()
        self.kept.append(ctypes.CFUNCTYPE(None)(work))
        self.library.stand_in_enqueue(self.kept[-1])

    def hold(self, seconds):
        if DEVICE == "cuda":
            torch.cuda._sleep(int(seconds * 2e9))
        else:
            self.enqueue(lambda: time.sleep(seconds))

    def synchronize(self):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        else:
            self.library.stand_in_synchronize()

    def allocate(self):
        """Waits for the device, and lets no other thread call it meanwhile."""
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
            torch.empty(50_000_000, device=DEVICE)
        else:
            self.library.stand_in_allocate()

    @contextlib.contextmanager
    def second(self):
        """Another stream is the current one."""
        if DEVICE == "cuda":
            with torch.cuda.stream(torch.cuda.Stream()):
                yield
        else:
            self.library.stand_in_use_second_stream(1)
            try:
                yield
            finally:
                self.library.stand_in_use_second_stream(0)


def tensor(values, **options):
    return torch.tensor(values, device=DEVICE, **options)


def use_device():
    if DEVICE == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())


def warm(stream):
    x = torch.ones(10, device=DEVICE)
    dist.all_reduce(x)
    stream.synchronize()


def host_goes_on():
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    stream = CurrentStream()
    warm(stream)
    x = torch.full((1000,), float(rank), device=DEVICE)
    seen = []
    stream.hold(1.0 if rank == 0 else 2.0)
    stream.enqueue(lambda: x.add_(10))
    begun = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    stream.enqueue(lambda: seen.append(x.clone()))
    waited = time.monotonic() - begun
    assert waited < 0.5, f"the host waited {waited} s"
    assert not work.is_completed()
    stream.synchronize()
    assert work.is_completed()
    assert seen[0].tolist() == [10.0 * size + sum(range(size))] * 1000, seen[0][:3]
    return True


def messages(rank, size):
    """Large ones in both directions at once, the sends first."""
    right, left = (rank + 1) % size, (rank - 1) % size
    a, b = torch.zeros(1_000_000, device=DEVICE), torch.full((1_000_000,), float(rank), device=DEVICE)
    works = [dist.isend(b, right), dist.irecv(a, left)]
    for work in works:
        work.wait()
    assert a[-1].item() == left
    a.zero_()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, b, right), dist.P2POp(dist.irecv, a, left)]):
        work.wait()
    assert a[-1].item() == left
    if rank == 0:
        dist.send(b, 1, tag=5)
    elif rank == 1:
        dist.recv(a, 0, tag=5)
        assert a[-1].item() == 0.0


def all_calls():
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    op = dist.ReduceOp
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64):
        for count in (1, 5000):
            every = [numbers(r, size * count, dtype) for r in range(size)]
            total = sum(each.double() for each in every)
            x = every[rank].to(DEVICE, copy=True)
            dist.all_reduce(x)
            same(x.cpu(), total.to(dtype), dtype, "all_reduce")
            x = every[rank].to(DEVICE, copy=True)
            dist.broadcast(x, size - 1)
            assert torch.equal(x.cpu(), every[-1])
            part = torch.zeros(count, dtype=dtype, device=DEVICE)
            dist.reduce_scatter_tensor(part, every[rank].to(DEVICE, copy=True))
            same(part.cpu(), total.to(dtype).chunk(size)[rank], dtype, "reduce_scatter_tensor")
            got = torch.zeros(size, size * count, dtype=dtype, device=DEVICE)
            dist.all_gather_into_tensor(got, every[rank].to(DEVICE, copy=True))
            assert torch.equal(got.cpu(), torch.stack(every))
            apart = [torch.zeros(size * count, dtype=dtype, device=DEVICE) for _ in range(size)]
            dist.all_gather(apart, every[rank].to(DEVICE, copy=True))
            assert all(torch.equal(one.cpu(), other) for one, other in zip(apart, every))
            got = torch.zeros(size * count, dtype=dtype, device=DEVICE)
            dist.all_to_all_single(got, every[rank].to(DEVICE, copy=True))
            assert torch.equal(got.cpu(), torch.cat([each.chunk(size)[rank] for each in every]))

    rows = torch.full((sum(range(1, size + 1)), 3), float(rank), device=DEVICE)
    got = torch.zeros((rank + 1) * size, 3, device=DEVICE)
    dist.all_to_all_single(got, rows, [rank + 1] * size, list(range(1, size + 1)))
    assert got[:, 0].tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    outs = [torch.zeros(rank + 1, device=DEVICE) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((r + 1,), float(rank), device=DEVICE) for r in range(size)])
    assert [each[0].item() for each in outs] == [float(r) for r in range(size)]
    square = torch.arange(16.0, device=DEVICE).reshape(4, 4).t()
    dist.all_reduce(square)
    assert square.tolist() == (size * torch.arange(16.0).reshape(4, 4).t()).tolist()
    dist.all_reduce(torch.zeros(0, device=DEVICE))
    x = tensor([1 + 2j * rank])
    dist.all_reduce(x)
    assert x.tolist() == [size + 1j * size * (size - 1)]
    x = tensor([2.0 * rank, 1.0])
    dist.all_reduce(x, op.AVG)
    assert x.tolist() == [size - 1.0, 1.0]
    x = tensor([rank])
    dist.reduce(x, 0, op.MAX)
    assert rank != 0 or x.item() == size - 1
    parts = [torch.zeros(2, device=DEVICE) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank), device=DEVICE), parts, 0)
    assert rank != 0 or [each[1].item() for each in parts] == [float(r) for r in range(size)]
    part = torch.zeros(2, device=DEVICE)
    dist.scatter(part, [torch.full((2,), float(r), device=DEVICE) for r in range(size)] if rank == 0 else None, 0)
    assert part.tolist() == [float(rank)] * 2

    if size > 1:
        messages(rank, size)

    # Coalesced: one work for all.
    device = torch.device(DEVICE)
    tensors = [torch.full((n,), float(rank), device=DEVICE) for n in (3, 1000)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        for x in tensors:
            dist.all_reduce(x)
    manager.wait()
    assert [x[-1].item() for x in tensors] == [sum(range(size)) * 1.0] * 2
    outs = [torch.zeros(size * n, device=DEVICE) for n in (3, 1000)]
    with dist._coalescing_manager(device=device):
        for x, out in zip(tensors, outs):
            dist.all_gather_into_tensor(out, x + rank)
    assert [out[-1].item() for out in outs] == [sum(range(size)) + size - 1.0] * 2
    backend = dist.group.WORLD._get_backend(device)
    assert backend.supports_coalescing
    backend._start_coalescing()
    works = [dist.broadcast(x, 0, async_op=True) for x in tensors]
    whole = backend._end_coalescing()
    whole.wait()
    assert len(works) == 2 and whole.is_completed() or DEVICE == "cuda"
    dist.barrier()
    return True


def order_of_messages():
    """A receiver takes the messages of one sender in the order of the calls."""
    use_device()
    rank, count = dist.get_rank(), 60
    for _ in range(200):  # the copies end while the group looks at one after the other
        if rank == 0:
            works = [dist.isend(tensor([i]), 1) for i in range(count)]
        else:
            got = [tensor([-1]) for _ in range(count)]
            works = [dist.irecv(x, 0) for x in got]
        for work in works:
            work.wait()
        if rank == 1:
            found = [x.item() for x in got]
            assert found == list(range(count)), found
        dist.barrier()
    return True


def one_tensor_in_several_calls():
    """Without a wait between them, the calls take effect one after the other."""
    use_device()
    rank, size, count = dist.get_rank(), dist.get_world_size(), 100_000
    for _ in range(20):
        x = torch.ones(count, device=DEVICE)
        works = [dist.all_reduce(x[:-1], async_op=True), dist.all_reduce(x[1:], async_op=True)]
        for work in works:
            work.wait()
        assert x[1:-1].eq(size * size).all(), x[:3]
        x.fill_(rank + 1)
        if rank == 0:
            y = torch.zeros(count, device=DEVICE)
            works = [dist.isend(x, 1), dist.irecv(y, 1)]
        else:
            works = [dist.irecv(x, 0), dist.isend(x, 0)]
        for work in works:
            work.wait()
        assert rank == 1 or y.eq(1).all(), y[:3]
        x.fill_(rank)
        works = [dist.isend(x, 1 - rank), dist.irecv(x, 1 - rank)]
        for work in works:
            work.wait()
        assert x.eq(1 - rank).all(), x[:3]
    return True


def allocations_behind_calls():
    """A call that waits for the device does not hold up the calls for which the device waits."""
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    stream = CurrentStream()
    warm(stream)
    for i in range(20):
        x = torch.ones(1000, device=DEVICE)
        stream.synchronize()
        time.sleep(0.02 * (rank == i % size))
        works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
        stream.allocate()
        for work in works:
            work.wait()
        stream.synchronize()
        assert x.eq(size**3).all(), x[:3]
    return True


def receives_first():
    """No rank sends before it has called for what it receives."""
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (10, 100_000):
        x, y = torch.zeros(count, device=DEVICE), torch.full((count,), float(rank), device=DEVICE)
        works = [dist.irecv(x, left), dist.isend(y, right)]
        for work in works:
            work.wait()
        assert x.eq(left).all(), x[:3]
        calls = [dist.P2POp(dist.irecv, x, left), dist.P2POp(dist.isend, y + 1, right)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        assert x.eq(left + 1).all(), x[:3]
    return True


def late_receives():
    """Receives whose messages have come before, and those that nobody waits for."""
    use_device()
    rank, stream = dist.get_rank(), CurrentStream()
    warm(stream)
    for count in (3, 300_000):
        if rank == 0:
            for i in range(4):
                dist.send(torch.full((count,), float(i), device=DEVICE), 1)
            dist.barrier()
            continue
        time.sleep(0.3)  # the messages are there
        x = torch.full((count,), -1.0, device=DEVICE)
        stream.synchronize()
        dist.recv(x, 0)
        stream.synchronize()
        assert x.eq(0).all(), x[:3]
        work = dist.irecv(x, 0)
        while not work.is_completed():
            time.sleep(0.001)
        assert x.eq(1).all(), x[:3]
        dist.irecv(x, 0)  # its work is dropped
        until = time.monotonic() + 20
        while not x.eq(2).all():
            assert time.monotonic() < until, x[:3]
            time.sleep(0.01)
        (y,) = dist.irecv(x, 0).get_future().wait()
        stream.synchronize()
        assert y.eq(3).all(), y[:3]
        dist.barrier()
    return True


def receive_is_too_late():
    """What comes after the timeout changes nothing."""
    use_device()
    stream = CurrentStream()
    warm(stream)
    x = torch.ones(10, device=DEVICE)
    if dist.get_rank() == 0:
        time.sleep(8)
        with contextlib.suppress(dist.DistBackendError):  # a small message may be on its way before the fault is seen
            dist.isend(x, 1).wait(datetime.timedelta(seconds=20))
        return True
    for wait_first in (True, False):
        begun = time.monotonic()
        try:
            work = dist.irecv(x, 0)
        except dist.DistBackendError as failed:
            assert not wait_first and "rank 0" in str(failed), failed
            break
        if wait_first:
            work.wait()
        expect_error(lambda: work.wait(datetime.timedelta(seconds=20)), "timeout", "rank 0")
        assert time.monotonic() - begun < 6
        stream.synchronize()
        assert x.isnan().all(), x[:3]
    else:
        raise AssertionError("a receive was taken after the fault")
    time.sleep(7)
    assert x.isnan().all(), x[:3]
    return True


def receive_is_aborted():
    use_device()
    stream = CurrentStream()
    warm(stream)
    x = torch.ones(10, device=DEVICE)
    if dist.get_rank() == 0:
        time.sleep(0.5)
        dist.group.WORLD._get_backend(torch.device(DEVICE)).abort()
        return True
    works = [dist.irecv(x, 0), dist.irecv(x[:5], 0)]
    for work in works:
        expect_error(lambda: work.wait(datetime.timedelta(seconds=20)), "abort", "rank 0")
        assert work.is_completed()
    stream.synchronize()
    assert x.isnan().all(), x
    return True


def send_of_another_stream():
    """It does not wait for a collective whose stream is busy."""
    use_device()
    rank, stream = dist.get_rank(), CurrentStream()
    warm(stream)
    x, y = torch.ones(10, device=DEVICE), torch.ones(10, device=DEVICE)
    took = 0.0
    if rank == 0:
        stream.hold(6.0)
    work = dist.all_reduce(x, async_op=True)
    with stream.second():
        if rank == 0:
            dist.isend(y, 1)
        else:
            begun = time.monotonic()
            dist.irecv(y, 0).wait(datetime.timedelta(seconds=20))
            took = time.monotonic() - begun
    work.wait(datetime.timedelta(seconds=20))
    return took


def interpreter_waits_for_device():
    """What has ended is freed by a thread for which the device does not wait: a tensor may need the interpreter."""
    rank, stream = dist.get_rank(), CurrentStream()
    warm(stream)
    keeps_interpreter = ctypes.PyDLL(_C.__file__)
    for _ in range(5):
        x, y = torch.ones(10), torch.ones(10)
        work = dist.all_reduce(x, async_op=True)
        del x, work  # the process group has them
        if rank == 1:
            time.sleep(0.1)  # the first call ends on rank 0 before the second one
        dist.all_reduce(y, async_op=True).wait()
        keeps_interpreter.stand_in_synchronize()
        assert y.eq(2).all(), y
    return True


def movers():
    """The number of process groups that have not ended."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names.count("unisono-mover")


def group_ends_in_its_own_thread():
    """The last call's input, which its work does not keep, has the last reference to the process group."""
    rank, stream = dist.get_rank(), CurrentStream()
    warm(stream)
    before = movers()
    store = dist.PrefixStore("another", dist.distributed_c10d._get_default_store())
    backend = _C.create(store, rank, 2, datetime.timedelta(seconds=20), "another", "auto", False, False, [], [])
    x = torch.ones(10)
    x.backend = backend
    if rank == 1:
        time.sleep(0.3)
    work = backend.allgather([[torch.ones(10), torch.ones(10)]], [x])
    ended = []
    weakref.finalize(x, ended.append, True)
    del x, work, backend
    until = time.monotonic() + 20
    while not ended:
        assert time.monotonic() < until, "the tensor was not freed"
        time.sleep(0.01)
    while movers() > before:
        assert time.monotonic() < until, "the process group was not ended"
        time.sleep(0.01)
    warm(stream)
    return True


def receive_in_one_queue():
    use_device()
    x = torch.ones(3, device=DEVICE)
    dist.all_reduce(x)
    try:
        dist.irecv(x, 0)
    except RuntimeError as refused:
        assert "CUDA_DEVICE_MAX_CONNECTIONS=1, expected 2 or more" in str(refused), refused
        return True
    raise AssertionError("a receive was taken")


def barrier_of_device(how):
    """It waits for the current stream, unlike that of the host."""
    use_device()
    stream = CurrentStream()
    warm(stream)
    index = dist.get_rank() % torch.cuda.device_count() if DEVICE == "cuda" else 0
    begun = time.monotonic()
    stream.hold(1.0)
    if how == "host":
        dist.barrier()
    elif how == "device_ids":
        dist.barrier(device_ids=[index])
    else:
        options = dist.BarrierOptions()
        if how == "device":
            options.device = torch.device(DEVICE, index)
        backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
        work = backend.barrier(options)
        work.wait()
        (x,) = work.get_future().wait()
        assert x.device.type == DEVICE
    took = time.monotonic() - begun
    stream.synchronize()
    return took


def bound_to_device():
    """As init_process_group(device_id=...): other ranks than a new group's take no part in it."""
    rank = int(os.environ["RANK"])
    index = rank % torch.cuda.device_count() if DEVICE == "cuda" else 0
    dist.init_process_group("unisono", device_id=torch.device(DEVICE, index))
    use_device()
    group = dist.new_group([0])
    if rank == 0:
        x = tensor([3.0])
        dist.all_reduce(x, group=group)
        assert x.item() == 3.0
    took = barrier_of_device("bound")
    dist.destroy_process_group()
    return took


def future():
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((5,), float(rank), device=DEVICE)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: 2 * done.value()[0])
    assert doubled.wait().tolist() == [size * (size - 1.0)] * 5
    return True


def micro_batches_on_device(replicas):
    use_device()
    return micro_batches(replicas, DEVICE)


def reproducible_sum():
    use_device()
    rank, size = dist.get_rank(), dist.get_world_size()
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for turned in (False, True):
            part = size - 1 - rank if turned else rank
            x = (numbers(part, 3000, dtype) * 10.0 ** (part % 3)).to(DEVICE)
            dist.all_reduce(x)
            found.append(hashlib.sha256(x.cpu().view(torch.uint8).numpy().tobytes()).hexdigest()[:8])
    assert found[::2] == found[1::2], found
    return found


def one_is_late():
    """The others' streams go on after the timeout, with NaN, and the next call says why."""
    use_device()
    stream = CurrentStream()
    warm(stream)
    x = torch.ones(1000, device=DEVICE)
    if dist.get_rank() == 1:
        time.sleep(5)
        return expect_error(lambda: dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20)), "rank 1")
    dist.all_reduce(x)
    seen = []
    stream.enqueue(lambda: seen.append(x.clone()))
    stream.synchronize()
    assert seen[0].isnan().all(), seen[0][:3]
    time.sleep(0.5)
    return expect_error(lambda: dist.all_reduce(x), "timeout", "rank 1")


def stream_is_stuck(end):
    """The copy to pinned memory runs after the fault, and the result is NaN all the same. Calls behind it end with it."""
    use_device()
    stream = CurrentStream()
    warm(stream)
    rank, backend = dist.get_rank(), dist.group.WORLD._get_backend(torch.device(DEVICE))
    store = dist.distributed_c10d._get_default_store()
    x, y = torch.ones(10, device=DEVICE), torch.ones(10, device=DEVICE)
    begun = time.monotonic()
    if rank == 0:
        stream.hold(8)
    work = dist.all_reduce(x, async_op=True)
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=60)
    behind = backend.allreduce([y], options)
    work.wait()
    seen = []
    stream.enqueue(lambda: seen.append(x.clone()))
    store.set(f"rank {rank} has called", "yes")
    if end == "abort" and rank == 0:
        store.wait(["rank 1 has called"])
        backend.abort()
    for each in (work, behind):
        expect_error(lambda: each.wait(datetime.timedelta(seconds=20)), "rank 0", end)
        assert time.monotonic() - begun < 6, "the error came no earlier than the stream"
    stream.synchronize()
    assert seen[0].isnan().all(), seen[0][:3]
    return True


def one_dies():
    use_device()
    stream = CurrentStream()
    warm(stream)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.ones(1000, device=DEVICE)
    begun = time.monotonic()
    expect_error(lambda: dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20)), "rank 1")
    return time.monotonic() - begun


def abort():
    use_device()
    stream = CurrentStream()
    warm(stream)
    x = torch.ones(10, device=DEVICE)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.group.WORLD._get_backend(torch.device(DEVICE)).abort()
        return expect_error(lambda: work.wait(datetime.timedelta(seconds=20)), "rank 0", "abort")
    time.sleep(1)
    return expect_error(lambda: dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20)), "rank 0", "abort")


def abort_before_coalesced_calls_end():
    """Each of them says why it has not started."""
    use_device()
    stream, device = CurrentStream(), torch.device(DEVICE)
    warm(stream)
    backend = dist.group.WORLD._get_backend(device)
    x = torch.ones(10, device=DEVICE)
    backend._start_coalescing()
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, async_op=True)]
    if dist.get_rank() == 0:
        backend.abort()
    else:
        time.sleep(1)
    try:
        backend._end_coalescing()
    except dist.DistBackendError as failed:
        assert "abort" in str(failed), failed
    for work in works:
        expect_error(lambda: work.wait(datetime.timedelta(seconds=20)), "abort", "rank 0")
    backend._start_coalescing()
    work = dist.all_reduce(x, async_op=True)
    expect_error(backend._end_coalescing, "abort", "rank 0")
    expect_error(work.wait, "abort", "rank 0")
    return True


def callback_of_coalesced_call():
    """It may start other calls, though futures of a device are complete when their work is enqueued."""
    use_device()
    device, stream = torch.device(DEVICE), CurrentStream()
    warm(stream)
    backend = dist.group.WORLD._get_backend(device)
    x, y = torch.ones(10, device=DEVICE), torch.ones(10, device=DEVICE)
    begun = []

    def start(_):
        begun.append(dist.all_reduce(y, async_op=True))

    backend._start_coalescing()
    works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
    done = works[0].get_future().then(start)
    backend._end_coalescing().wait()
    done.wait()
    begun[0].wait(datetime.timedelta(seconds=20))
    stream.synchronize()
    assert x.eq(4).all() and y.eq(2).all(), (x, y)
    return True


def device_is_lost():
    """An error of the device is seen while the host's threads only wait."""
    stream = CurrentStream()
    warm(stream)
    x = torch.ones(10)
    if dist.get_rank() == 1:
        return expect_error(lambda: dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20)), "rank 0", "LaunchFailure")
    begun = time.monotonic()
    stream.hold(8)
    work = dist.all_reduce(x, async_op=True)
    stream.library.stand_in_lose_device()
    expect_error(lambda: work.wait(datetime.timedelta(seconds=20)), "rank 0", "LaunchFailure")
    assert time.monotonic() - begun < 6
    return True


def receive_cannot_be_copied():
    """Nobody waits for it, and the error says why its copies were not enqueued."""
    stream, store = CurrentStream(), dist.distributed_c10d._get_default_store()
    warm(stream)
    x = torch.ones(10)
    if dist.get_rank() == 1:
        work = dist.irecv(x, 0)
        stream.library.stand_in_lose_device()
        store.set("the device is lost", "yes")
        until = time.monotonic() + 20
        while not work.is_completed():
            assert time.monotonic() < until, "the error was not seen"
            time.sleep(0.01)
        return expect_error(work.wait, "recv", "LaunchFailure")
    store.wait(["the device is lost"])
    dist.send(x, 1)
    return expect_error(lambda: dist.all_reduce(x, async_op=True).wait(datetime.timedelta(seconds=20)), "rank 1", "LaunchFailure")


def early_wait():
    """A wait with a timeout is of the host, and no fault."""
    use_device()
    stream = CurrentStream()
    warm(stream)
    x = torch.full((10,), 1.0, device=DEVICE)
    if dist.get_rank() == 1:
        time.sleep(2)
    work = dist.all_reduce(x, async_op=True)
    if dist.get_rank() == 0:
        expect_error(lambda: work.wait(datetime.timedelta(seconds=0.2)), "goes on until its own timeout")
    work.wait(datetime.timedelta(seconds=20))
    return x.tolist()


def left_in_flight():
    """A group is destroyed when its calls have ended."""
    use_device()
    x = torch.full((10,), 1.0, device=DEVICE)
    if dist.get_rank() == 1:
        time.sleep(1)
    dist.all_reduce(x, async_op=True)
    dist.destroy_process_group()
    CurrentStream().synchronize()
    return x.tolist()


SCRIPT = """
import hashlib, os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
import unisono_torch

torch.set_num_threads(1)
dist.init_process_group("unisono")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
for kind in ("ddp", "fsdp2"):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1)).to(device)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        fully_shard(model, mesh=dist.init_device_mesh(device.type, (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(11)
    for _ in range(5):
        x, y = torch.randn(8, 20, generator=generator).to(device), torch.randn(8, 1, generator=generator).to(device)
        loss = torch.nn.functional.mse_loss(model(x[rank::size]), y[rank::size])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
    if rank == 0:
        print(kind, loss.item(), flush=True)
dist.destroy_process_group()
"""


def way():
    use_device()
    warm(CurrentStream())
    return unisono_torch.device_transport()


class Device(unittest.TestCase):
    def test_way(self):
        """By NCCL, if each rank has a GPU and the program wants it."""
        expected = "nccl"
        if os.environ.get("UNISONO_TORCH_NCCL") == "0":
            expected = "rank 0 does not want NCCL"
        elif DEVICE == "cpu" or torch.cuda.device_count() < 2:
            expected = "ranks 0 and 1 share a device"
        self.assertEqual(run(2, way), [expected] * 2)

    def test_host_does_not_wait(self):
        run(2, host_goes_on)

    @unittest.skipIf(DEVICE == "cuda", "only the stand-in can leave out an event")
    def test_missing_event_is_noticed(self):
        for which in ("begin", "end"):
            with self.subTest(which), self.assertRaises(AssertionError):
                run(2, host_goes_on, environment={"UNISONO_STAND_IN_WITHOUT": which})

    def test_all_calls(self):
        run(1, all_calls, environment=WAITING)
        run(2, all_calls, environment=WAITING)
        run(FEW, all_calls, environment=WAITING | {"UNISONO_TORCH_TRANSPORT": "tcp"})

    def test_futures(self):
        run(2, future)

    def test_callback_while_coalescing(self):
        run(2, callback_of_coalesced_call, environment=WAITING | {"UNISONO_STAND_IN_FUTURES": "1"}, deadline_s=60)

    def test_messages_keep_their_order(self):
        run(2, order_of_messages, environment=WAITING)

    def test_calls_on_one_tensor(self):
        run(2, one_tensor_in_several_calls, environment=WAITING)

    def test_allocations_wait_for_device(self):
        run(2, allocations_behind_calls)

    def test_receives_before_sends(self):
        run(2, receives_first, environment=WAITING)

    def test_late_receives(self):
        run(2, late_receives)

    def test_send_passes_collectives(self):
        self.assertLess(run(2, send_of_another_stream)[1], 4)

    @unittest.skipIf(DEVICE == "cuda", "only the stand-in's calls wait when they are told to")
    def test_calls_that_wait_for_device(self):
        for size, body in ((2, all_calls), (3, receives_first), (2, one_tensor_in_several_calls), (2, late_receives)):
            with self.subTest(body.__name__):
                run(size, body, environment=WAITING | SLOW)

    @unittest.skipIf(DEVICE == "cuda", "the stand-in's call keeps the interpreter")
    def test_interpreter_waits_for_device(self):
        run(2, interpreter_waits_for_device)

    @unittest.skipIf(DEVICE == "cuda", "one such test is enough")
    def test_group_ends_in_its_own_thread(self):
        run(2, group_ends_in_its_own_thread)

    def test_one_queue_is_refused(self):
        run(1, receive_in_one_queue, environment=WAITING | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})

    def test_barriers(self):
        self.assertLess(max(run(2, barrier_of_device, "host")), 0.8)
        for how in ("device", "device_ids"):
            with self.subTest(how):
                self.assertGreater(min(run(2, barrier_of_device, how)), 0.8)

    def test_bound_device(self):
        self.assertGreater(min(run(2, bound_to_device, initialise=False)), 0.8)

    def test_one_hash_for_any_number_of_workers(self):
        hashes = {size: set(run(size, micro_batches_on_device, 4, environment=WAITING, timeout_s=100, deadline_s=200)) for size in (1, 2, 4)}
        print("hashes:", hashes)
        self.assertEqual(len(set.union(*hashes.values())), 1)

    def test_reproducible_sums(self):
        found = run(FEW, reproducible_sum, environment=WAITING | {"UNISONO_TORCH_REPRODUCIBLE": "1"})
        self.assertEqual(found, [found[0]] * FEW)

    def test_scripts_under_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w") as file:
                file.write(SCRIPT)
            losses = {}
            for size in (1, 2):
                command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size)]
                command += ["--master-port", str(free_port()), script]
                done = subprocess.run(command, env=os.environ | WAITING, capture_output=True, text=True, timeout=200)
                self.assertEqual(done.returncode, 0, done.stderr)
                losses[size] = [line.split() for line in done.stdout.splitlines()]
                self.assertEqual([kind for kind, _ in losses[size]], ["ddp", "fsdp2"])
        for (_, alone), (_, together) in zip(*losses.values()):
            self.assertAlmostEqual(float(alone), float(together), places=5)


class Faults(unittest.TestCase):
    def test_late_rank_is_named(self):
        run(2, one_is_late, timeout_s=2)

    def test_stuck_stream_is_named(self):
        run(2, stream_is_stuck, "timeout", timeout_s=2)

    def test_abort_reaches_stuck_stream(self):
        run(2, stream_is_stuck, "abort")

    def test_killed_rank_is_named(self):
        self.assertLess(run(2, one_dies, may_die=(1,))[0], 20)

    def test_abort(self):
        run(2, abort)

    def test_abort_ends_receives(self):
        run(2, receive_is_aborted)

    def test_abort_before_coalesced_calls_end(self):
        run(2, abort_before_coalesced_calls_end)

    def test_message_after_timeout(self):
        run(2, receive_is_too_late, timeout_s=2)

    @unittest.skipIf(DEVICE == "cuda", "only the stand-in can lose a device")
    def test_lost_device(self):
        run(2, device_is_lost)

    @unittest.skipIf(DEVICE == "cuda", "only the stand-in can lose a device")
    def test_receive_cannot_be_copied(self):
        run(2, receive_cannot_be_copied)

    def test_early_wait_is_no_fault(self):
        self.assertEqual(run(2, early_wait), [[2.0] * 10] * 2)

    def test_group_ends_after_its_calls(self):
        self.assertEqual(run(2, left_in_flight), [[2.0] * 10] * 2)


if __name__ == "__main__":
    if DEVICE == "cpu" and not plays_device():
        print("skipped: no GPU, and this build is not the stand-in's")
        sys.exit(0)
    unittest.main(verbosity=2)
