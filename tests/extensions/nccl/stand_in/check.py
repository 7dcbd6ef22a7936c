"""Both stand-ins, that of the tests and that of bench/gpu, define every function that the headers in this folder declare.

A declaration that one of them lacks would be found only when the benchmarks are linked.
usage: check.py ROOT"""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
tests = root / "tests/extensions/nccl/stand_in"
declared = set()
for header in ("cuda_runtime_api.h", "nccl.h"):
    declared |= set(re.findall(r"\b((?:cuda|nccl)[A-Z]\w*)\([^;{]*\);", (tests / header).read_text()))
assert len(declared) > 50, f"only {len(declared)} declarations found in {tests}"

bad = False
for sources in ([tests / "cuda.cpp", tests / "nccl.cpp"], [root / "bench" / "gpu" / "instant" / "instant.cpp"]):
    text = "".join(source.read_text() for source in sources)
    defined = set(re.findall(r"^\w[\w *]*?\b((?:cuda|nccl)[A-Z]\w*)\([^;{]*\) \{", text, re.MULTILINE))
    for name in sorted(declared - defined):
        print(f"{name} is declared by the stand-in's headers, but not defined in {' or '.join(str(s) for s in sources)}")
        bad = True
print(f"{len(declared)} functions")
sys.exit(bad)
