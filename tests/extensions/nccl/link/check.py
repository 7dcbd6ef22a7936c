#!/usr/bin/env python3
"""unisono/nccl.hpp and the NCCL of this machine.

    check.py COMPILER NVCC REPOSITORY BUILD_FOLDER INCLUDES LIBRARIES

INCLUDES and LIBRARIES are lists, separated by semicolons. Compiles main.cpp by the host's compiler alone, links it and runs it. Without
a GPU it must refuse within a second, and say why; with one it sums. NVCC, if there is one, compiles kernels.cu, and makes
examples/digits_on_gpu a program, which without a GPU must say so.
"""
import pathlib
import re
import subprocess
import sys

compiler, nvcc, repository, build = sys.argv[1:5]
includes, libraries = (argument.split(";") for argument in sys.argv[5:7])
here = pathlib.Path(__file__).parent
folder = pathlib.Path(build) / "nccl_link"
folder.mkdir(parents=True, exist_ok=True)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=800)
    if done.returncode:
        sys.exit("\n".join([" ".join(map(str, command)), (done.stdout + done.stderr)[:4000]]))


program = folder / "main"
folders = sorted({str(pathlib.Path(library).parent) for library in libraries})
run(compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", f"-I{repository}/include",
    *(f"-isystem{include}" for include in includes), here / "main.cpp", "-o", program, *libraries,
    *(f"-Wl,-rpath,{one}" for one in folders), "-pthread")
done = subprocess.run([program], capture_output=True, text=True, timeout=100)
print(done.stdout, done.stderr, sep="", end="")
if done.returncode == 2:
    if not re.search(r"^refused: .*GPU.*cuda", done.stdout):
        sys.exit("expected that the program is refused for lack of a GPU")
    microseconds = int(re.search(r"after (\d+) us", done.stdout)[1])
    if microseconds > 1_000_000:
        sys.exit(f"it took {microseconds} us to say so; expected at most a second")
elif done.returncode:
    sys.exit(f"status {done.returncode}")
if pathlib.Path(nvcc).is_file():
    run(nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-Werror", "all-warnings", f"-I{repository}/include",
        *(f"-isystem={include}" for include in includes), "-arch=sm_90", "-c", here / "kernels.cu", "-o", folder / "kernels.o")
    print("kernels.cu compiled for sm_90, not run")
    digits = folder / "digits_on_gpu"
    run(nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-Werror", "all-warnings", "-diag-suppress", "554,780,20014",
        f"-I{repository}/include", *(f"-isystem={include}" for include in includes), "-arch=sm_90", "-o", digits,
        f"{repository}/examples/digits_on_gpu/digits_on_gpu.cu", *libraries, *(f"-Xlinker=-rpath,{one}" for one in folders))
    if done.returncode == 2:
        told = subprocess.run([digits, "2", "1", f"{repository}/examples/digits/data/digits.csv"], capture_output=True,
                              text=True, timeout=100)
        if told.returncode != 2 or "digits_on_gpu: " not in told.stderr or "CUDA" not in told.stderr.upper():
            sys.exit(f"expected that digits_on_gpu is refused for lack of a GPU: status {told.returncode}, {told.stderr}")
    print("digits_on_gpu compiled and linked for sm_90, not run on a GPU")
