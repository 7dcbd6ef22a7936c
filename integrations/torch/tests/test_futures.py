"""Callbacks of futures that start and await other operations, and PyTorch's own communication hooks, beside Gloo."""

import threading
import time
import unittest

import torch
import torch.distributed as dist
from ranks import run
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

import unisono_torch  # noqa: F401


# The batched hook of PyTorch 2.15 gives a matrix where a stack of matrices is expected, and fails
# with every backend.
orthogonalize = powerSGD_hook._orthogonalize
powerSGD_hook._orthogonalize = lambda some, epsilon=0: orthogonalize(some.unsqueeze(0) if some.dim() == 2 else some, epsilon)


def start(value=1.0, count=3):
    return dist.all_reduce(torch.full((count,), float(value)), async_op=True)


def awaits_what_it_starts():
    size = dist.get_world_size()

    def second(first):
        return start(first.value()[0][0].item()).get_future().wait()[0]

    for _ in range(100):
        assert start().get_future().then(second).wait().tolist() == [float(size * size)] * 3

    # A work in place of a future; and a chain that is several callbacks deep.
    def third(first):
        x = torch.ones(3)
        dist.all_reduce(x)
        return x + start().get_future().then(second).wait() + first.value()[0]

    for _ in range(20):
        found = start().get_future().then(third)
        assert found.wait().tolist() == [float(2 * size + size * size)] * 3
    work = start()
    found = work.get_future().then(lambda done: (work.wait(), done.value()[0])[1])  # its own work has ended
    assert found.wait()[0].item() == size
    work.wait()
    return True


def awaits_what_was_started():
    """By others, and later: no order of futures and no waiting thread makes them hang."""
    size = dist.get_world_size()
    for _ in range(10):
        first, second = start(1), start(2)
        found = [
            first.get_future().then(lambda done, other=second.get_future(): other.wait()[0][0].item()),
            second.get_future().then(lambda done: done.value()[0][0].item()),
        ]
        second.wait()
        assert torch.futures.wait_all(found) == [2.0 * size] * 2
    other = dist.new_group()
    for _ in range(10):
        x = torch.ones(2)
        future = dist.all_reduce(x, group=other, async_op=True).get_future()
        found = start().get_future().then(lambda done, future=future: future.wait()[0][0].item())
        assert found.wait() == size
    return True


def order_and_threads():
    """Each callback runs once. Many that wait at a time have few threads."""
    seen = []
    torch.futures.wait_all([start(i).get_future().then(lambda done, i=i: seen.append(i)) for i in range(300)])
    assert sorted(seen) == list(range(300))
    gate, most = torch.futures.Future(), 0
    running, lock = set(), threading.Lock()

    def stuck(done):
        nonlocal most
        if threading.current_thread() is threading.main_thread():
            return  # the future was complete when the callback came
        with lock:
            running.add(threading.get_ident())
            most = max(most, len(running))
        gate.wait()
        with lock:
            running.discard(threading.get_ident())

    futures = [start(i).get_future().then(stuck) for i in range(300)]
    time.sleep(1)
    dist.all_reduce(torch.ones(2))  # the group is as usable as before
    gate.set_result(None)
    torch.futures.wait_all(futures)
    assert most < 40, f"{most} callbacks at a time"
    return True


def raises_in_callback():
    def fails(done):
        raise ValueError("a callback gives up")

    future = start().get_future().then(fails)
    try:
        future.wait()
    except Exception as failed:
        assert "a callback gives up" in str(failed), failed
    else:
        raise AssertionError("the future has no error")
    x = torch.ones(2)
    dist.all_reduce(x)
    return x[0].item()


def left_in_callback():
    """The group ends while a callback waits for an operation that cannot end: an error, and no hang."""
    rank = dist.get_rank()
    begun = threading.Event()

    def receive(done):
        begun.set()
        dist.recv(torch.ones(1), 1 - rank)

    future = start().get_future().then(receive)
    assert begun.wait(30)
    time.sleep(0.3)
    dist.destroy_process_group()
    try:
        future.wait()
    except Exception as failed:
        return str(failed)
    raise AssertionError("the message that nobody sent has arrived")


def model_of(steps, hook):
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(60, 80), torch.nn.ReLU(), torch.nn.Linear(80, 20))
    # One bucket: callbacks that start operations do so in no set order beside the other buckets.
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=100)
    after = hook(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        model(torch.randn(5, 60, generator=generator)).square().mean().backward()
        optimizer.step()
        if after is not None:
            after(model)
        optimizer.zero_grad()
    return [parameter.tolist() for parameter in model.parameters()]


def plain(hook, state=None):
    return lambda model: model.register_comm_hook(state, hook)


def power(hook, **options):
    def register(model):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, **options)
        model.register_comm_hook(state, hook)

    return register


def post_local(model):
    halves = [list(range(first, first + 2)) for first in range(0, dist.get_world_size(), 2)]
    mine, _ = dist.new_subgroups_by_enumeration(halves)
    model.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, mine, start_localSGD_iter=3), post_localSGD_hook.post_localSGD_hook
    )
    averager = PeriodicModelAverager(period=4, warmup_steps=3)
    return lambda model: averager.average_parameters(model.parameters())


HOOKS = {
    "all_reduce": plain(default_hooks.allreduce_hook),
    "fp16_compress": plain(default_hooks.fp16_compress_hook),
    "bf16_compress": plain(default_hooks.bf16_compress_hook),
    "PowerSGD": power(powerSGD_hook.powerSGD_hook),
    "PowerSGD without warm start": power(powerSGD_hook.powerSGD_hook, warm_start=False, use_error_feedback=False),
    "batched PowerSGD": power(powerSGD_hook.batched_powerSGD_hook),
    "PowerSGD in 16 bits": power(default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    "post-local SGD": post_local,
}


def hooks():
    return {name: model_of(12, hook) for name, hook in HOOKS.items()}


class Branches(torch.nn.Module):
    """Three buckets whose factors have six different sizes: sums of equal size that change places go unnoticed."""

    def __init__(self):
        super().__init__()
        sizes = ((60, 91), (92, 73), (71, 50), (52, 20))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(*pair, bias=False) for pair in sizes)

    def forward(self, rows):
        return sum(layer(rows[:, : layer.in_features]).square().mean() for layer in self.layers)


def several_buckets(steps):
    """The parameters, or the error: the callbacks of several buckets start operations in an order of their own on each rank."""
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(Branches(), bucket_cap_mb=0.01)
    power(powerSGD_hook.powerSGD_hook)(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    try:
        for _ in range(steps):
            model(torch.randn(5, 92, generator=generator)).backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
    except Exception as failed:
        return str(failed)
    return [parameter.tolist() for parameter in model.parameters()]


class Callbacks(unittest.TestCase):
    def test_callback_awaits_what_it_starts(self):
        for size in (2, 4):
            run(size, awaits_what_it_starts)
        run(2, awaits_what_it_starts, environment={"UNISONO_TORCH_TRANSPORT": "tcp"})

    def test_callback_awaits_what_was_started(self):
        run(2, awaits_what_was_started)

    def test_order_and_number_of_threads(self):
        run(2, order_and_threads)

    def test_error_in_callback(self):
        self.assertEqual(run(2, raises_in_callback), [2.0, 2.0])

    def test_group_ends_during_callback(self):
        for text in run(2, left_in_callback):
            self.assertIn("unisono", text)


class Hooks(unittest.TestCase):
    def test_hooks_as_gloo(self):
        for size in (2, 4):
            mine = run(size, hooks, timeout_s=20)
            gloos = run(size, hooks, timeout_s=20, environment={"TEST_BACKEND": "gloo"})
            for name in HOOKS:
                tolerance = 2e-2 if "16" in name else 1e-4
                for rank in range(size):
                    for ours, theirs in zip(mine[rank][name], gloos[rank][name]):
                        torch.testing.assert_close(
                            torch.tensor(ours),
                            torch.tensor(theirs),
                            rtol=tolerance,
                            atol=tolerance,
                            msg=lambda text: f"{name}, {size} ranks: {text}",
                        )

    def test_several_buckets_are_right_or_a_mismatch(self):
        for size in (2, 4):
            found = run(size, several_buckets, 12, timeout_s=20)
            failed = [each for each in found if isinstance(each, str)]
            print(f"PowerSGD of several buckets, {size} ranks: {len(failed)} ranks have an error")
            self.assertIn(len(failed), (0, size))
            for text in failed:
                self.assertIn("mismatch", text)
            if not failed:
                self.assertEqual(found, [found[0]] * size)


if __name__ == "__main__":
    unittest.main(verbosity=2)
