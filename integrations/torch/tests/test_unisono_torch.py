"""The process group 'unisono' beside PyTorch's Gloo: the same results, and errors that name the rank at fault."""

import atexit
import datetime
import hashlib
import os
import signal
import subprocess
import sys
import time
import unittest

import torch
import torch.distributed as dist
from ranks import free_port, plays_device, run

import unisono_torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
WORLDS = [
    (2, {}, "shared_memory"),
    (3, {}, "shared_memory"),
    (4, {"UNISONO_HOSTS": "a,a,b,b"}, "hosts"),
    (2, {"UNISONO_TORCH_TRANSPORT": "tcp"}, "tcp"),
]


def numbers(rank, count, dtype, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype)
    return torch.randint(0, 5, (count,), generator=generator).to(dtype)


def same(mine, gloos, dtype, what):
    if dtype in (torch.bfloat16, torch.float16):
        torch.testing.assert_close(mine, gloos, rtol=2e-2, atol=2e-2, msg=lambda text: f"{what}: {text}")
    else:
        torch.testing.assert_close(mine, gloos, msg=lambda text: f"{what}: {text}")


def collectives(expected_transport):
    rank, size = dist.get_rank(), dist.get_world_size()
    assert unisono_torch.transport() == expected_transport, unisono_torch.transport()
    gloo = dist.new_group(backend="gloo")
    both = [(None, "unisono"), (gloo, "gloo")]
    op = dist.ReduceOp
    checked = 0

    def compare(what, dtype, call):
        nonlocal checked
        mine, gloos = (call(group) for group, _ in both)
        for one, other in zip(mine, gloos):
            same(one, other, dtype, f"{what} of {dtype} on rank {rank} of {size}")
        checked += 1

    for dtype in FLOATS + INTEGERS:
        for count in (1, 37, 5000):
            base = numbers(rank, count, dtype)

            def all_reduce(group, how):
                x = base.clone()
                dist.all_reduce(x, how, group=group)
                return [x]

            for how in (op.SUM, op.PRODUCT, op.MIN, op.MAX):
                if dtype == torch.int16:  # Gloo has none
                    break
                compare(f"all_reduce {how}", dtype, lambda group: all_reduce(group, how))

            def broadcast(group):
                x = base.clone()
                dist.broadcast(x, size - 1, group=group)
                return [x]

            def reduce(group):
                x = base.clone()
                dist.reduce(x, size - 1, group=group)
                return [x] if rank == size - 1 else []

            def all_gather(group):
                x = [torch.zeros_like(base) for _ in range(size)]
                dist.all_gather(x, base, group=group)
                return x

            def all_gather_into_tensor(group):
                x = torch.zeros(size * count, dtype=dtype)
                dist.all_gather_into_tensor(x, base, group=group)
                return [x]

            def gather(group):
                x = [torch.zeros_like(base) for _ in range(size)] if rank == 1 else None
                dist.gather(base, x, dst=1, group=group)
                return x or []

            def scatter(group):
                x = torch.zeros_like(base)
                dist.scatter(x, [base * 0 + i for i in range(size)] if rank == 1 else None, src=1, group=group)
                return [x]

            if dtype != torch.int16:
                compare("broadcast", dtype, broadcast)
                compare("reduce", dtype, reduce)
                compare("all_gather", dtype, all_gather)
                compare("all_gather_into_tensor", dtype, all_gather_into_tensor)
                compare("gather", dtype, gather)
                compare("scatter", dtype, scatter)
            assert [each.tolist() for each in all_gather(None)] == [numbers(r, count, dtype).tolist() for r in range(size)]

            # What Gloo supports in part is compared with the expected values.
            wide = numbers(rank, size * count, dtype, seed=1)
            every = [numbers(r, size * count, dtype, seed=1) for r in range(size)]
            total = sum(each.double() for each in every)
            part = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter_tensor(part, wide)
            same(part, total[rank * count : (rank + 1) * count].to(dtype), dtype, "reduce_scatter_tensor")
            part = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter(part, list(wide.chunk(size)))
            same(part, total[rank * count : (rank + 1) * count].to(dtype), dtype, "reduce_scatter")
            got = torch.zeros_like(wide)
            dist.all_to_all_single(got, wide)
            assert got.tolist() == torch.cat([each.chunk(size)[rank] for each in every]).tolist()
            checked += 3

    for dtype in INTEGERS + [torch.bool]:
        base = numbers(rank, 33, dtype)
        every = [numbers(r, 33, dtype) for r in range(size)]
        for how, fold in ((op.BAND, torch.bitwise_and), (op.BOR, torch.bitwise_or), (op.BXOR, torch.bitwise_xor)):
            x = base.clone()
            dist.all_reduce(x, how)
            expected = every[0]
            for each in every[1:]:
                expected = fold(expected, each)
            assert x.tolist() == expected.tolist(), (how, dtype)
            checked += 1
    for dtype in FLOATS:
        x = numbers(rank, 100, dtype)
        dist.all_reduce(x, op.AVG)
        same(x, (sum(numbers(r, 100, dtype).double() for r in range(size)) / size).to(dtype), dtype, "AVG")

    # Different numbers of rows, and lists of tensors of different sizes.
    rows = torch.full((sum(range(1, size + 1)), 3), float(rank))
    got = torch.zeros((rank + 1) * size, 3)
    dist.all_to_all_single(got, rows, [rank + 1] * size, list(range(1, size + 1)))
    assert got[:, 0].tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    outs = [torch.zeros(rank + 1) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((r + 1,), float(rank)) for r in range(size)])
    assert [each[0].item() for each in outs] == [float(r) for r in range(size)]

    # Tensors that are not contiguous, are empty, or have no dimension.
    square = torch.arange(16.0).reshape(4, 4).t()
    dist.all_reduce(square)
    assert square.tolist() == (size * torch.arange(16.0).reshape(4, 4).t()).tolist()
    dist.all_reduce(torch.zeros(0))
    one = torch.tensor(float(rank))
    dist.all_reduce(one)
    assert one.item() == size * (size - 1) / 2

    coalesced = [numbers(rank, n, torch.float32) for n in (3, 70)]
    dist.all_reduce_coalesced(coalesced)
    for x, n in zip(coalesced, (3, 70)):
        same(x, sum(numbers(r, n, torch.float32) for r in range(size)), torch.float32, "all_reduce_coalesced")

    # Several tensors per rank, and blocks of different sizes.
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    pair = [torch.full((2,), float(rank)), torch.full((2,), float(size + rank))]
    backend.allreduce(pair).wait()
    assert [each[0].item() for each in pair] == [float(sum(range(2 * size)))] * 2
    backend.broadcast(pair, dist.BroadcastOptions()).wait()
    outs = [[torch.zeros(1) for _ in range(2 * size)] for _ in range(2)]
    got = backend.allgather(outs, [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]).get_future().wait()
    assert [[x.item() for x in each] for each in got] == [[float(i) for i in range(2 * size)]] * 2
    part = torch.zeros(rank + 1)
    dist.reduce_scatter(part, [torch.full((r + 1,), float(rank + r)) for r in range(size)])
    assert part.tolist() == [sum(range(size)) + size * rank * 1.0] * (rank + 1)

    # Sparse sums: indices that ranks share and do not share, none on one rank, and rows of several
    # numbers.
    for values in () if plays_device() else (torch.ones(rank), torch.ones(rank, 3)):
        places = torch.tensor([[2 * i for i in range(rank)]], dtype=torch.int64)
        x = torch.sparse_coo_tensor(places, values, (2 * size, *values.shape[1:]))
        dist.all_reduce(x)
        column = x.to_dense().reshape(2 * size, -1)[:, -1].tolist()
        assert column == [float(size - 1 - i // 2) if i % 2 == 0 and i // 2 < size - 1 else 0.0 for i in range(2 * size)], column
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (4 + rank,))
    if plays_device():
        expect_error(lambda: dist.all_reduce(sparse), "found a sparse tensor", error=RuntimeError)
    else:
        expect_error(lambda: dist.all_reduce(x, op.MAX), "unsupported reduction", error=RuntimeError)
        expect_error(lambda: dist.all_reduce(sparse), "equal shape", error=RuntimeError)

    # Messages in both directions at once, with tags that arrive in another order.
    right, left = (rank + 1) % size, (rank - 1) % size
    a, b = torch.zeros(5), torch.zeros(7)
    works = [dist.isend(torch.full((7,), 10.0 + rank), right, tag=2), dist.isend(torch.full((5,), float(rank)), right, tag=1)]
    works += [dist.irecv(a, left, tag=1), dist.irecv(b, left, tag=2)]
    for work in works:
        work.wait()
    assert a[0].item() == left and b[0].item() == 10 + left
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(3) * rank, right), dist.P2POp(dist.irecv, a[:3], left)])
    for work in works:
        work.wait()
    assert a[0].item() == left

    # Futures, several works at once, objects, barriers, and groups of some ranks.
    tensors = [torch.full((1000,), float(i + rank)) for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    doubled = works[7].get_future().then(lambda done: 2 * done.value()[0])
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    assert doubled.wait()[0].item() == 2 * sum(7 + r for r in range(size))
    assert tensors[3][0].item() == sum(3 + r for r in range(size))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    dist.barrier()
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        x = torch.ones(3) * (rank + 1)
        dist.all_reduce(x, group=pair)
        assert x[0].item() == size + 1
    dist.barrier()
    return checked


def small_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 30), torch.nn.Linear(30, 1))


def batches(count):
    generator = torch.Generator().manual_seed(11)
    return [(torch.randn(8, 20, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(count)]


def data_parallel(backend):
    group = dist.new_group(backend="gloo") if backend == "gloo" else None
    model = torch.nn.parallel.DistributedDataParallel(small_model(), process_group=group, bucket_cap_mb=0.003)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rank, size = dist.get_rank(), dist.get_world_size()
    losses = []
    for x, y in batches(10 * size)[rank::size]:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fully_sharded():
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    rank, size = dist.get_rank(), dist.get_world_size()
    found = []
    for wrap in ("fsdp", "fsdp2"):
        model = small_model()
        if wrap == "fsdp":
            model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
        else:
            fully_shard(model, mesh=dist.init_device_mesh("cpu", (size,)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for x, y in batches(10 * size)[rank::size]:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    return found


def hash_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def micro_batches(replicas, device="cpu"):
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(small_model().to(device), bucket_cap_mb=0.003)
    unisono_torch.MicroBatches(model, replicas // size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = [(x.to(device), y.to(device)) for x, y in batches(6 * replicas)]
    for update in range(6):
        for x, y in data[replicas * update : replicas * (update + 1)][rank::size]:
            torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return hash_of(model.module)


def reproducible():
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(pg_options=unisono_torch.Options(reproducible=True))
    turned = dist.new_group(pg_options=unisono_torch.Options(reproducible=True, transport="tcp"))
    found = []
    for dtype in FLOATS:
        addends = [numbers(r, 3000, dtype) * 10.0 ** (r % 3) for r in range(size)]
        exact = sum(each.double() for each in addends)
        every = []
        for where, mine in ((group, addends[rank]), (turned, addends[size - 1 - rank])):
            x = mine.clone()
            works = [dist.all_reduce(x, group=where, async_op=True), dist.barrier(group=where, async_op=True)]
            for work in works:
                work.wait()
            same(x, exact.to(dtype), dtype, "a reproducible sum")
            every.append(x)
            y = mine.clone()
            dist.reduce(y, 0, group=where)
            if rank == 0:
                assert torch.equal(x, y)
            z = torch.zeros(3000 // size, dtype=dtype)
            dist.reduce_scatter_tensor(z, mine[: 3000 // size * size].clone(), group=where)
            assert torch.equal(z, x[: 3000 // size * size].chunk(size)[rank])
        assert torch.equal(*every), dtype
        found.append(hashlib.sha256(every[0].view(torch.uint8).numpy().tobytes()).hexdigest()[:8])
    x = torch.full((3,), float("inf") if rank == 1 else 1.0)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [float("inf")] * 3
    return found


def expect_error(call, *words, error=dist.DistBackendError):
    try:
        call()
    except error as failed:
        text = str(failed)
        for word in words:
            assert word in text, f"{word!r} is not in: {text}"
        return text
    raise AssertionError(f"nothing was raised; expected an error with {words}")


def one_dies():
    x = torch.ones(1000)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    text = expect_error(lambda: dist.all_reduce(x), "rank 1")
    expect_error(lambda: dist.barrier(), "rank 1")
    return time.monotonic() - start, text


def one_is_late():
    x = torch.ones(1000)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        time.sleep(4)
        return expect_error(lambda: dist.all_reduce(x), "rank 1")
    work = dist.all_reduce(x, async_op=True)
    return expect_error(lambda: work.wait(), "timeout", "rank 1", "waited 2000 ms")


def ranks_disagree():
    rank = dist.get_rank()
    return expect_error(lambda: dist.all_reduce(torch.ones(10 + rank)), "mismatch", "10", "11")


def barrier_misses():
    rank = dist.get_rank()
    second = datetime.timedelta(seconds=1)
    if rank == 0:
        text = expect_error(lambda: dist.monitored_barrier(timeout=second, wait_all_ranks=True), "Ranks 1, 3")
    elif rank == 2:
        text = expect_error(lambda: dist.monitored_barrier(timeout=second), "Ranks 1, 3")
    else:
        time.sleep(3)
        text = ""
    dist.barrier()  # the group remains usable
    return text


def barrier_keeps_its_timeout():
    """Rank 0 is late for one barrier, and for another one only later than another rank gives up for itself."""
    rank, found = dist.get_rank(), []
    for late in (6, 1, 0):
        if rank == 0:
            time.sleep(late)
        if rank == 2 and late == 1:
            time.sleep(5)
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
            found.append("passed")
        except dist.DistBackendError as failed:
            found.append(str(failed))
        dist.barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))  # its time, not PyTorch's half hour
    if rank != 1:
        expect_error(lambda: dist.monitored_barrier(group), "1 failed to pass")
    dist.barrier()
    return found


def split():
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = dist.split_group(split_ranks=[[1, 0], [2, 3]])
    assert pairs.size() == 2 and dist.get_rank(pairs) == (1 - rank if rank < 2 else rank - 2)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x, group=pairs)
    assert x[0].item() == (1.0 if rank < 2 else 5.0), x
    some = dist.split_group(split_ranks=[[size - 1, 0]])
    if rank in (0, size - 1):
        dist.broadcast(x, size - 1, group=some)
        assert x[0].item() == 5.0
    else:
        assert some == dist.GroupMember.NON_GROUP_MEMBER
    group = dist.new_group(pg_options=unisono_torch.Options(reproducible=True))
    parts = dist.split_group(group, [[0, 1, 2, 3]])
    x, y = torch.full((9,), 0.1 * rank), torch.full((9,), 0.1 * rank)
    dist.all_reduce(x, group=group)
    dist.all_reduce(y, group=parts)
    assert torch.equal(x, y)
    return True


def complex_numbers():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.complex64, torch.complex128):
        wide = torch.arange(2 * size).to(dtype) * (1 + 2j) + rank * 1j
        total = sum(torch.arange(2 * size).to(dtype) * (1 + 2j) + r * 1j for r in range(size))
        x = wide.clone()
        dist.reduce(x, 0)
        assert rank != 0 or torch.allclose(x, total)
        part = torch.zeros(2, dtype=dtype)
        dist.reduce_scatter_tensor(part, wide)
        assert torch.allclose(part, total[2 * rank : 2 * rank + 2])
        dist.reduce_scatter(part, list(wide.chunk(size)), dist.ReduceOp.AVG)
        assert torch.allclose(part, total[2 * rank : 2 * rank + 2] / size)
        uneven = torch.zeros(rank + 1, dtype=dtype)
        dist.reduce_scatter(uneven, [torch.full((r + 1,), 1j, dtype=dtype) for r in range(size)])
        assert torch.allclose(uneven, torch.full((rank + 1,), size * 1j, dtype=dtype))
        for x in (wide.conj().imag, torch._neg_view(wide.imag.contiguous())):  # negated when they are read
            x = x if rank == 0 else torch.zeros(2 * size, dtype=wide.real.dtype)
            dist.broadcast(x, 0)
            assert x[1].item() == -2.0, x
    expect_error(lambda: dist.reduce(wide, 0, dist.ReduceOp.PRODUCT), "PRODUCT", "Complex", error=RuntimeError)
    return True


def bytes_by_kernels():
    rank, size = dist.get_rank(), dist.get_world_size()
    op = dist.ReduceOp
    for dtype in (torch.int8, torch.bool):
        every = [torch.tensor([(37 * r + 11 * i) % 256 - 128 for i in range(999)]).to(dtype) for r in range(size)]
        if dtype == torch.bool:
            every = [torch.tensor([(r + i) % 3 == 0 for i in range(999)]) for r in range(size)]
        stack = torch.stack(every)
        expected = {op.SUM: stack.sum(0).to(dtype), op.PRODUCT: stack.prod(0).to(dtype)}
        expected |= {op.MIN: stack.amin(0), op.MAX: stack.amax(0)}
        expected[op.BXOR] = every[0]
        for each in every[1:]:
            expected[op.BXOR] = expected[op.BXOR] ^ each
        for how, values in expected.items():
            x = every[rank].clone()
            dist.all_reduce(x, how)
            assert torch.equal(x, values), (dtype, how)
    return True


def child_calls():
    """A forked child is refused, and harms no one."""
    rank = dist.get_rank()
    x = torch.ones(2)
    dist.all_reduce(x)
    pending = dist.irecv(torch.zeros(1), 1 - rank)
    calls = (
        lambda: dist.all_reduce(x),
        lambda: dist.isend(x, 1 - rank),
        lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=5)),
        lambda: dist.new_group(),
        lambda: pending.wait(),
        lambda: dist.group.WORLD._get_backend(torch.device("cpu")).abort(),
    )
    if os.fork() == 0:
        found = 1
        try:
            for call in calls:
                text = expect_error(call, "forked child", str(os.getpid()), str(os.getppid()), error=RuntimeError)
            dist.destroy_process_group()
            del pending, calls, call, text
            found = 0
        finally:
            os.write(2, b"" if found == 0 else b"the forked child failed\n")
            atexit._run_exitfuncs()  # as at the end of a script
            os._exit(found)
    _, status = os.wait()
    dist.send(torch.ones(1), 1 - rank)
    pending.wait()
    dist.all_reduce(x)
    return os.waitstatus_to_exitcode(status), x.tolist()


def bad_arguments():
    rank = dist.get_rank()
    expect_error(lambda: dist.group.WORLD.broadcast(torch.ones(2), 7), "root", error=RuntimeError)
    expect_error(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "BAND", "Float", error=RuntimeError)
    expect_error(lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)), "expected 2", error=RuntimeError)
    expect_error(lambda: dist.init_process_group("unisono"), "twice", error=ValueError)
    expect_error(lambda: dist.new_group(pg_options=unisono_torch.Options(transport="pigeons")), "pigeons", error=RuntimeError)
    x = torch.full((2,), float(rank))
    dist.all_reduce(x)
    return x.tolist()


def abort():
    x = torch.ones(10)
    dist.all_reduce(x)  # on a device, the first one waits for the other ranks
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        return expect_error(lambda: work.wait(), "rank 0", "abort")
    return expect_error(lambda: dist.barrier() or dist.all_reduce(x), "rank 0", "abort")


def many_in_flight():
    """Works are started far faster than they end; each look at them must not cost the more, the more they are."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [[torch.zeros(1) for _ in range(size)] for _ in range(3000)]
    futures = [
        dist.gather(torch.tensor([float(i + rank)]), each if rank == i % size else None, dst=i % size, async_op=True).get_future()
        for i, each in enumerate(parts)
    ]
    for future in futures:
        future.wait()
    for i, each in enumerate(parts):
        assert rank != i % size or [x.item() for x in each] == [float(i + r) for r in range(size)]
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_gather_into_tensor(torch.zeros(3 * size), torch.zeros(3))
    shapes = [event.input_shapes for event in profile.function_events if event.name == "unisono:all_gather_into_tensor"]
    assert shapes == [[[3]]], shapes


def bound_to_device():
    """With a device_id PyTorch splits groups, and calls NCCL's part for ranks that are not in the new one."""
    dist.init_process_group("unisono", device_id=torch.device("cpu:0"))
    group = dist.new_group([0])
    x = torch.ones(3)
    if dist.get_rank() == 0:
        dist.all_reduce(x, group=group)
    dist.barrier()
    dist.destroy_process_group()
    return x.tolist()


class Import(unittest.TestCase):
    def test_does_not_ask_for_gpus(self):
        script = """
import torch
def asked(*_):
    raise AssertionError("initialises CUDA's driver")
torch.cuda.is_available = torch.cuda.device_count = torch._C._cuda_getDeviceCount = asked
import unisono_torch
"""
        subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


class Collectives(unittest.TestCase):
    def test_new_group_of_bound_job(self):
        run(2, bound_to_device, initialise=False)

    def test_collectives_as_gloo(self):
        for size, environment, transport in WORLDS:
            with self.subTest(size=size, transport=transport):
                counts = run(size, collectives, transport, environment=environment)
                self.assertGreater(min(counts), 250)
                print(f"{transport}, {size} ranks: {counts[0]} comparisons")

    def test_split_group(self):
        run(4, split)
        run(4, split, environment={"UNISONO_HOSTS": "a,a,b,b"})

    def test_complex_numbers(self):
        run(3, complex_numbers)
        run(2, complex_numbers, environment={"UNISONO_TORCH_REPRODUCIBLE": "1"})

    def test_small_integers(self):
        run(3, bytes_by_kernels)

    def test_many_in_flight(self):
        run(4, many_in_flight)

    def test_single_rank(self):
        self.assertGreater(run(1, alone)[0], 0)


def alone():
    x = torch.ones(3)
    for call in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.reduce(t, 0)):
        call(x)
    y = torch.zeros(3)
    dist.all_gather_into_tensor(y, x)
    dist.reduce_scatter_tensor(y, x)
    dist.all_to_all_single(y, x)
    dist.barrier()
    return y.sum().item()


class Training(unittest.TestCase):
    def test_data_parallel_as_gloo(self):
        for size, environment, _ in WORLDS[:3:2]:
            with self.subTest(size=size):
                mine = run(size, data_parallel, "unisono", environment=environment)
                gloos = run(size, data_parallel, "gloo")
                for ours, theirs in zip(mine, gloos):
                    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_fully_sharded_as_data_parallel(self):
        whole = run(2, data_parallel, "unisono")
        for rank, both in enumerate(run(2, fully_sharded)):
            for losses in both:
                torch.testing.assert_close(losses, whole[rank], rtol=1e-4, atol=1e-5)

    def test_one_hash_for_any_number_of_workers(self):
        hashes = {}
        for size, environment in ((1, {}), (2, {}), (4, {}), (4, {"UNISONO_HOSTS": "a,b,a,b"})):
            hashes[(size, *environment.values())] = set(run(size, micro_batches, 4, environment=environment))
        print("hashes:", hashes)
        self.assertEqual(len(set.union(*hashes.values())), 1)


class Reproducible(unittest.TestCase):
    def test_sums_do_not_depend_on_order_or_transport(self):
        found = run(3, reproducible)
        self.assertEqual(found, [found[0]] * 3)

    def test_by_environment(self):
        found = run(3, data_parallel, "unisono", environment={"UNISONO_TORCH_REPRODUCIBLE": "1"})
        self.assertEqual(len(found), 3)


class Errors(unittest.TestCase):
    def test_killed_rank_is_named(self):
        for environment in ({}, {"UNISONO_TORCH_TRANSPORT": "tcp"}):
            with self.subTest(**environment):
                for answer in run(3, one_dies, environment=environment, may_die=(1,)):
                    if answer is not None:
                        self.assertLess(answer[0], 20)

    def test_late_rank_is_named(self):
        run(3, one_is_late, timeout_s=2)

    def test_mismatch(self):
        run(2, ranks_disagree)

    def test_monitored_barrier_names_all(self):
        run(4, barrier_misses)

    def test_monitored_barrier_keeps_its_timeout(self):
        for rank, (first, second, third) in enumerate(run(3, barrier_keeps_its_timeout)):
            if rank != 0:
                self.assertIn("Rank 0 failed to pass monitoredBarrier in 2000 ms", first)
            self.assertIn("2 failed to pass", second)
            self.assertEqual(third, "passed")

    @unittest.skipIf(plays_device(), "no process forks after it has used a device")
    def test_forked_child_is_refused(self):
        for environment in ({}, {"UNISONO_TORCH_TRANSPORT": "tcp"}):
            with self.subTest(**environment):
                self.assertEqual(run(2, child_calls, environment=environment), [(0, [4.0, 4.0])] * 2)

    def test_bad_arguments_leave_the_group_usable(self):
        for answer in run(2, bad_arguments):
            self.assertEqual(answer, [1.0, 1.0])

    def test_abort(self):
        run(2, abort)


LEAVING = """
import os, sys, torch, torch.distributed as dist, unisono_torch
dist.init_process_group("unisono")
dist.all_reduce(torch.ones(1))
print("met", flush=True)
if dist.get_rank() == 0:
    {leave}
sys.stdin.readline()
try:
    dist.all_reduce(torch.ones(1))
except dist.DistBackendError as failed:
    print(failed, flush=True)
"""


class Leaving(unittest.TestCase):
    """Rank 0 leaves while rank 1 computes, which ends when the test says so."""

    def start(self, leave):
        port = str(free_port())
        ranks = []
        for rank in range(2):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-c", LEAVING.format(leave=leave)],
                    env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            self.addCleanup(ranks[-1].communicate)
            self.addCleanup(ranks[-1].kill)
        for rank in ranks:
            self.assertEqual(rank.stdout.readline(), "met\n")
        return ranks

    def test_failed_rank_leaves_at_once(self):
        for leave, status in (
            ('raise ValueError("rank 0 gives up")', 1),
            ("sys.exit(3)", 3),
            ('try: raise ValueError("rank 0 gives up")\n    finally: dist.destroy_process_group()', 1),
        ):
            with self.subTest(leave):
                first, second = self.start(leave)
                self.assertEqual(first.wait(timeout=60), status)
                self.assertIn("rank 0", second.communicate("\n", timeout=60)[0])

    def test_rank_that_has_not_failed_waits(self):
        first, second = self.start("sys.exit(0)")
        with self.assertRaises(subprocess.TimeoutExpired):
            first.wait(timeout=4)
        second.communicate("\n", timeout=60)
        self.assertEqual(first.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
