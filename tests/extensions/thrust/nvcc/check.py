#!/usr/bin/env python3
"""What nvcc makes of unisono/thrust.hpp, on a machine with or without a GPU.

    check.py NVCC REPOSITORY BUILD_FOLDER

Compiles and links kernels.cu for sm_80, sm_90 and sm_100 with C++20 (those of them that this nvcc knows), without a warning.
No function that returns a number may use Thrust's reductions there.
Then counts the fused multiply-adds in the functors of contraction.cu: those that the formulas ask for by name, and no more,
whatever nvcc's flags.
"""
import re
import subprocess
import sys
from pathlib import Path

nvcc, repository, build = sys.argv[1:]
here = Path(__file__).parent
folder = Path(build) / "nvcc"
folder.mkdir(parents=True, exist_ok=True)
FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", f"-I{repository}/include", "-Werror", "all-warnings"]

# Fused multiply-adds that the formulas of optimizer/ name: in the element's type, where PyTorch has
# them.
EXPECTED = {
    "contracted_kernel": 1,  # as a plain product would be: shows that the count detects it
    "AddWeighted": 0,
    "3Sgd5Plain": 2,  # weight decay, the step
    "3Sgd5Heavy": 4,  # the velocity, and Nesterov's look ahead
    "3Sgd8Velocity": 2,
    "AdamElement": 2,  # weight decay, the moving average
    "Adagrad": 1,
    "7RmsProp5Plain": 1,
    "7RmsProp5Heavy": 2,
    "7RmsProp8Centered": 2,
    "7RmsProp13CenteredHeavy": 3,
}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=800)
    if done.returncode:
        # nvcc quotes lines of many kilobytes.
        told = [line[:400] for line in (done.stdout + done.stderr).splitlines()]
        sys.exit("\n".join([" ".join(map(str, command)), *told[:60]]))
    return done.stdout


def fused(flags):
    """Kernel -> multiply-adds, of the code that would be assembled."""
    code = folder / "contraction.ptx"
    run(nvcc, *FLAGS, *flags, "-arch=sm_90", "-ptx", "-o", code, here / "contraction.cu")
    counts = {}
    for name, body in re.findall(r"\.entry (\w+)\(.*?\n\{(.*?)\n\}", code.read_text(), re.DOTALL):
        kernel = next((known for known in EXPECTED if known in name), None)
        if kernel is None:
            sys.exit(f"a kernel that is not expected: {name}")
        # The assembler may fuse operations without a rounding in their names.
        free = len(re.findall(r"\bmul(?:\.ftz)?\.f(?:32|64)\b", body))
        division_free = not re.search(r"\b(div|sqrt)\.(approx|full)", body)
        count = (len(re.findall(r"\bfma\.rn(?:\.ftz)?\.f(?:32|64)\b", body)), free, division_free)
        if counts.setdefault(kernel, count) != count:
            sys.exit(f"{kernel} has {count} in one form and {counts[kernel]} in another")
    return counts


if not Path(nvcc).is_file():
    print("skipped: no nvcc")
    sys.exit(77)
known = re.findall(r"compute_(\d+)", run(nvcc, "--list-gpu-arch"))
targets = [arch for arch in ("80", "90", "100") if arch in known]
if not targets:
    sys.exit(f"nvcc knows none of sm_80, sm_90, sm_100; it knows {known}")
run(nvcc, *FLAGS, *(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in targets), "--threads", 2,
    "-o", folder / "kernels", here / "kernels.cu")
print("kernels.cu compiled and linked for", *(f"sm_{arch}" for arch in targets))
# Thrust's reductions would allocate in each call.
reductions = re.findall(rb"\w*DeviceReduce\w*", (folder / "kernels").read_bytes())
if reductions:
    sys.exit(f"kernels.cu has reductions of Thrust's; expected kernels that note their answers: {reductions[0][:200]}")
for flags in ([], ["--fmad=true", "-prec-div=false", "-prec-sqrt=false"]):
    found = fused(flags)
    wanted = {kernel: (count, 0, True) for kernel, count in EXPECTED.items()}
    if found != wanted:
        sys.exit(f"with {flags}: kernel: (fused multiply-adds, products that may be fused, no approximate division)\n"
                 f"found    {found}\nexpected {wanted}")
print("fused multiply-adds as the formulas have them:", EXPECTED)
