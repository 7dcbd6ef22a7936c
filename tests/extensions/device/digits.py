"""The digits example on devices that are a stand-in, by Thrust's kernels, comes to the accuracy and the bits of the one on the host.

    digits.py DIGITS_ON_STAND_IN DIGITS DATA
"""
import re
import subprocess
import sys

on_device, on_host, data = sys.argv[1:4]


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return re.match(r"(test accuracy ([\d.]+), loss [\d.]+, on 357 images)\n", done.stdout), re.search(r"bits (\w{16})", done.stdout)


EPOCHS = "10"
for ranks in ("1", "2"):
    found, bits = said(on_device, ranks, EPOCHS, data)
    expected, expected_bits = said(on_host, "--ranks", ranks, "--epochs", EPOCHS, "--data", data, "--quiet", "--bits")
    assert float(found[2]) >= 0.95, found[1]
    assert found[1] == expected[1], f"on {ranks} ranks: {found[1]}, on the host {expected[1]}"
    assert bits[1] == expected_bits[1], f"on {ranks} ranks: bits {bits[1]}, on the host {expected_bits[1]}"
wrong = subprocess.run([on_device, "two"], capture_output=True, text=True, timeout=100)
assert wrong.returncode == 2 and "RANKS is 'two', expected a whole number" in wrong.stderr, wrong
