#!/usr/bin/env python3
"""examples/existing_code/cuda_c, before and after, without a GPU.

    check.py COMPILER NVCC SOURCE BUILD_FOLDER LIBRARY INCLUDES [MPI_INCLUDE]
    check.py --programs BEFORE AFTER          compares the losses of these (tests/on_gpu.sh)

LIBRARY is unisono::devices on the stand-in for CUDA and NCCL. Both programs train there on ranks that are threads, and print the same
losses on one rank and on two. When rank 1 fails, rank 0 names it. NVCC, if there is one, compiles both without a warning; INCLUDES are
the folders of nccl.h, separated by semicolons.
"""
import pathlib
import re
import shutil
import subprocess
import sys

TOLERANCE = 1e-5
SKIPPED = 77


def run(*command, statuses=(0,)):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    if done.returncode not in statuses:
        sys.exit(f"{' '.join(map(str, command))[:1000]}: status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done


def losses(text):
    found = [(int(step), float(loss)) for step, loss in re.findall(r"^step +(\d+), loss ([\d.]+)$", text, re.M)]
    assert [step for step, _ in found] == list(range(10, 101, 10)), f"expected every tenth of 100 steps\n{text}"
    return [loss for _, loss in found]


def compare(programs):
    told = {}
    for name, program in programs.items():
        for ranks in (1, 2):
            done = run(program, ranks, statuses=(0, SKIPPED))
            if done.returncode == SKIPPED:
                print(done.stderr, end="")
            else:
                told[name, ranks] = losses(done.stdout)
    first = told["before", 1]
    assert first[0] > 2.5 and first[-1] < 1.2, f"nothing was learned: {first}"
    for (name, ranks), found in told.items():
        most = max(abs(a - b) for a, b in zip(first, found))
        print(f"{name}, ranks: {ranks}: {found[-1]:.6f}, at most {most:.1e} from before on 1")
        assert most <= TOLERANCE, f"{name}, ranks: {ranks}\n{found}\ninstead of\n{first}"


if sys.argv[1] == "--programs":
    compare(dict(zip(("before", "after"), sys.argv[2:4])))
    sys.exit()

compiler, nvcc, source, build, library, includes = sys.argv[1:7]
mpi = sys.argv[7:8]
here = pathlib.Path(__file__).parent
examples = pathlib.Path(source) / "examples/existing_code/cuda_c"
folder = pathlib.Path(build) / "cuda_c"
folder.mkdir(parents=True, exist_ok=True)


def on_stand_in(name):
    """The program, with its launches of kernels as calls of C++."""
    text, launches = re.subn(r"(\w+)<<<(.*), (\d+), 0, ([\w.]+)>>>\(", r"stand_in::launched(\1, \2, \3, \4)(",
                             (examples / f"{name}.cu").read_text())
    assert launches >= 6 and "<<<" not in text, f"{name}.cu: {launches} launches were found, or not all"
    (folder / f"{name}.inc").write_text(text)
    program = folder / name
    launcher = [found] if (found := shutil.which("ccache")) else []
    run(*launcher, compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{here}", f"-I{here}/mpi",
        f"-I{here.parents[1]}/nccl/stand_in",
        f"-I{source}/include", "-DUNISONO_DEVICES", *(["-DUNISONO_TEST_AFTER"] if name == "after" else []),
        f'-DUNISONO_TEST_PROGRAM="{folder}/{name}.inc"', "-c", here / "threads.cpp", "-o", f"{program}.o")
    run(compiler, f"{program}.o", library, "-o", program, "-pthread")
    return program


made = {name: on_stand_in(name) for name in ("before", "after")}
compare(made)

# Rank 1 fails in the middle of a step, and rank 0 says so.
failed = run(made["after"], 2, 100, statuses=(1,))
said = sorted(failed.stderr.splitlines())
print(*said, sep="\n")
if len(said) != 2 or said[0] != "a kernel failed" or not re.search(r"aborted in step: rank 1 threw: a kernel failed", said[1]):
    sys.exit("expected that rank 0 names rank 1, with its text")

if pathlib.Path(nvcc).is_file() and includes:
    flags = ["-std=c++20", "--expt-relaxed-constexpr", "-Werror", "all-warnings", "-arch=sm_90", f"-I{source}/include",
             *(f"-isystem={include}" for include in includes.split(";"))]
    run(nvcc, *flags, "-diag-suppress", "554,780,20011,20014", "-DUNISONO_DEVICES", "-c", examples / "after.cu", "-o", folder / "after_sm_90.o")
    print("after.cu compiled for sm_90, not run")
    if mpi:
        run(nvcc, *flags, f"-isystem={mpi[0]}", "-c", examples / "before.cu", "-o", folder / "before_sm_90.o")
        print("before.cu compiled for sm_90, not run")
