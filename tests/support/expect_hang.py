"""Runs the program that hangs on purpose; the watchdog must end it with status 124 and name the test case."""
import os
import subprocess
import sys

result = subprocess.run([sys.argv[1]], env=dict(os.environ, UNISONO_TEST_TIMEOUT_S="0.3"), capture_output=True,
                        text=True, timeout=60)
print(result.stdout, result.stderr, sep="")
if result.returncode != 124:
    sys.exit(f"expected exit status 124, got {result.returncode}")
if "watchdog: test case deep/never_ends hung" not in result.stderr:
    sys.exit("the watchdog did not name the test case")
