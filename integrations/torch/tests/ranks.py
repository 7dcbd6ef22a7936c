"""Runs a function on some processes that meet as torchrun's do, with a deadline."""

import atexit
import ctypes
import datetime
import os
import socket
import time
import traceback

import torch
import torch.multiprocessing as multiprocessing


def plays_device() -> bool:
    """Whether this build's tensors of the host play those of a device (tests/stand_in)."""
    import unisono_torch

    return hasattr(ctypes.CDLL(unisono_torch._C.__file__), "stand_in_enqueue")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _leave(status):
    """Ends this process as a script ends. multiprocessing would skip what ends with Python."""
    atexit._run_exitfuncs()
    ctypes.PyDLL(None).exit(status)  # with the lock: destructors of PyTorch need Python


def _rank(rank, size, port, body, environment, timeout_s, initialise, arguments, answers):
    try:
        os.environ.update(environment)
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo"
        )
        torch.set_num_threads(1)
        import torch.distributed as dist

        import unisono_torch  # noqa: F401

        if initialise:
            dist.init_process_group(
                environment.get("TEST_BACKEND", "unisono"), timeout=datetime.timedelta(seconds=timeout_s)
            )
        answers.put((rank, None, body(*arguments)))
        if initialise and dist.is_initialized():
            dist.destroy_process_group()
        status = 0
    except BaseException:
        answers.put((rank, traceback.format_exc(), None))
        status = 1
    answers.close()
    answers.join_thread()
    _leave(status)


def run(size, body, *arguments, environment=None, timeout_s=60, deadline_s=120, initialise=True, may_die=()):
    """The answers of all ranks, in their order. A rank's exception, or its silence, is an AssertionError; None for ranks that may die."""
    context = multiprocessing.get_context("forkserver")  # it imports PyTorch once
    context.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.fsdp"])
    answers = context.Queue()
    port = free_port()
    processes = [
        context.Process(
            target=_rank,
            args=(rank, size, port, body, environment or {}, timeout_s, initialise, arguments, answers),
            daemon=True,
        )
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    found = {}
    until = time.monotonic() + deadline_s
    try:
        while len(found) < size - len(may_die):
            left = until - time.monotonic()
            assert left > 0, f"ranks {sorted(set(range(size)) - set(found) - set(may_die))} did not end in {deadline_s} s"
            try:
                rank, failed, answer = answers.get(timeout=min(left, 1.0))
            except Exception:
                continue
            assert failed is None, f"rank {rank} of {size}:\n{failed}"
            found[rank] = answer
        for rank, process in enumerate(processes):
            process.join(0 if rank in may_die else max(0.1, until - time.monotonic()))
            assert rank in may_die or process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    return [found.get(rank) for rank in range(size)]
