#!/usr/bin/env python3
"""Runs the commands of docs/scale.md that give rows of its tables, and looks each row up there.

    python3 check_page.py docs/scale.md BENCH_PREDICT
"""
import subprocess
import sys
from pathlib import Path

page = Path(sys.argv[1])
lines = page.read_text().splitlines()
missing = rows = 0
for line in lines:
    words = line.split()
    if "--ranks" not in words or not words[0].endswith("/bench_predict"):
        continue
    command = [sys.argv[2], str(page.resolve().parent.parent / words[1]), *words[2:]]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for row in found.splitlines():
        if not row.startswith("| "):
            continue
        rows += 1
        if row not in lines:
            missing += 1
            print(f"{page} lacks what '{line.strip()}' prints: {row}")
print(f"{rows} rows, {missing} missing")
sys.exit(1 if missing or not rows else 0)
