"""The sharded_digits example: five ways to the same bits, less memory with each stage, digits recognised: check.py PROGRAM"""
import subprocess, sys

done = subprocess.run([sys.argv[1], "--ranks", "4", "--epochs", "4", "--hidden", "96", "--layers", "6"],
                      capture_output=True, text=True, timeout=300)
assert done.returncode == 0, done.stderr
lines = [line.split() for line in done.stdout.splitlines()[1:]]
assert len(lines) == 5, done.stdout
assert len({line[-1] for line in lines}) == 1, f"other bits:\n{done.stdout}"
assert all(float(line[-2]) >= 0.93 for line in lines), f"accuracy:\n{done.stdout}"
memory = [float(line[-3]) for line in lines[1:]]  # per rank: the total, and that of each stage
assert all(after <= 0.95 * before for before, after in zip(memory, memory[1:])), f"no less with each stage:\n{done.stdout}"
assert [line[-5] for line in lines] == ["1", "4", "4", "4", "4"], done.stdout

refused = subprocess.run([sys.argv[1], "--ranks", "9"], capture_output=True, text=True, timeout=60)
assert refused.returncode != 0 and "--ranks" in refused.stderr, refused
