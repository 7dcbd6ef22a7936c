#!/usr/bin/env python3
"""Faults from outside: ranks are killed and stopped, their launcher is stopped, they leave while one is stopped, and they have a full
/dev/shm, a full disk or few descriptors. Over SharedMemory and Tcp, started by hand or by unisono-run.

    outside.py --rank build/dev/tests/faulty_rank --run build/dev/unisono-run [--trials 2000] [--parallel 2] [--seed 1] [--kinds "kill;stop"]

Of each trial: no call of a survivor takes longer than its deadline plus a second (--slack), every survivor names the right rank, no
process is left, and nothing in /dev/shm. The last lines are a table of the kinds. Exit status: 1 where a trial is not as it should be.
"""
import argparse
import collections
import concurrent.futures
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
WORLD_IS_UP = 30  # seconds that a trial waits for what is not a fault: starting on a busy machine

FAILED = re.compile(r"^(?:\[\d+\] )?rank (\d+) (\w+) peer (-?\d+) after (\d+) at (\d+): (.*)$", re.M)
LEFT = re.compile(r"^(?:\[\d+\] )?rank (\d+) left after (\d+)$", re.M)
READY = re.compile(r"^(?:\[(\d+)\] )?ready (\d+)$", re.M)


class Wrong(Exception):
    """What a trial should not have shown."""


class Skipped(Exception):
    """What this machine lacks for a trial."""


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return ""


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def await_that(condition, what, limit=WORLD_IS_UP):
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            raise Wrong(f"{what} not within {limit:.1f} s")
        time.sleep(0.003)


def with_full_folder(path, line):
    """The command in a mount name space of its own, where the folder is a full file system, which ends with the command."""
    script = f'mount -t tmpfs -o size=16k none {path} && {{ cat /dev/zero > {path}/filled; exec "$@"; }} 2>&1'
    return ["unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--mount", "sh", "-c", script, "sh", *line]


def may_mount():
    try:
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(with_full_folder(folder, ["true"]), capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Job:
    """Four ranks, by hand (they meet in a folder; rank 0 keeps the hub) or by unisono-run (the launcher keeps it)."""

    def __init__(self, options, transport, start, mode, victim, full=None, logs=False, descriptors=None):
        self.options, self.start = options, start
        self.folder = tempfile.mkdtemp(prefix="unisono-outside-")
        self.outputs, self.processes = [], []
        rank = [options.rank, transport, str(options.deadline), mode, str(victim), *([str(descriptors)] if descriptors else [])]
        common = {key: value for key, value in os.environ.items() if not key.startswith("UNISONO_")}
        if start == "run":
            logged = ["--log-dir", self.folder] if logs else []
            lines = [([options.run, "-n", str(RANKS), "--grace", "1", "--wait", "1", *logged, *rank], common)]
        else:
            lines = [(rank, common | {"UNISONO_FOLDER": self.folder, "UNISONO_RANK": str(each),
                                      "UNISONO_WORLD_SIZE": str(RANKS)}) for each in range(RANKS)]
        for line, variables in lines:
            if full:
                line = with_full_folder("/dev/shm" if full == "shm" else self.folder, line)
            output = tempfile.TemporaryFile("w+")
            self.outputs.append(output)
            self.processes.append(subprocess.Popen(line, env=variables, stdin=subprocess.DEVNULL, stdout=output,
                                                   stderr=subprocess.STDOUT, start_new_session=True))

    def text(self):
        texts = [os.pread(each.fileno(), 1 << 20, 0).decode(errors="replace") for each in self.outputs]
        return "\n".join(texts)

    @property
    def launcher(self):
        return self.processes[0].pid

    def ranks_are_up(self):
        """Waits; afterwards `pids` has each rank's process."""
        def up():
            self.pids = self.pids_said()
            return len(self.pids) == RANKS
        await_that(up, "all ranks' worlds")

    def pids_said(self):
        if self.start == "run":
            return {int(rank): int(pid) for rank, pid in READY.findall(self.text())}
        found = {}
        for rank, output in enumerate(self.outputs):
            said = READY.findall(os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace"))
            if said:
                found[rank] = int(said[-1][1])
        return found

    def survivors_end(self, victims, limit):
        """Waits until all ranks but these have ended."""
        await_that(lambda: all(state_of(pid) in ("", "Z", "X") for rank, pid in self.pids.items() if rank not in victims),
                   "the survivors' ends", limit)

    def end(self, limit):
        """Waits for all; what then still runs is killed, and wrong."""
        until = time.monotonic() + limit
        late = False
        for process in self.processes:
            try:
                process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                late = True
                break
        self.kill()
        if late:
            raise Wrong(f"a process still ran after {limit:.1f} s")

    def kill(self):
        for process in self.processes:
            for pid in [*children_of(process.pid), process.pid] if process.poll() is None else []:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()

    def close(self):
        self.kill()
        for output in self.outputs:
            output.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # The ranks' output.

    def check_calls(self):
        most = self.options.deadline + self.options.slack
        said = self.text()
        for rank, took in [(each[0], each[3]) for each in FAILED.findall(said)] + LEFT.findall(said):
            self.options.longest.append(int(took))
            if int(took) > most:
                raise Wrong(f"a call of rank {rank} took {took} ms")

    def check_survivors(self, victims, right):
        """Each rank but these heard of a fault for which `right(code, peer, message)` holds."""
        heard = {int(rank): (code, int(peer), message) for rank, code, peer, _, _, message in FAILED.findall(self.text())}
        for rank in set(range(RANKS)) - set(victims):
            if rank not in heard:
                raise Wrong(f"rank {rank} heard of no fault")
            if not right(*heard[rank]):
                raise Wrong(f"rank {rank} heard {heard[rank]}")
        self.check_calls()

    def is_held_up(self, message):
        """A rank that has left a world before the others waits in the next one for rank 0, whom the fault keeps in the one before, or has
        ended there. It can know no more than that."""
        held_up = "rank 0, which never came" in message
        self.options.held_up += held_up
        return held_up

    def check_left(self, but=()):
        left = {int(rank) for rank, _ in LEFT.findall(self.text())}
        if left | set(but) != set(range(RANKS)):
            raise Wrong(f"ranks {sorted(left)} left well")
        self.check_calls()


def patience(options):
    """For a job of which one call may run into its deadline, and another one in the next world."""
    return 2 * (options.deadline + options.slack) / 1000 + 10


def kill(job, options, chance, victim):
    job.ranks_are_up()
    time.sleep(chance.uniform(0, 0.1))
    os.kill(job.pids[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: code == "peer_lost" and peer == victim)


def kill_between(job, options, chance, victim):
    """A rank is killed while worlds come and go: as it works, leaves, or comes in again."""
    job.ranks_are_up()
    time.sleep(chance.uniform(0, 0.2))
    os.kill(job.pids[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: peer == victim or job.is_held_up(message))


def kill_at_start(job, options, chance, victim):
    """A rank is killed before its world stands, or while it does its work."""
    processes = [each.pid for each in job.processes]
    if job.start == "run":
        await_that(lambda: len(children_of(job.launcher)) == RANKS, "all processes")
        processes = sorted(children_of(job.launcher))  # in the order of their start
    time.sleep(chance.uniform(0, 0.04))
    os.kill(processes[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: peer == victim)


def stop(job, options, chance, victim):
    job.ranks_are_up()
    time.sleep(chance.uniform(0, 0.1))
    os.kill(job.pids[victim], signal.SIGSTOP)
    job.survivors_end([victim], patience(options))
    if job.start == "hand":
        os.kill(job.pids[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: code == "timeout" and peer == victim)


def launcher(job, options, chance, victim):
    """The launcher is stopped, and then a rank is lost."""
    job.ranks_are_up()
    time.sleep(chance.uniform(0, 0.05))
    os.kill(job.launcher, signal.SIGSTOP)
    await_that(lambda: state_of(job.launcher) == "T", "the launcher's stop")
    time.sleep(chance.uniform(0.001, 0.02))
    os.kill(job.pids[victim], signal.SIGKILL)
    job.survivors_end([victim], patience(options))
    os.kill(job.launcher, signal.SIGCONT)  # the ranks' output is in its pipes
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: code == "peer_lost" and peer == victim and
                        "the launcher, where the ranks meet, is stopped" in message)


def launcher_at_start(job, options, chance, victim):
    """The launcher is stopped while its ranks start: they end by their deadline, and name it; and also a rank that has given up before them."""
    await_that(lambda: len(children_of(job.launcher)) == RANKS, "all processes")
    time.sleep(chance.uniform(0, 0.03))
    os.kill(job.launcher, signal.SIGSTOP)
    job.pids = dict(enumerate(children_of(job.launcher)))
    job.survivors_end([], patience(options))
    os.kill(job.launcher, signal.SIGCONT)
    job.end(patience(options))
    heard = FAILED.findall(job.text())
    if len(heard) + len(LEFT.findall(job.text())) != RANKS:
        raise Wrong("not every rank said how it ended")
    gave_up = {int(rank) for rank, *_ in heard}
    for rank, code, peer, _, _, message in heard:
        if "the launcher" not in message or not (code == "timeout" or (code == "peer_lost" and int(peer) in gave_up)):
            raise Wrong(f"rank {rank} heard {code}: {message}")
    job.check_calls()


def leave(job, options, chance, victim):
    """A rank is stopped while worlds come and go."""
    job.ranks_are_up()
    time.sleep(chance.uniform(0, 0.2))
    os.kill(job.pids[victim], signal.SIGSTOP)
    job.survivors_end([victim], patience(options))
    os.kill(job.pids[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_survivors([victim], lambda code, peer, message: peer == victim or job.is_held_up(message))


def leave_at_last(job, options, chance, victim):
    """A rank stops itself instead of leaving; all others have all that they need."""
    job.ranks_are_up()
    job.survivors_end([victim], patience(options))
    if job.start == "hand":
        os.kill(job.pids[victim], signal.SIGKILL)
    job.end(patience(options))
    job.check_left([victim])
    named = f"rank {victim} (pid {job.pids[victim]}), which is stopped"
    if (job.start == "run" or victim != 0) and named not in job.text():
        raise Wrong(f"no rank says '{named}'")


def full(job, options, chance, victim):
    """/dev/shm is full: ranks have their memory without a name there."""
    job.end(patience(options) + WORLD_IS_UP)
    job.check_left()


def disk(job, options, chance, victim):
    """Rank 0 cannot write where it is to be found. It says so, and the others name it."""
    job.end(patience(options))
    heard = {int(rank): (code, int(peer), message) for rank, code, peer, _, _, message in FAILED.findall(job.text())}
    if 0 not in heard or "No space left" not in heard[0][2]:
        raise Wrong(f"rank 0 heard {heard.get(0)}")
    job.check_survivors([0], lambda code, peer, message: code == "timeout" and peer == 0)


def log_disk(job, options, chance, victim):
    """The launcher's files have no room: the job goes on."""
    job.end(patience(options) + WORLD_IS_UP)
    job.check_left()


def descriptors(job, options, chance, victim):
    """One rank may open few files: nothing fails, or all name that rank."""
    job.end(patience(options) + WORLD_IS_UP)
    said = job.text()
    if len(LEFT.findall(said)) == RANKS:
        return job.check_calls()
    job.check_survivors([victim], lambda code, peer, message: peer == victim or f"rank {victim}" in message or
                        (victim == 0 and "where the ranks meet" in message))


# name: (how the fault is made, ways of starting, the ranks' mode)
KINDS = {
    "kill": (kill, ("hand", "run"), "loop"),
    "kill, worlds": (kill_between, ("hand",), "worlds"),
    "kill at start": (kill_at_start, ("hand", "run"), "loop"),
    "stop": (stop, ("hand", "run"), "loop"),
    "launcher": (launcher, ("run",), "loop"),
    "launcher, all_gather": (launcher, ("run",), "gather"),
    "launcher at start": (launcher_at_start, ("run",), "once"),
    "leave": (leave, ("hand",), "worlds"),
    "leave at last": (leave_at_last, ("hand", "run"), "leave"),
    "full /dev/shm": (full, ("hand", "run"), "once"),
    "full disk": (disk, ("hand",), "once"),
    "full disk for logs": (log_disk, ("run",), "once"),
    "few descriptors": (descriptors, ("hand", "run"), "once"),
}



def trial(options, number, kind, transport, start):
    """What is wrong, or None. Errors: Skipped."""
    make, _, mode = KINDS[kind]
    chance = random.Random(f"{options.seed} {number}")
    victim = chance.randrange(RANKS)
    if kind.startswith("full") and not options.may_mount:
        raise Skipped("this user may make no mount name space")
    job = Job(options, transport, start, mode, victim,
              full={"full /dev/shm": "shm", "full disk": "folder", "full disk for logs": "folder"}.get(kind),
              logs=kind == "full disk for logs", descriptors=chance.randrange(3, 40) if kind == "few descriptors" else None)
    try:
        make(job, options, chance, victim)
    except Wrong as wrong:
        return f"trial {number}, {kind}, {transport}, {start}, rank {victim}: {wrong}\n{job.text()}"
    finally:
        job.close()
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", required=True, help="the program faulty_rank")
    parser.add_argument("--run", required=True, help="the program unisono-run")
    parser.add_argument("--trials", type=int, help="how many; by default one of each kind, transport and way to start")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--deadline", type=int, default=2000, help="of the ranks' calls, in ms")
    parser.add_argument("--slack", type=int, default=1000, help="ms beyond the deadline")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--kinds", help="names, separated by semicolons")
    options = parser.parse_args()
    options.longest, options.held_up = [], 0
    options.may_mount = may_mount()
    kinds = options.kinds.split(";") if options.kinds else list(KINDS)
    cases = [(kind, transport, start) for transport, kind in itertools.product(("tcp", "memory"), kinds)
             for start in KINDS[kind][1]]
    options.trials = options.trials or len(cases)
    before = set(os.listdir("/dev/shm"))
    results = collections.defaultdict(collections.Counter)
    began = time.monotonic()
    complaints = []

    def one(number):
        case = cases[number % len(cases)]
        try:
            wrong = trial(options, number, *case)
        except Skipped as skipped:
            return case, "skipped", str(skipped)
        return case, "wrong" if wrong else "right", wrong

    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        for case, result, text in pool.map(one, range(options.trials)):
            results[case][result] += 1
            if result == "wrong":
                complaints.append(text)
                print(text, flush=True)
            elif result == "skipped" and results[case][result] == 1:
                print(f"skipped in part: {case[0]}: {text}")

    left = {each for each in set(os.listdir("/dev/shm")) - before if "unisono" in each}
    if left:
        complaints.append(f"left in /dev/shm: {sorted(left)}")
    print(f"{'kind':21} {'transport':9} {'start':5} {'right':>6} {'wrong':>6} {'skipped':>7}")
    for (kind, transport, start), counts in sorted(results.items()):
        print(f"{kind:21} {transport:9} {start:5} {counts['right']:6} {counts['wrong']:6} {counts['skipped']:7}")
    print(f"{options.trials} trials in {time.monotonic() - began:.0f} s, {len(complaints)} not as they should be; the longest call took "
          f"{max(options.longest, default=0)} ms, with a deadline of {options.deadline} ms; {options.held_up} survivors were in the next world, "
          f"and named rank 0, which the fault held up in the one before")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
