"""The four cells of docs/parallel.md, on one machine: check.py PROGRAM LAUNCHER. The same training gives the same weights."""
import re, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import launched

program, launcher = sys.argv[1:]


def result(told):
    accuracy, weights = re.search(r"accuracy ([\d.]+), sum of all weights ([\d.]+);", told).groups()
    return float(accuracy), weights


def trained(*arguments, ranks=0):
    command = [launcher, "-n", str(ranks), program] if ranks else [program]
    done = subprocess.run(command + ["--epochs", "3", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command} {arguments}: {done.stdout}{done.stderr}"
    return result(done.stdout)


one, accuracy = (found := trained("--pipeline", "1"))[1], found[0]
assert accuracy > 0.85, accuracy
for split in (["--pipeline", "2"], ["--pipeline", "4", "--recompute"]):
    found = trained(*split)
    assert abs(float(found[1]) - float(one)) < 1e-6 * float(one), (split, found, one)
assert trained("--pipeline", "2", ranks=2) == trained("--pipeline", "2", "--transport", "tcp", ranks=2)
two = trained("--pipeline", "1", "--data", "2", ranks=2)
over_sockets = [program, "--epochs", "3", "--pipeline", "1", "--data", "2", "--transport", "tcp"]
for name, out, err in launched.all(launcher, 2, over_sockets):
    assert result(out) == two, (name, out, err)
both = trained("--pipeline", "2", "--data", "2", ranks=4)
assert abs(float(both[1]) - float(two[1])) < 1e-6 * float(two[1]), (both, two)

refused = subprocess.run([launcher, "-n", "3", program, "--pipeline", "2"], capture_output=True, text=True, timeout=60)
assert refused.returncode != 0 and "do not make up the world of 3 ranks" in refused.stderr, refused
