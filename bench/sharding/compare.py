"""Each stage of sharding beside PyTorch's DistributedDataParallel and FSDP: memory a rank and time of an update, 4 ranks, Adam,
20 million parameters. They take turns. See README.md."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, LAYERS = 4, 8
NAMES = {"replicated": "replicated", "state": "state sharded (ZeRO-1)", "gradients": "gradients, too (ZeRO-2)",
         "parameters": "parameters, too (ZeRO-3)", "ddp": "PyTorch DDP", "fsdp": "PyTorch FSDP"}


def unisono(program, quick):
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [program, "--only", "steps", "--json", str(report)] + (["--quick"] if quick else [])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        return {case["stage"]: case for case in json.loads(report.read_text())}


def torch(way, parameters, updates):
    width = math.isqrt(parameters // LAYERS)
    script = Path(__file__).parent / "torch_sharding.py"
    command = [sys.executable, str(script), way, *map(str, (RANKS, width, LAYERS, updates))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()
        print(f"PyTorch's {way} is left out: {last[-1] if last else 'it failed'}")
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("program", help="bench_sharding")
    asked.add_argument("--quick", action="store_true", help="2 million parameters, once")
    asked.add_argument("--json", help="a file to write")
    arguments = asked.parse_args()
    parameters = 2_097_152 if arguments.quick else 20_000_000
    found, version = {}, None
    left_out = set()
    for _ in range(1 if arguments.quick else 3):
        for stage, case in unisono(arguments.program, arguments.quick).items():
            found.setdefault(stage, []).append(case)
        for way in ("ddp", "fsdp"):
            case = None if way in left_out else torch(way, parameters, 5 if arguments.quick else 12)
            if case is None:
                left_out.add(way)
                continue
            version = case["version"]
            found.setdefault(way, []).append(case)
    print(f"{RANKS} ranks on {os.cpu_count()} cores, Adam, {parameters / 1e6:.0f} million parameters"
          + (f"; PyTorch {version} over Gloo" if version else "") + f"; load {os.getloadavg()[0]:.1f}")
    print(f"{'':26} {'memory a rank':>15} {'of 16 bytes each':>17} {'ms an update':>14}")
    results = []
    for way, cases in found.items():
        memory = statistics.median(case["resident_bytes"] for case in cases)
        took = [case["update_ms"] for case in cases]
        print(f"{NAMES[way]:26} {memory / 2**20:11.0f} MiB {memory / (16 * parameters):15.2f} x "
              f"{statistics.median(took):12.0f}   ({min(took):.0f} to {max(took):.0f})")
        results.append({"way": way, "resident_bytes": memory, "update_ms": took})
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"benchmark": "sharding_units", "quick": arguments.quick, "parameters": parameters,
                                                      "torch": version, "names": NAMES, "cases": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
