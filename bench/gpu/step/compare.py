#!/usr/bin/env python3
"""Training steps on this machine's GPUs, Unisono's and PyTorch's in turns: compare.py STEP_PROGRAM [--quick] [--json FILE]

Both begin with the same weights and must come to the same loss. The kernels of examples/digits_on_gpu are plain loops, PyTorch's a library's: what
a step has beside them shows in the small networks. Without PyTorch, Unisono's alone.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

CASES = [(64, 32), (256, 32), (512, 32), (512, 256)]  # hidden units, samples per rank
TORCH = Path(__file__).with_name("torch_step.py")


def said(*command):
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--torch-device", default="cuda", help="cpu: to try the script")
    given = parser.parse_args()
    rounds, steps = (2, 50) if given.quick else (7, 500)
    with_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    if not with_torch:
        print("PyTorch is left out: this Python does not have it")
    results = []
    print(f"{'hidden':>7}{'rows':>6}{'ranks':>6}{'Unisono us':>12}{'PyTorch us':>12}{'ratio':>8}  of each round")
    with tempfile.TemporaryDirectory() as place:
        weights = Path(place) / "weights"
        for hidden, rows in CASES:
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(said(given.program, hidden, rows, steps, weights))
                if with_torch:
                    theirs.append(said(sys.executable, TORCH, hidden, rows, steps, weights, "--device", given.torch_device))
            one = {"hidden": hidden, "rows": rows, "ranks": ours[0]["ranks"], "unisono_us": [o["us"] for o in ours],
                   "torch_us": [t["us"] for t in theirs]}
            for t in theirs:
                if t["ranks"] == one["ranks"] and abs(t["loss"] - ours[0]["loss"]) > 1e-3 * ours[0]["loss"]:
                    raise SystemExit(f"{hidden} hidden units, {rows} rows: the losses differ: {ours[0]['loss']} and {t['loss']}")
            ratios = [t / o for t, o in zip(one["torch_us"], one["unisono_us"])]
            told = f"{median(one['torch_us']):>12.1f}{median(ratios):>6.2f} x  {min(ratios):.2f} to {max(ratios):.2f}" if theirs else ""
            print(f"{hidden:>7}{rows:>6}{one['ranks']:>6}{median(one['unisono_us']):>12.1f}{told}", flush=True)
            results.append(one)
    if given.json:
        Path(given.json).write_text(json.dumps({"benchmark": "gpu_step", "quick": given.quick, "cases": results}, indent=1))


if __name__ == "__main__":
    main()
