#!/usr/bin/env python3
"""Plants small faults in copies of the library, one at a time, and expects a test to fail for each.

    python3 tests/support/mutants/run.py              # all of list.txt
    python3 tests/support/mutants/run.py sgd adam     # those whose names contain a word
    python3 tests/support/mutants/run.py --list       # the list and nothing else; no compiler runs
    python3 tests/support/mutants/run.py --daily      # five, which the date chooses: all of them in turn; .ci/run does this

Each test source is compiled by itself, header-only and not optimised, with tests/support/main.cpp: once as it is, which must pass, and
once with each fault, which must compile and must not pass. A fault whose test passes has survived: the test is too weak. A fault whose text is no longer found, or
found twice, is stale. Both fail the run. Exit status 0: every fault was caught.

list.txt has a paragraph per fault:

    # name
    file: include/unisono/...          what is changed
    test: tests/room/source.cpp        the source whose cases notice, and others that it is linked with
    cases: suite/case                  optional: a filter of Boost.Test
    - old text, one line or several, found exactly once
    + new text; a mere + removes the old
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = "skipped here"
LIST = pathlib.Path(__file__).with_name("list.txt")
FLAGS = ["-std=c++20", "-O0", "-w", "-pthread", "-D", "BOOST_TEST_DYN_LINK", "-D", "_GNU_SOURCE"]
DAILY = 5
HANGS_S = 100  # the most that a case may take; five times as much if it is labelled "slow"


class Fault:
    def __init__(self, name):
        self.name, self.file, self.test, self.cases = name, None, None, None
        self.old, self.new = [], []

    def planted(self, text):
        """The file's text with the fault; None where the fault is stale."""
        old = "\n".join(self.old)
        if not old or text.count(old) != 1:
            return None
        return text.replace(old, "\n".join(self.new))


def read_list():
    faults = []
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        key, _, value = line.partition(": ")
        if line.startswith("# "):
            faults.append(Fault(line[2:].strip()))
        elif key in ("file", "test", "cases") and faults:
            setattr(faults[-1], key, value.strip())
        elif line[:2] == "- " and faults:
            faults[-1].old.append(line[2:])
        elif line[:1] == "+" and faults:
            faults[-1].new.append(line[2:])
        elif line.strip() and faults:
            sys.exit(f"{LIST}:{number}: expected '# name', 'file: ', 'test: ', 'cases: ', '- ' or '+ ', found {line!r}")
    for fault in faults:
        if not (fault.file and fault.test and fault.old):
            sys.exit(f"{LIST}: {fault.name} needs file, test and old text")
    names = [fault.name for fault in faults]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"{LIST}: more than one fault is named {', '.join(sorted(twice))}")
    return faults


def of_the_day(faults, date):
    """The faults of a day: consecutive days have consecutive ones, so that each is run in its turn."""
    first = date.toordinal() * DAILY % len(faults)
    return (faults + faults)[first:first + min(DAILY, len(faults))]


class Bench:
    """A copy of what tests are compiled from, and where the results lie."""

    def __init__(self, folder, compiler, prefix, seconds):
        self.folder, self.prefix, self.seconds = pathlib.Path(folder), prefix, seconds
        self.compiler = compiler
        self.copy = self.folder / "copy"
        for part in ("include", "tests", "examples"):
            shutil.copytree(ROOT / part, self.copy / part, symlinks=True, ignore=shutil.ignore_patterns("build"))
        self.libraries = ["-lboost_unit_test_framework", "-lrt"]
        self.main = None

    def call(self, command, seconds):
        environment = dict(os.environ, BOOST_TEST_COLOR_OUTPUT="0", UNISONO_TEST_TIMEOUT_S=str(min(HANGS_S, seconds)))
        with subprocess.Popen(self.prefix + command, cwd=self.copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", env=environment, start_new_session=True) as process:
            try:
                said, _ = process.communicate(timeout=seconds)
                return process.returncode, said
            except subprocess.TimeoutExpired:
                return 124, f"ran for more than {seconds} s"
            finally:  # ranks that a watchdog has left behind, too
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def compile(self, source, target):
        data = f'UNISONO_TEST_DATA="{self.copy}/tests/support/data"'
        return self.call([self.compiler, *FLAGS, "-D", data, "-I", "include", "-I", "tests", "-I", ".", "-c", str(source), "-o", str(target)],
                         self.seconds)

    def build(self, test):
        """The executable of a test source, or None and why."""
        if self.main is None:
            self.main = [str(self.folder / name) for name in ("main.o", "allocation_counter.o")]
            for target in self.main:
                self.must(self.compile(f"tests/support/{pathlib.Path(target).stem}.cpp", target))
        stem = hashlib.sha256(test.encode()).hexdigest()[:12]
        program, objects = self.folder / stem, []
        for number, source in enumerate(test.split()):
            objects.append(str(self.folder / f"{stem}-{number}.o"))
            status, text = self.compile(source, objects[-1])
            if status != 0:
                return None, text
        status, text = self.call([self.compiler, "-pthread", *self.main, *objects, "-o", str(program), *self.libraries], self.seconds)
        return (program, "") if status == 0 else (None, text)

    def passes(self, program, cases):
        status, text = self.call([str(program), "--log_level=error"] + ([f"--run_test={cases}"] if cases else []), self.seconds)
        if "no test cases matching filter" in text:
            sys.exit(f"no test cases match {cases!r}")
        if status == 77:
            return None, "the test is skipped here\n" + text
        return status == 0, text

    def judge(self, faults):
        """Yields each fault of one test with its verdict, its seconds, and what there is to say."""
        test = faults[0].test
        began = time.monotonic()
        program, why = self.build(test)
        if program is None:
            print(f"{test} does not compile by itself:\n{why[:2000]}", flush=True)
        sound = {}  # cases -> whether they pass without a fault; None: they are skipped here
        for cases in dict.fromkeys(one.cases for one in faults):
            sound[cases], text = (False, why) if program is None else self.passes(program, cases)
            if program is not None and not sound[cases]:
                print(f"{test} without a fault:\n{text[-2000:]}", flush=True)
        for fault in faults:
            why = ""
            if sound[fault.cases] is None:
                verdict = SKIPPED
            elif not sound[fault.cases]:
                verdict = "no verdict: the test fails without it"
            else:
                path = self.copy / fault.file
                text = path.read_text()
                path.write_text(fault.planted(text))
                program, why = self.build(test)
                verdict = "does not compile"
                if program is not None:
                    # Cases that are skipped with the fault have not noticed it.
                    verdict, why = "caught" if self.passes(program, fault.cases)[0] is False else "survived", ""
                path.write_text(text)
            yield fault, verdict, time.monotonic() - began, why
            began = time.monotonic()

    @staticmethod
    def must(result):
        if result[0] != 0:
            sys.exit(result[1])


def main():
    options = argparse.ArgumentParser(description="Plants small faults and expects tests to fail.")
    options.add_argument("words", nargs="*", help="only faults whose names contain one of these")
    options.add_argument("--list", action="store_true", help="print the faults, compile nothing")
    options.add_argument("--daily", action="store_true", help=f"only {DAILY} faults, which the date chooses")
    options.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today(), help="for --daily, as 2026-11-27; default today")
    options.add_argument("--jobs", type=int, default=1, help="tests that are compiled at the same time (1)")
    options.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options.add_argument("--prefix", default="", help="a command before each compiler and test, as 'nice -n 19'")
    options.add_argument("--seconds", type=int, default=300, help="the most that a compiler or a test may take (300)")
    given = options.parse_args()
    faults = [one for one in read_list() if not given.words or any(word in one.name for word in given.words)]
    if not faults:
        sys.exit("no fault has such a name")
    if given.daily:
        faults = of_the_day(faults, given.date)
    stale = [one.name for one in faults if one.planted((ROOT / one.file).read_text()) is None or not all((ROOT / source).is_file() for source in one.test.split())]
    if given.list:
        for one in faults:
            print(f"{one.name}: {one.file}, noticed by {one.test}{' ' + one.cases if one.cases else ''}")
    if stale:
        print(f"stale, their text or test is not there exactly once: {', '.join(stale)}")
    if given.list:
        return 1 if stale else 0

    counts = {"caught": 0, "survived": 0, "does not compile": 0, "stale": len(stale), "no verdict: the test fails without it": 0, SKIPPED: 0}
    groups = [[one for one in faults if one.test == test and one.name not in stale] for test in dict.fromkeys(one.test for one in faults)]
    with tempfile.TemporaryDirectory(prefix="unisono-mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        benches = queue.Queue()
        for number in range(given.jobs):
            benches.put(Bench(pathlib.Path(folder, str(number)), given.compiler, given.prefix.split(), given.seconds))

        def work(group):
            bench = benches.get()
            try:
                for fault, verdict, seconds, why in bench.judge(group):
                    counts[verdict] += 1
                    print(f"{fault.name}: {verdict} ({seconds:.0f} s)" + (f"\n{why[:1000]}" if why else ""), flush=True)
            finally:
                benches.put(bench)

        for done in [pool.submit(work, group) for group in groups if group]:
            done.result()
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f", of {len(faults)}")
    return 0 if counts["caught"] + counts[SKIPPED] == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
