#!/usr/bin/env python3
"""Each option of docs/how_to/fast_math.md with each compiler: refused by name, or without effect on any bit.

    python3 table.py --include REPOSITORY/include [--all] COMPILER...

Without --all only the options that must be refused, with a snippet. With it also those that are accepted: the program is
compiled and run with many at once, and must print the hash that it prints without them and without optimisation. Exit status 1: a row is wrong.
"""
import argparse
import concurrent.futures
import itertools
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SENTENCE = "Unisono promises bits: "
X86 = platform.machine() in ("x86_64", "AMD64")

REFUSED = ["-ffast-math", "-Ofast", "-Ofast -fno-finite-math-only", "-ffinite-math-only", "-funsafe-math-optimizations",
           "-fassociative-math -fno-signed-zeros -fno-trapping-math", "-freciprocal-math", "-fno-signed-zeros"]
REFUSED_BY_GCC = ["-fsingle-precision-constant", *(["-mfpmath=387"] if X86 else [])]
FUSES = not X86 or " fma " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
REFUSED_BY_CLANG = ["-ffp-model=fast", "-fno-honor-nans", *(["-ffp-contract=fast"] if FUSES else []),
                    *(["-fapprox-func"] if X86 else []), *(["-mfma -ffp-contract=fast"] if X86 and FUSES else [])]
# Accepted options: each line is one compilation with all of them. Only if it gives other bits,
# each is tried alone. A machine that can run FMA and AVX2 has them by -march=native.
ACCEPTED_BY_GCC = [["-O3", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-ffp-contract=fast", "-fexcess-precision=fast",
                    "-fcx-limited-range", *(["-march=native", "-mrecip", "-mpc32"] if X86 else [])],
                   ["-fassociative-math", "-frounding-math", "-fsignaling-nans", "-ffloat-store", "-fcx-fortran-rules", "-ffp-contract=off",
                    *(["-mno-ieee-fp"] if X86 else [])]]
ACCEPTED_BY_CLANG = [["-ffp-model=precise", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-honor-infinities", "-ffp-contract=on",
                      "-fdenormal-fp-math=positive-zero", *(["-march=native", "-mrecip"] if X86 else [])],
                     ["-frounding-math", "-ffp-model=strict", "-ffp-exception-behavior=strict", "-ffp-contract=off"]]


def is_clang(compiler):
    return "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


class Table:
    def __init__(self, include, folder):
        self.include, self.folder, self.numbers = include, Path(folder), itertools.count()

    def run(self, compiler, options, source):
        """What compiler and program print, and whether both succeed."""
        program = self.folder / str(next(self.numbers))
        made = subprocess.run([compiler, "-std=c++20", "-O2", "-w", f"-I{self.include}", *options.split(), str(HERE / source), "-o",
                               str(program), "-pthread"], capture_output=True, text=True, check=False, timeout=500)
        if made.returncode != 0:
            return made.stderr, False
        ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=100)
        program.unlink()
        return ran.stdout + ran.stderr, ran.returncode == 0

    def refuses(self, compiler, options):
        text, good = self.run(compiler, options, "snippet.cpp")
        if good:
            return "is accepted"
        return "" if SENTENCE in text else f"ends without '{SENTENCE}': {text[:2000]}"

    def accepts(self, compiler, options, expected):
        """`options`: a list. Says of each which has an effect alone, if all together have one."""
        text, good = self.run(compiler, " ".join(options), "program.cpp")
        if good and text == expected:
            return ""
        found = f"gives {text.strip()}, without it {expected.strip()}" if good else f"fails: {text[:2000]}"
        if len(options) > 1:
            alone = {option: self.accepts(compiler, [option], expected) for option in options}
            found += "".join(f"\n    {option} alone {problem}" for option, problem in alone.items() if problem)
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("compilers", nargs="+")
    given = parser.parse_args()
    wrong = rows = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        table = Table(given.include, folder)
        tries = []
        for compiler in given.compilers:
            clang = is_clang(compiler)
            text, good = table.run(compiler, "", "snippet.cpp")
            if not good:
                sys.exit(f"{compiler} without options: {text}")
            for options in REFUSED + (REFUSED_BY_CLANG if clang else REFUSED_BY_GCC):
                tries.append((compiler, options, "refused", pool.submit(table.refuses, compiler, options)))
            if not given.all:
                continue
            expected, good = table.run(compiler, "-O0", "program.cpp")
            if not good:
                sys.exit(f"{compiler} without options: {expected}")
            print(f"{compiler}: {expected.strip()}")
            for options in ACCEPTED_BY_CLANG if clang else ACCEPTED_BY_GCC:
                tries.append((compiler, " ".join(options), "no effect", pool.submit(table.accepts, compiler, options, expected)))
        for compiler, options, what, found in tries:
            rows += 1
            problem = found.result()
            wrong += problem != ""
            print(f"{'WRONG' if problem else 'ok'}: {compiler} {options}: {problem or what}", flush=True)
    print(f"{rows} rows, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
