#!/usr/bin/env python3
"""Starts a training by a launcher: check.py LAUNCHER PROGRAM UNISONO_RUN. Exits with 77 if the launcher is not here.

Under every launcher, 1, 2 and 4 ranks have the hash of one process without a launcher. If a rank is killed, the others are told which.
"""
import os, pathlib, re, secrets, shutil, subprocess, sys, tempfile, time

os.environ["PATH"] += ":/usr/sbin:/sbin"
launcher, program, unisono_run = sys.argv[1:4]
here = pathlib.Path(__file__).resolve().parent
inside = "UNISONO_TEST_CLUSTER" in os.environ # within cluster.py


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(*command, seconds=120, **variables):
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **variables}, start_new_session=True) as process:
        try:
            told, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise SystemExit(f"{' '.join(map(str, command))} did not end within {seconds} s:\n{process.communicate()[0]}")
    return process.returncode, told


def need(*programs):
    for name in programs:
        if shutil.which(name) is None:
            skip(f"there is no {name}")


def hash_alone():
    status, told = run(program)
    found = re.search(r"^rank 0 of 1: (\w+)$", told, re.M)
    assert status == 0 and found, f"alone: status {status}\n{told}"
    return found[1]


def same_bits(start, ranks, expected):
    status, told = run(*start(ranks), program)
    hashes = re.findall(rf"rank (\d+) of {ranks}: (\w+)", told)
    assert status == 0 and sorted(int(rank) for rank, _ in hashes) == list(range(ranks)), f"{ranks} ranks: status {status}\n{told}"
    assert {one for _, one in hashes} == {expected}, f"{ranks} ranks: expected {expected}\n{told}"
    print(f"{ranks} ranks: {expected}")


def death_is_told(start, ranks=4, victim=2, survivors=None):
    """`survivors`: that many at least must say it; a launcher may end the others before they can."""
    began = time.monotonic()
    status, told = run(*start(ranks), program, victim, 5)
    names = re.findall(rf"told: unisono: .*rank {victim}\b", told)
    assert status != 0 and f"rank {victim} kills itself" in told, f"a death: status {status}\n{told}"
    expected = ranks - 1 if survivors is None else survivors
    assert len(names) >= expected, f"a death: {len(names)} ranks name rank {victim}, expected {expected}\n{told}"
    print(f"a death is told by {len(names)} of {ranks - 1} after {time.monotonic() - began:.1f} s in all")


if launcher == "slurm" and not inside:
    need("slurmctld", "slurmd", "srun", "sbatch", "scancel", "munged", "unshare", "ip")
    if os.geteuid() != 0:
        skip("a Slurm of the test's own needs root, for its name spaces")
    spaces = ["unshare", "-n", "-p", "-f", "-m", "-u", "--kill-child", "--mount-proc"]
    if subprocess.run([*spaces, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"], capture_output=True).returncode != 0:
        skip("name spaces with a network of their own cannot be made here")
    with tempfile.TemporaryDirectory(prefix="unisono_slurm_") as folder:
        status, told = run(*spaces, sys.executable, here / "cluster.py", folder, sys.executable, __file__, *sys.argv[1:], seconds=280,
                           UNISONO_TEST_CLUSTER=folder)
    print(told)
    sys.exit(status)

expected = hash_alone()
if launcher == "unisono-run":
    start = lambda ranks: [unisono_run, "-n", ranks]
    death = {}
elif launcher == "openmpi":
    need("mpirun.openmpi")
    start = lambda ranks: ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", ranks]
    death = {"survivors": 0} # it ends the others at once
elif launcher == "mpich":
    need("mpirun.mpich")
    start = lambda ranks: ["mpirun.mpich", "-n", ranks]
    death = {"survivors": 0}
elif launcher == "torchrun":
    torchrun = os.environ.get("UNISONO_TORCHRUN") or shutil.which("torchrun")
    if torchrun is None:
        skip("there is no torchrun; UNISONO_TORCHRUN may name one")
    start = lambda ranks: [torchrun, "--no-python", "--standalone", f"--nproc-per-node={ranks}"]
    death = {"survivors": 0}
else:
    os.environ["UNISONO_TOKEN"] = secrets.token_hex(16) # without one, ranks of several hosts do not meet
    start = lambda ranks: ["srun", "-N", min(ranks, 2), "-n", ranks, "--kill-on-bad-exit=0"]
    death = {}

for ranks in (1, 2, 4):
    same_bits(start, ranks, expected)
death_is_told(start, **death)

if launcher == "slurm":
    folder = pathlib.Path(os.environ["UNISONO_TEST_CLUSTER"])
    # A batch script with a step of four ranks.
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH -N 2 -n 4\nexec srun {program}\n")
    status, told = run("sbatch", "--wait", "-o", folder / "job.txt", script)
    written = (folder / "job.txt").read_text()
    assert status == 0 and written.count(expected) == 4, f"sbatch: status {status}\n{told}\n{written}"
    print("sbatch: 4 ranks have the hash")
    # srun's default ends the step when a task fails; then no rank is left.
    death_is_told(lambda ranks: ["srun", "-N", 2, "-n", ranks, "--kill-on-bad-exit=1"], survivors=0)
    # With --no-kill the allocation outlives a node; the ranks' error is the same.
    death_is_told(lambda ranks: ["srun", "--no-kill", "-N", 2, "-n", ranks, "--kill-on-bad-exit=0"])
    # scancel ends ranks that wait for one that does not come, and leaves none.
    script.write_text(f"#!/bin/sh\n#SBATCH -N 2 -n 4\nexec srun sh -c 'if [ $SLURM_PROCID = 3 ]; then exec sleep 300; fi; exec {program}'\n")
    status, told = run("sbatch", "--parsable", "-o", folder / "waits.txt", script)
    job = told.strip()
    until = time.monotonic() + 30
    while subprocess.run(["pgrep", "-fc", f"^{program}"], capture_output=True, text=True).stdout.strip() != "3":
        assert time.monotonic() < until, f"scancel: three ranks did not start\n{(folder / 'waits.txt').read_text()}"
        time.sleep(0.1)
    run("scancel", job)
    until = time.monotonic() + 30
    while subprocess.run(["pgrep", "-f", f"^{program}"], capture_output=True).returncode == 0:
        assert time.monotonic() < until, "scancel: ranks are left\n" + run("ps", "aux")[1]
        time.sleep(0.1)
    print("scancel: no rank is left")
print("ok")
