"""A killed training goes on to the same bits: check.py PROGRAM UNISONO_RUN."""
import pathlib, re, subprocess, sys, tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import launched

program, unisono_run = sys.argv[1:3]


def run(*arguments, status=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=100)
    assert done.returncode == status, f"{arguments}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done.stdout


whole = run("--ranks", 1)
assert re.fullmatch(r"96 updates, parameters [0-9a-f]{16}, optimizer [0-9a-f]{16}\n", whole), whole
with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    assert run("--ranks", 3, "--folder", root / "a") == whole  # saving changes nothing
    assert sorted(one.name for one in (root / "a").glob("checkpoint-*")) == ["checkpoint-000008-update-80", "checkpoint-000009-update-90"]

    assert run("--ranks", 3, "--folder", root / "b", "--die", 47, status=-9) == ""
    expected = "goes on from checkpoint-000004-update-40, which 3 ranks wrote\n" + whole
    assert run("--ranks", 2, "--folder", root / "b") == expected

    # The same on processes, one of which is killed. Checkpoints are written during training.
    command = [program, "--folder", str(root / "c"), "--background"]
    out, err, status = launched.by_unisono_run(unisono_run, 2, [*command, "--die", "55"])
    assert status != 0 and "96 updates" not in out, (out, err, status)
    out, err, status = launched.by_unisono_run(unisono_run, 3, command)
    assert status == 0 and re.sub("-00000[45]-update-[45]0", "-...", out) == (
        "goes on from checkpoint-..., which 2 ranks wrote\n" + whole), (out, err)

    newest = max(one for one in (root / "c").glob("checkpoint-*"))
    assert newest.name.endswith("-update-90"), newest
    (newest / "optimizer-00001-of-00003.safetensors").unlink()
    done = subprocess.run([program, "--folder", root / "c"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "optimizer-00001-of-00003.safetensors': No such file" in done.stderr, done
print("one hash:", whole)
