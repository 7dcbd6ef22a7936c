"""Collectives that go from device to device, over the stand-in for NCCL. Its ranks are threads, each with a device of its own."""

import ctypes
import datetime
import os
import sys
import threading
import time
import traceback
import unittest

import torch
import torch.distributed as dist
from ranks import plays_device, run
from test_unisono_torch import expect_error
from torch.distributed.distributed_c10d import AllgatherOptions

from unisono_torch import _C

LIBRARY = ctypes.CDLL(_C.__file__)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64)
OPERATIONS = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)


def take_calls():
    """The calls of NCCL since the last question, by all ranks. What NCCL forbids is an error."""
    room = ctypes.create_string_buffer(100_000)
    LIBRARY.stand_in_take_calls(room, ctypes.c_size_t(len(room)))
    found = room.value.decode()
    assert "MISUSE" not in found, found
    return found.split()


def together(body, devices, *arguments, timeout_s=60, deadline_s=100, **options):
    """The answers of ranks with these devices, in their order. A rank's exception, or its silence, is an AssertionError."""
    size, store = len(devices), dist.HashStore()
    found, failed = {}, []

    def rank_of(rank):
        try:
            LIBRARY.stand_in_use_device(devices[rank])
            mine = {name: value[rank] if isinstance(value, list) else value for name, value in options.items()}
            backend = _C.create(
                store=store, rank=rank, size=size, timeout=datetime.timedelta(seconds=timeout_s), name="",
                transport=mine.get("transport", "auto"),
                reproducible=mine.get("reproducible", False), blocking_wait=mine.get("blocking_wait", True), global_ranks=[], hosts=[],
                nccl=mine.get("nccl", True),
            )  # fmt: skip
            found[rank] = body(rank, size, backend, *arguments)
            backend.shutdown()
        except BaseException:
            failed.append(f"rank {rank} of {size}:\n{traceback.format_exc()}")

    threads = [threading.Thread(target=rank_of, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        while thread.is_alive() and not failed:
            assert time.monotonic() < until, f"ranks {sorted(set(range(size)) - set(found))} did not end in {deadline_s} s"
            thread.join(0.1)
    assert not failed, failed[0]
    return [found[rank] for rank in range(size)]


def in_a_process(body, *arguments):
    """For what changes the stand-in until the end of the process."""
    return run(1, body, *arguments, initialise=False)[0]


def values(rank, count, dtype):
    """Sums of some of them are exact in all types."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(1, 5, (count,), generator=generator).to(dtype)


def options_of(kind, operation=None, root=None, seconds=None):
    made = kind()
    if operation is not None:
        made.reduceOp = operation
    if root is not None:
        made.rootRank = root
    if seconds is not None:
        made.timeout = datetime.timedelta(seconds=seconds)
    return made


def all_reduce(backend, x, operation=dist.ReduceOp.SUM, seconds=None):
    return backend.allreduce([x], options_of(dist.AllreduceOptions, operation, seconds=seconds))


def reductions(rank, size, backend):
    """The results of all calls that NCCL has, in an order."""
    found = []
    for dtype in DTYPES:
        for operation in (*OPERATIONS, *([dist.ReduceOp.AVG] if dtype.is_floating_point else [])):
            x = values(rank, 37, dtype)
            all_reduce(backend, x, operation).wait()
            found.append(x)
            x = values(rank, 37, dtype)
            backend.reduce([x], options_of(dist.ReduceOptions, operation, root=size - 1)).wait()
            found += [x] if rank == size - 1 else []
            part = torch.zeros(5, dtype=dtype)
            backend._reduce_scatter_base(part, values(rank, 5 * size, dtype), options_of(dist.ReduceScatterOptions, operation)).wait()
            found.append(part)
            part = torch.zeros(5, dtype=dtype)
            parts = list(values(rank, 5 * size, dtype).chunk(size))
            backend.reduce_scatter([part], [[each.clone() for each in parts]], options_of(dist.ReduceScatterOptions, operation)).wait()
            found.append(part)
    x = torch.complex(values(rank, 9, torch.float32), values(rank + 7, 9, torch.float32))
    all_reduce(backend, x).wait()
    found.append(x)
    x = torch.stack([values(rank, 6, torch.float32)] * 4).t()  # not flat
    all_reduce(backend, x).wait()
    found.append(x)
    one, two = values(rank, 6, torch.float32), values(rank, 8, torch.float32)
    backend.allreduce_coalesced([one, two], dist.AllreduceCoalescedOptions()).wait()
    found += [one, two]
    x = values(rank, 4 * size, torch.float32)
    mine = x[4 * rank : 4 * rank + 4]  # in place
    backend._reduce_scatter_base(mine, x, dist.ReduceScatterOptions()).wait()
    found.append(mine.clone())
    return found


def moves(rank, size, backend):
    found = []
    for dtype in (*DTYPES, torch.bool, torch.int8, torch.int16, torch.complex64):
        x = values(rank, 11, dtype)
        backend.broadcast([x], options_of(dist.BroadcastOptions, root=size - 1)).wait()
        out = torch.zeros(11 * size, dtype=dtype)
        backend._allgather_base(out, values(rank, 11, dtype), AllgatherOptions()).wait()
        apart = [torch.zeros(11, dtype=dtype) for _ in range(size)]
        backend.allgather([apart], [values(rank, 11, dtype)], AllgatherOptions()).wait()
        found += [x, out, *apart]
    square = values(rank, 16, torch.float32).reshape(4, 4).t()
    backend.broadcast([square], options_of(dist.BroadcastOptions, root=0)).wait()
    out = torch.zeros(16 * size)
    backend._allgather_base(out, values(rank, 16, torch.float32).reshape(4, 4).t(), AllgatherOptions()).wait()
    whole = torch.zeros(3 * size)
    whole[3 * rank : 3 * rank + 3] = rank
    backend._allgather_base(whole, whole[3 * rank : 3 * rank + 3], AllgatherOptions()).wait()  # in place
    shifted = torch.arange(3.0 * size)
    backend._allgather_base(shifted, shifted[size - 1 : size + 2], AllgatherOptions()).wait()  # overlaps, not all of them in place
    several = [[torch.zeros(3), torch.zeros(4)] for _ in range(size)]
    backend.allgather_coalesced(several, [values(rank, 3, torch.float32), values(rank, 4, torch.float32)], AllgatherOptions()).wait()
    return [*found, square, out, whole, shifted, *(each for one in several for each in one)]


def others(rank, size, backend):
    """What NCCL has not, or what is left to the host."""
    found = []
    for dtype in (torch.bool, torch.int8, torch.uint8, torch.int16):
        x = values(rank, 5, dtype)
        all_reduce(backend, x, dist.ReduceOp.MAX).wait()
        found.append(x)
    x = values(rank, 5, torch.int64)
    all_reduce(backend, x, dist.ReduceOp.BXOR).wait()
    sizes = [r + 1 for r in range(size)]
    part = torch.zeros(rank + 1)
    backend.reduce_scatter([part], [list(values(rank, sum(sizes), torch.float32).split(sizes))], dist.ReduceScatterOptions()).wait()
    empty = torch.zeros(0)
    all_reduce(backend, empty).wait()
    got, sent = torch.zeros(4 * size), values(rank, 4 * size, torch.float32)
    backend.alltoall_base(got, sent, [], [], dist.AllToAllOptions()).wait()
    message = values(rank, 9, torch.float32)
    if rank == 0:
        backend.send([message], 1, 3).wait()
    elif rank == 1:
        backend.recv([message], 0, 3).wait()
    backend.barrier(dist.BarrierOptions()).wait()
    return [*found, x, part, got, message]


def decides_first(rank, size, backend, body):
    x = torch.ones(3)
    all_reduce(backend, x).wait()
    assert x.tolist() == [float(size)] * 3, x
    return _C.device_transport(backend), body(rank, size, backend)


def coalesced(rank, size, backend):
    xs = [values(rank, n, torch.float32) for n in (3, 100)]
    backend._start_coalescing()
    works = [all_reduce(backend, x) for x in xs]
    backend._end_coalescing().wait()
    assert all(work.is_completed() for work in works)
    return xs


def one_tensor(rank, size, backend):
    """Without a wait between them, the calls take effect one after the other, by NCCL and by the host."""
    for _ in range(20):
        x = torch.ones(100_000)
        works = [all_reduce(backend, x[:-1]), all_reduce(backend, x[1:])]
        big = torch.full((1000, 30), 1)
        works += [all_reduce(backend, big), all_reduce(backend, big, dist.ReduceOp.BXOR)]
        works += [all_reduce(backend, big.t()), all_reduce(backend, big)]
        for work in works:
            work.wait()
        assert x[1:-1].eq(size * size).all(), x[:3]
        odd = size if size % 2 == 1 else 0
        assert big.eq(odd * size * size).all(), big[:3]
    return []


def in_the_order_of_the_stream(rank, size, backend):
    """The host does not wait for it."""
    kept, seen, x = [], [], torch.zeros(1000)
    all_reduce(backend, x).wait()

    def enqueue(work):
        kept.append(ctypes.CFUNCTYPE(None)(work))
        LIBRARY.stand_in_enqueue(kept[-1])

    enqueue(lambda: (time.sleep(1.0 + rank), x.fill_(rank + 1.0)))
    begun = time.monotonic()
    work = all_reduce(backend, x)
    work.wait()
    enqueue(lambda: seen.append(x.clone()))
    assert time.monotonic() - begun < 0.7
    assert not work.is_completed()
    LIBRARY.stand_in_synchronize()
    assert work.is_completed()
    assert seen[0].eq(size * (size + 1) / 2).all(), seen[0][:3]
    return _C.device_transport(backend)


def silence(rank, backend, which):
    """NCCL's calls on the streams of rank `which` wait until another one, or -1, is silent. The ranks call this together."""
    barrier(backend)
    if rank == 0:
        LIBRARY.stand_in_silence_nccl(which)
    barrier(backend)


def all_have_checked(backend):
    """Nothing of the calls before is in flight between the hosts any more."""
    time.sleep(0.5)
    barrier(backend)


def call_for_several(backend, name, outputs, inputs, options):
    """As PyTorch calls it: not every version offers the call on the backend itself."""
    group = dist.ProcessGroup(backend.rank(), backend.size())
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    return getattr(group, name)(outputs, inputs, options), group


def several_in_one_call(rank, size, backend):
    """Some of them go by NCCL, others by the host. The work ends with all of them."""
    all_reduce(backend, torch.ones(3)).wait()
    silence(rank, backend, 1)
    parts = [torch.zeros(5), torch.zeros(4, dtype=torch.int8)]
    wholes = [torch.zeros(3 * size), torch.zeros(0)]
    given = [values(rank, 5 * size, torch.float32), values(rank, 4 * size, torch.int8)]
    scattered, kept = call_for_several(backend, "reduce_scatter_tensor_coalesced", parts, given, dist.ReduceScatterOptions())
    time.sleep(0.5)
    assert not scattered.is_completed()
    silence(rank, backend, -1)
    scattered.wait()
    silence(rank, backend, 1)
    given = [values(rank, 3, torch.float32), torch.zeros(0)]
    gathered, kept_too = call_for_several(backend, "allgather_into_tensor_coalesced", wholes, given, AllgatherOptions())
    time.sleep(0.5)
    assert not gathered.is_completed()
    silence(rank, backend, -1)
    gathered.wait()
    del kept, kept_too
    all_parts = [sum(values(r, n * size, dtype) for r in range(size)).to(dtype) for n, dtype in ((5, torch.float32), (4, torch.int8))]
    for part, each in zip(parts, all_parts):
        assert torch.equal(part, each.chunk(size)[rank]), part
    assert torch.equal(wholes[0], torch.cat([values(r, 3, torch.float32) for r in range(size)])), wholes[0]
    return True


def barrier_follows(rank, size, backend):
    """A device's barrier ends after the calls by NCCL before it."""
    x = torch.ones(10)
    all_reduce(backend, x).wait()
    silence(rank, backend, 1)
    first = all_reduce(backend, x)
    options = dist.BarrierOptions()
    options.device_ids = [0]
    second = backend.barrier(options)
    time.sleep(0.5)
    assert not second.is_completed()
    silence(rank, backend, -1)
    second.wait()
    assert first.is_completed()
    return True


def capture_is_refused(rank, size, backend):
    """Before the ranks decide anything."""
    if rank == 0:
        begun = time.monotonic()
        LIBRARY.stand_in_capture(1)
        expect_error(lambda: all_reduce(backend, torch.ones(3)), "all_reduce", "captured", error=RuntimeError)
        LIBRARY.stand_in_capture(0)
        assert time.monotonic() - begun < 2
    else:
        time.sleep(3)
    return decides_first(rank, size, backend, lambda *_: None)[0]


# --- faults --------------------------------------------------------------------------------------


def fails(backend, call, *words, within=8.0):
    """The call, or its work, ends with an error that has these words, and so does the next one. The stream goes on."""
    begun = time.monotonic()
    expect_error(lambda: call().wait(datetime.timedelta(seconds=30)), *words)
    took = time.monotonic() - begun
    assert took < within, f"after {took} s"
    LIBRARY.stand_in_synchronize()
    expect_error(lambda: all_reduce(backend, torch.ones(3)).wait(datetime.timedelta(seconds=30)), words[0])
    return True


def one_is_late(rank, size, backend):
    x = torch.ones(1000)
    all_reduce(backend, x).wait()
    if rank == 1:
        time.sleep(5)
    return fails(backend, lambda: all_reduce(backend, x), "rank 1", "timeout")


def one_is_late_to_the_first(rank, size, backend):
    if rank == 1:
        time.sleep(5)
    return fails(backend, lambda: all_reduce(backend, torch.ones(3)), "rank 1", "timeout")


def one_stream_is_stuck(rank, size, backend):
    x = torch.ones(1000)
    all_reduce(backend, x).wait()
    if rank == 0:
        hold = ctypes.CFUNCTYPE(None)(lambda: time.sleep(6))
        LIBRARY.stand_in_enqueue(hold)
    return fails(backend, lambda: all_reduce(backend, x), "rank 0", "timeout", within=5.0)


def one_aborts(rank, size, backend):
    x = torch.ones(1000)
    all_reduce(backend, x).wait()
    if rank == 0:
        time.sleep(0.5)
        backend.abort()
        return expect_error(lambda: all_reduce(backend, x), "rank 0", "abort")
    return fails(backend, lambda: all_reduce(backend, x), "rank 0", "abort")


def calls_differ(rank, size, backend):
    x = torch.ones(10 + 5 * (rank == 1))
    all_reduce(backend, torch.ones(3)).wait()
    return fails(backend, lambda: all_reduce(backend, x), "mismatch", "rank 1", "all_reduce of 10", "all_reduce of 15")


def operations_differ(rank, size, backend):
    """One of them by NCCL, the other by the host."""
    all_reduce(backend, torch.ones(3)).wait()
    x = torch.ones(10, dtype=torch.int32 if rank == 0 else torch.bool)
    return fails(backend, lambda: all_reduce(backend, x, dist.ReduceOp.MAX), "mismatch", "rank 0")


def nccl_fails(devices):
    def body(rank, size, backend):
        all_reduce(backend, torch.ones(3)).wait()
        barrier(backend)
        if rank == 0:
            LIBRARY.stand_in_fail_nccl(1)
        barrier(backend)
        return fails(backend, lambda: all_reduce(backend, torch.ones(3)), "rank 1", "NCCL")

    return together(body, devices)


def nccl_is_silent(devices):
    def body(rank, size, backend):
        all_reduce(backend, torch.ones(3)).wait()
        silence(rank, backend, 1)
        begun = time.monotonic()
        fails(backend, lambda: all_reduce(backend, torch.ones(3)), "timeout", "NCCL has not ended it")
        return time.monotonic() - begun

    return together(body, devices, timeout_s=2)


def one_stays_away_from_nccl(devices):
    def body(rank, size, backend):
        return fails(backend, lambda: all_reduce(backend, torch.ones(3), seconds=2), "NCCL's communicator was not ready")

    LIBRARY.stand_in_keep_from_nccl(1)
    return together(body, devices)


def one_gives_up(rank, size, backend, how):
    """All ranks have called, and only NCCL's call is in flight."""
    x = torch.ones(1000)
    all_reduce(backend, x).wait()
    silence(rank, backend, 1)
    works = [all_reduce(backend, x, seconds=60), all_reduce(backend, x, seconds=60)]
    all_have_checked(backend)
    if rank == 1 and how == "left":
        return backend.shutdown()
    if rank == 1:
        backend.abort()
    return [fails(backend, lambda: work, "rank 1", how) for work in works]


def program_waits_for_device(rank, size, backend):
    """One thread of the program waits for the device, which waits for NCCL. No other one can call the device meanwhile."""
    x = torch.ones(1000)
    all_reduce(backend, x).wait()
    silence(rank, backend, 1)
    work = all_reduce(backend, x, seconds=60)
    all_have_checked(backend)
    waits = threading.Thread(target=LIBRARY.stand_in_allocate, daemon=True)
    if rank == 0:
        waits.start()
    time.sleep(0.3)
    barrier(backend)
    if rank == 1:
        backend.abort()
    fails(backend, lambda: work, "rank 1", "abort")
    if rank == 0:
        waits.join(10)
        assert not waits.is_alive()
    return True


def one_cannot_begin(rank, size, backend):
    """NCCL refuses its communicator to one rank."""
    return fails(backend, lambda: all_reduce(backend, torch.ones(3)), "first collective on a device", "NCCL")


def one_leaves_before_nccl(rank, size, backend):
    """Another of its threads ends the group while the ranks make NCCL's communicator."""
    if rank != 1:
        return fails(backend, lambda: all_reduce(backend, torch.ones(3)), "rank 1", "left")
    threading.Timer(1.0, backend.shutdown).start()
    return expect_error(lambda: all_reduce(backend, torch.ones(3)), "destroyed")


def one_dies_before_nccl():
    """The stand-in makes no communicator of several processes, so the ranks wait for it."""
    LIBRARY.stand_in_use_device(dist.get_rank())
    if dist.get_rank() == 1:
        threading.Timer(1.5, os._exit, [1]).start()
    begun = time.monotonic()
    expect_error(lambda: dist.all_reduce(torch.ones(3)), "rank 1")
    return time.monotonic() - begun


def ends_first(rank, size, backend):
    backend.shutdown()
    return expect_error(lambda: all_reduce(backend, torch.ones(3)), "destroyed")


def barrier(backend):
    backend.barrier(dist.BarrierOptions()).wait()


class Direct(unittest.TestCase):
    def setUp(self):
        take_calls()
        self.addCleanup(LIBRARY.stand_in_play_on)

    def equal_to_mirrors(self, body, size, names):
        devices = list(range(size))
        direct = together(decides_first, devices, body)
        calls = take_calls()
        mirrored = together(decides_first, devices, body, nccl=False)
        self.assertEqual(take_calls(), [])
        self.assertEqual([way for way, _ in direct], ["nccl"] * size)
        self.assertEqual([way for way, _ in mirrored], ["rank 0 does not want NCCL"] * size)
        self.assertEqual(set(calls), {"all_reduce", *names})
        for (_, ours), (_, expected) in zip(direct, mirrored):
            self.assertEqual(len(ours), len(expected))
            for one, other in zip(ours, expected):
                self.assertTrue(torch.equal(one, other), f"{one}, expected {other}")
        return calls

    def test_reductions(self):
        for size in (1, 2, 3):
            with self.subTest(size):
                self.equal_to_mirrors(reductions, size, ["reduce", "reduce_scatter"])

    def test_moves(self):
        for size in (1, 3):
            with self.subTest(size):
                self.equal_to_mirrors(moves, size, ["broadcast", "all_gather"])

    def test_others_by_the_host(self):
        calls = self.equal_to_mirrors(others, 3, [])
        self.assertEqual(calls, ["all_reduce"] * 3)  # the first one

    def test_coalesced(self):
        calls = self.equal_to_mirrors(coalesced, 2, [])
        self.assertEqual(calls, ["all_reduce"] * 6)

    def test_calls_on_one_tensor(self):
        self.equal_to_mirrors(one_tensor, 3, [])

    def test_host_does_not_wait(self):
        self.assertEqual(together(in_the_order_of_the_stream, [0, 1], blocking_wait=False), ["nccl"] * 2)
        self.assertEqual(take_calls(), ["all_reduce"] * 4)

    def test_several_in_one_call(self):
        together(several_in_one_call, [0, 1])

    def test_barrier_follows(self):
        together(barrier_follows, [0, 1])

    def test_capture_is_refused(self):
        self.assertEqual(together(capture_is_refused, [0, 1]), ["nccl"] * 2)

    def test_shared_device(self):
        found = together(decides_first, [0, 1, 0], others)
        self.assertEqual([way for way, _ in found], ["ranks 0 and 2 share a device"] * 3)
        self.assertEqual(take_calls(), [])

    def test_one_does_not_want_it(self):
        found = together(decides_first, [0, 1], others, nccl=[True, False])
        self.assertEqual([way for way, _ in found], ["rank 1 does not want NCCL"] * 2)
        self.assertEqual(take_calls(), [])

    def test_reproducible(self):
        found = together(decides_first, [0, 1], others, reproducible=True)
        self.assertEqual([way for way, _ in found], ["sums are reproducible"] * 2)
        self.assertEqual(take_calls(), [])


class Faults(unittest.TestCase):
    def setUp(self):
        take_calls()
        self.addCleanup(LIBRARY.stand_in_play_on)

    def test_late_rank_is_named(self):
        together(one_is_late, [0, 1, 2], timeout_s=2)

    def test_late_rank_at_the_first_call(self):
        together(one_is_late_to_the_first, [0, 1, 2], timeout_s=2)

    def test_stuck_stream_is_named(self):
        together(one_stream_is_stuck, [0, 1], timeout_s=2)

    def test_abort(self):
        together(one_aborts, [0, 1, 2])

    def test_mismatch(self):
        together(calls_differ, [0, 1, 2])

    def test_mismatch_with_the_host(self):
        together(operations_differ, [0, 1])

    def test_error_of_nccl(self):
        in_a_process(nccl_fails, [0, 1, 2])

    def test_silence_of_nccl(self):
        self.assertLess(max(in_a_process(nccl_is_silent, [0, 1])), 8)

    def test_no_communicator(self):
        in_a_process(one_stays_away_from_nccl, [0, 1])

    def test_abort_while_nccl_is_silent(self):
        for transport in ("auto", "tcp"):
            with self.subTest(transport):
                together(one_gives_up, [0, 1, 2], "abort", transport=transport)
                LIBRARY.stand_in_play_on()

    def test_end_while_nccl_is_silent(self):
        together(one_gives_up, [0, 1, 2], "left", timeout_s=2)

    def test_program_waits_for_device(self):
        together(program_waits_for_device, [0, 1])

    def test_refused_communicator(self):
        LIBRARY.stand_in_refuse_nccl()
        together(one_cannot_begin, [0, 1, 2])

    def test_end_before_communicator(self):
        LIBRARY.stand_in_keep_from_nccl(1)
        together(one_leaves_before_nccl, [0, 1])

    def test_death_before_communicator(self):
        self.assertLess(run(2, one_dies_before_nccl, may_die=(1,))[0], 10)

    def test_ended_group(self):
        together(ends_first, [0, 1])


if __name__ == "__main__":
    if not plays_device():
        print("skipped: this build is not the stand-in's")
        sys.exit(0)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
