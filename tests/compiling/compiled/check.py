#!/usr/bin/env python3
"""check.py HEADERS COMPILED: both programs, the same source in both modes, print the same lines but for the mode."""

import subprocess
import sys


def main() -> int:
    printed = []
    for program, mode in zip(sys.argv[1:], ("headers", "compiled")):
        done = subprocess.run([program], capture_output=True, text=True, timeout=100, check=False)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or lines[:1] != [f"mode: {mode}"] or lines[-1:] != ["end"] or len(lines) not in (22, 26):
            print(f"{program}: status {done.returncode}, {len(lines)} lines; expected 22 or 26 from 'mode: {mode}' to 'end'\n{done.stdout}{done.stderr}")
            return 1
        printed.append(lines[1:])
    if len(printed[0]) != len(printed[1]):
        print("the programs print different numbers of lines")
        return 1
    wrong = [f"headers: {a}\ncompiled: {b}" for a, b in zip(*printed) if a != b]
    print(*wrong or [f"{len(printed[0])} lines are equal"], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
