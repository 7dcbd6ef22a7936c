"""PyTorch's own tests of its process groups, with the backend's name replaced.

    python integrations/torch/tests/upstream.py distributed                       # from the installed PyTorch's torch.testing
    python integrations/torch/tests/upstream.py c10d --source pytorch/test/distributed   # test_c10d_gloo.py of a PyTorch source tree

The cases of upstream.txt must end as it says; --backend gloo shows how Gloo fares. PyTorch's files are read, and not kept here: the word
"gloo" becomes "unisono", ProcessGroupGloo becomes a function that makes our process group, and processes are forked in place of spawned, which
takes a tenth of the time. Exit status: 0 as listed, 1 not as listed, 77 the source is not there.
"""

import argparse
import importlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import types
import unittest
from datetime import timedelta
from pathlib import Path

FILES = {"distributed": ["distributed_test.py"], "c10d": ["test_c10d_common.py", "test_c10d_gloo.py"]}
LIST = Path(__file__).with_name("upstream.txt")
CASE_S = 100
RENAMED = {"sandcastle_skip": "skip_but_pass_in_sandcastle", "sandcastle_skip_if": "skip_but_pass_in_sandcastle_if"}


def ours(text):
    """PyTorch's source for our backend."""
    text = re.sub(r'(["\'])gloo\1', '"unisono"', text)
    text = re.sub(r"\b(c10d|dist)\.ProcessGroup(Of)?Gloo\b", r"\1.ProcessGroup\2Unisono", text)
    return text.replace("Backend.GLOO", "Backend.UNISONO")


class ProcessGroupUnisono:
    """Takes the place of ProcessGroupGloo's constructor."""

    class _Options:
        _timeout, _threads = timedelta(seconds=50), 2

    def __new__(cls, store, rank, size, options=None, timeout=None):
        from unisono_torch import _C

        wanted = timeout or getattr(options, "_timeout", options) or timedelta(seconds=50)
        wanted = wanted if isinstance(wanted, timedelta) else timedelta(seconds=wanted)
        return _C.create(store, rank, size, wanted, "", "auto", False, [], [])


class GroupOf:
    """What takes the place of the constructor where DistributedDataParallel gets the group: since PyTorch 2 it wants a ProcessGroup."""

    def __init__(self, made):
        self._made, self._Options = made, made._Options

    def __call__(self, store, rank, size, *options):
        import torch
        import torch.distributed as dist

        backend = self._made(store, rank, size, *(options or [timedelta(seconds=50)]))
        group = dist.ProcessGroup(dist.PrefixStore("group", store), rank, size)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        if isinstance(backend, dist.ProcessGroupGloo):
            kind = dist.ProcessGroup.BackendType.GLOO
        group._set_default_backend(kind)
        group._register_backend(torch.device("cpu"), kind, backend)
        return group


class Gone(types.ModuleType):
    """A module that the installed PyTorch does not have any more. Cases that use it fail."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def load(suite, folder, backend):
    """The suite's module, with its source as it is for the backend."""
    import torch.distributed as dist
    import torch.testing._internal.common_distributed as common

    if backend == "unisono":
        import unisono_torch  # noqa: F401

        dist.ProcessGroupUnisono = ProcessGroupUnisono
        dist.ProcessGroupOfUnisono = GroupOf(ProcessGroupUnisono)
        for features in (common.DistTestCases.backend_feature, common.DistTestCases.skip_collective):
            for backends in features.values():
                backends.update({"unisono"} & {"unisono" if each == "gloo" else each for each in backends})
        common.DistTestCases.backend_feature["plugin"].add("unisono")
    dist.ProcessGroupOfGloo = GroupOf(dist.ProcessGroupGloo)
    common.TIMEOUT_DEFAULT = CASE_S - 20

    def fork(case):
        case._start_processes(multiprocessing.get_context("fork").Process)

    common.MultiProcessTestCase._spawn_processes = fork
    made = tempfile.mkdtemp(prefix="unisono-upstream-")
    for name in FILES[suite]:
        text = (folder / name).read_text()
        before, found, after = text.partition("class DistributedDataParallelTest(")
        text = before + found + re.sub(r"c10d\.ProcessGroupGloo\b", "c10d.ProcessGroupOfGloo", after)
        (Path(made) / name).write_text(ours(text) if backend == "unisono" else text)
    sys.path.insert(0, made)
    module = None
    while module is None:
        try:
            module = importlib.import_module(FILES[suite][-1][:-3])
        except ModuleNotFoundError as missing:
            if not (missing.name or "").startswith("torch."):
                raise
            sys.modules[missing.name] = Gone(missing.name)
        except ImportError as missing:
            found = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(missing))
            if not found or not found[2].startswith("torch."):
                raise
            home = sys.modules[found[2]]
            setattr(home, found[1], getattr(home, RENAMED.get(found[1], ""), None) or type(found[1], (), {}))
    if suite == "distributed":

        class Distributed(module.TestDistBackend, module.DistributedTest._DistTestBase):
            def setUp(self):
                super().setUp()
                self._spawn_processes()

        return {"Distributed": Distributed}
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, unittest.TestCase) and found.__module__ == module.__name__
    }


def run_case(made, name, answers):
    os.setsid()
    log = tempfile.TemporaryFile()
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    result = unittest.TestResult()
    made(name).run(result)
    if result.skipped:
        verdict = ("skipped", result.skipped[0][1])
    elif result.wasSuccessful():
        verdict = ("passes", "")
    else:
        sys.stdout.flush()
        log.seek(0)
        text = "\n".join(each for _, each in result.failures + result.errors)
        verdict = ("fails", text + "\n" + log.read()[-6000:].decode(errors="replace"))
    answers.send(verdict)
    os._exit(0)


def judge(made, name):
    """Runs a case in a process of its own, and ends what it leaves."""
    mine, its = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run_case, args=(made, name, its))
    process.start()
    its.close()
    verdict = ("fails", f"no answer within {CASE_S} s")
    try:
        if mine.poll(CASE_S):
            verdict = mine.recv()
    except EOFError:
        verdict = ("fails", "its process died")
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.join()
    return verdict


def listed(suite):
    """case -> "passes" or why it cannot."""
    found = {}
    if LIST.exists():
        for line in LIST.read_text().splitlines():
            if line.startswith(suite + " "):
                _, case, expected = line.split(" ", 2)
                found[case] = expected
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=FILES)
    parser.add_argument("--source", type=Path, help="folder of test_c10d_gloo.py and test_c10d_common.py")
    parser.add_argument("--backend", choices=("unisono", "gloo"), default="unisono")
    parser.add_argument("--only", default="", help="a regular expression for names of cases")
    parser.add_argument("--ranks", type=int, default=3, help="of the suite 'distributed'")
    parser.add_argument("--log", type=Path, help="file for the failures' texts")
    parser.add_argument("--all", action="store_true", help="also cases that the list says cannot pass")
    arguments = parser.parse_args()

    os.environ.update(BACKEND=arguments.backend, WORLD_SIZE=str(arguments.ranks), OMP_NUM_THREADS="1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        import torch
    except ImportError:
        print("skipped: this Python has no PyTorch")
        return 77
    torch.set_num_threads(1)
    folder = arguments.source
    if arguments.suite == "distributed":
        folder = Path(torch.__file__).parent / "testing" / "_internal" / "distributed"
    if folder is None or not all((folder / name).is_file() for name in FILES[arguments.suite]):
        print(f"skipped: no {' and '.join(FILES[arguments.suite])} in {folder}; --source names their folder")
        return 77

    expected = listed(arguments.suite)
    counts, wrong = {}, []
    log = open(arguments.log, "w") if arguments.log else None
    start = time.monotonic()
    for class_name, made in load(arguments.suite, folder, arguments.backend).items():
        for name in unittest.TestLoader().getTestCaseNames(made):
            case = f"{class_name}.{name}"
            if not re.search(arguments.only, case):
                continue
            said = expected.get(case)
            if said not in (None, "passes") and arguments.backend == "unisono" and not arguments.all:
                counts["cannot"] = counts.get("cannot", 0) + 1
                continue
            verdict, why = judge(made, name)
            counts[verdict] = counts.get(verdict, 0) + 1
            if verdict != "skipped":
                print(arguments.suite, case, verdict, flush=True)
            if log and verdict != "passes":
                log.write(f"=== {case} {verdict}\n{why}\n")
                log.flush()
            if said == "passes" and verdict != "passes" or said is None and verdict == "fails":
                wrong.append(case)
    print(f"{arguments.backend}, PyTorch {torch.__version__}, {time.monotonic() - start:.0f} s:", counts)
    if arguments.backend == "unisono" and wrong:
        print("not as listed:", *wrong, sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
