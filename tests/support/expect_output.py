"""Runs a command, and expects its status and a pattern in what it prints: expect_output.py passes|fails PATTERN COMMAND...
(CTest's PASS_REGULAR_EXPRESSION asks for the pattern alone: a program that prints it and then fails passes.)"""
import re
import subprocess
import sys

_, expected, pattern, *command = sys.argv
done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
print(done.stdout, end="", flush=True)
if (done.returncode == 0) != (expected == "passes"):
    sys.exit(f"\nstatus {done.returncode}; expected that it {expected}")
if not re.search(pattern, done.stdout, re.DOTALL):
    sys.exit(f"\nits output has no {pattern!r}")
