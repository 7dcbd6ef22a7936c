"""Programs that live as long as a comparison and take turns: each rank of one sleeps in a read between its turns.

A program is started with a directory and a number of ranks. In the directory is a socket, `driver`: each rank connects,
says "hello RANK", and then answers each line with one line of JSON, until the connection ends. And a page of zeros,
`meeting`, where its ranks may meet (driver.hpp has the other end).
"""

import json
import os
import selectors
import socket
import subprocess
import time


def quantile(values, part):
    values = sorted(values)
    at = part * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def median(values):
    return quantile(values, 0.5)


class Failed(Exception):
    """A contender's end, or nothing to compare."""

    def __init__(self, why, contender=None):
        super().__init__(why)
        self.contender = contender


class Contender:
    """The processes of one contender in a world of `ranks`."""

    def __init__(self, name, title, command, environment, ranks, place):
        self.name, self.title, self.ranks, self.place = name, title, ranks, place
        self.learned = set()  # what the code that gives the turns has learned
        place.mkdir(0o700)
        (place / "meeting").write_bytes(bytes(4096))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(place / "driver"))
        listener.listen(ranks)
        listener.settimeout(1)
        self.log = open(place / "log", "wb")
        self.process = subprocess.Popen(command + [str(place), str(ranks)] + environment.get("arguments", []),
                                        env=os.environ | environment.get("variables", {}), stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        self.lines = [None] * ranks
        self.buffers = [b""] * ranks
        until = time.monotonic() + 60
        while None in self.lines:
            try:
                line = listener.accept()[0]
                # It sends nothing else before it is asked.
                rank = int(line.makefile("r").readline().split()[1])
                self.lines[rank] = line
            except TimeoutError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.fail("did not start")
        listener.close()

    def order(self, text, limit_s=200):
        """Sends a line to all ranks and waits until all have answered; their answers, by rank."""
        for line in self.lines:
            try:
                line.sendall((text + "\n").encode())
            except OSError:
                self.fail(f"ended at '{text}'")
        waiting = selectors.DefaultSelector()
        for rank, line in enumerate(self.lines):
            waiting.register(line, selectors.EVENT_READ, rank)
        answers = {}
        until = time.monotonic() + limit_s
        while len(answers) < self.ranks:
            ready = waiting.select(until - time.monotonic())
            if not ready:
                self.fail(f"gave no answer to '{text}' in {limit_s} s")
            for key, _ in ready:
                some = key.fileobj.recv(1 << 16)
                if not some:
                    self.fail(f"ended at '{text}'")
                self.buffers[key.data] += some
                if self.buffers[key.data].endswith(b"\n"):
                    answers[key.data] = json.loads(self.buffers[key.data])
                    self.buffers[key.data] = b""
        waiting.close()
        return [answers[rank] for rank in range(self.ranks)]

    def fail(self, why):
        time.sleep(0.2)  # for its last output
        self.stop(at_once=True)
        words = (self.place / "log").read_text(errors="replace").strip()
        words = f"; it says:\n{words[-2000:]}" if words else ""
        raise Failed(f"{self.title}, {self.ranks} ranks: {why}{words}", self)

    def stop(self, at_once=False):
        for line in self.lines:
            if line is not None:
                line.close()  # this means "quit"
        if at_once:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
