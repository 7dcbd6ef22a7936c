"""Ranks as processes, with a deadline; no launcher watches them."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

here = Path(__file__).resolve().parent


def free_ports(count):
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Ranks:
    def __init__(self, size, task, arguments=None, of_rank=lambda rank: {}):
        port = free_ports(1)[0]
        self.processes = []
        for rank in range(size):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
            environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PYTHONWARNINGS="ignore")
            words = [sys.executable, str(here / "rank.py"), task, json.dumps({**(arguments or {}), **of_rank(rank)})]
            self.processes.append(
                subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()

    def await_line(self, line):
        for process in self.processes:
            said = []
            for found in process.stdout:
                if found.strip() == line:
                    break
                said.append(found)
            else:
                raise AssertionError(f"a rank ended with {process.wait()} before it said '{line}':\n{''.join(said)}")

    def answers(self, deadline_s=200, but=()):
        """(exit status, what the rank printed last, as JSON) of each rank; None for ranks in `but`."""
        until, found = time.monotonic() + deadline_s, []
        for rank, process in enumerate(self.processes):
            if rank in but:
                found.append(None)
                continue
            try:
                text, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} did not end in {deadline_s} s") from None
            try:
                found.append((process.returncode, json.loads(text.strip().splitlines()[-1])))
            except (IndexError, ValueError):
                raise AssertionError(f"rank {rank} ended with {process.returncode}:\n{text}") from None
        return found
