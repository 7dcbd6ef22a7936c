#!/usr/bin/env python3
"""Starts ranks by an mpirun: worlds of 1, 2 and 4, and some in which something goes wrong, of which every rank must be told; or the
policy matrix (matrix) or random collectives (campaign) on worlds of 1 to 4; or ranks with devices (device); or
the wire itself and worlds that end (wire)."""
import os, re, subprocess, sys

mpirun, program = sys.argv[1:3]
options = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in mpirun else []


# No direct copies from another process's memory: containers forbid them, and a stopped rank would
# continue to give its data.
no_single_copies = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "UCX_TLS": "self,posix,sysv"}


def run(ranks, *what):
    done = subprocess.run([mpirun, *options, "-n", str(ranks), program, *what], capture_output=True, text=True, timeout=float(os.environ.get("UNISONO_TEST_TIMEOUT_S", 130)),
                          env={**os.environ, **no_single_copies})
    return done.returncode, done.stdout + done.stderr


if sys.argv[3:] == ["matrix"]:
    ran = 0
    for ranks in (1, 2, 3, 4):
        status, told = run(ranks)
        counts = re.findall(r"^policy matrix over MPI: (\d+) combinations ran; (\d+) were refused", told, re.M)
        assert status == 0 and len(counts) == ranks and len(set(counts)) == 1, f"{ranks} ranks: status {status}\n{told}"
        ran += int(counts[0][0])
        print(f"{ranks} ranks: {counts[0][0]} combinations ran, {counts[0][1]} were refused at compile time")
    print(f"policy matrix over {mpirun}: {ran} combinations ran")
    sys.exit()

if sys.argv[3:] == ["campaign"]:
    for ranks in (1, 2, 3, 4):
        status, told = run(ranks)
        assert status == 0 and told.count("No errors detected") == ranks, f"{ranks} ranks: status {status}\n{told}"
        print(f"{ranks} ranks: ok")
    sys.exit()

if sys.argv[3:] == ["wire"]:
    for what, ranks in ((what, 2) for what in ("pieces", "no_memory", "goodbye", "leaves", "worlds", "fault", "adopts", "stays")):
        status, told = run(ranks, what)
        assert status == 0 and told.count("ok") == ranks, f"{what}: status {status}\n{told}"
        print(f"{what}: ok")
    sys.exit()

devices = sys.argv[3:]
for ranks in (1, 2, 3) if devices else (1, 2, 4):
    status, told = run(ranks)
    assert status == 0 and re.search(r"^ok$", told, re.M), f"{ranks} ranks: status {status}\n{told}"
    print(f"{ranks} ranks: ok")


def expect(what, ranks, pattern):
    _, told = run(3, what)
    for rank in ranks:
        assert re.search(rf"^rank {rank} told: unisono: {pattern}", told, re.M), f"{what}: rank {rank} was not told:\n{told}"
    print(f"{what}: told")


if devices:
    expect("absent", (1,), r"refused: CUDA: cudaSetDevice: cudaErrorInvalidDevice")
    expect("mismatch", (0, 1, 2), r"mismatch in all_reduce #1: .*rank 1 called all_reduce\(sum\) of 100001 float32 elements")
    sys.exit()

# Rank 1 may wake while the others look for the reason, and answer.
silent = r"timeout in all_reduce #1: .*; rank 1 (does not answer|is in no call of the library)"
expect("mismatch", (0, 1, 2), r"mismatch in all_reduce #1: .*rank 1 called all_reduce\(sum\) of 11 float32 elements")
expect("throws", (0, 2), r"aborted: rank 1 left its world because of an exception")
expect("silent", (0, 1, 2), silent)
expect("mismatch_large", (0, 1, 2), r"mismatch in all_reduce #1: .*rank 1 called all_reduce\(sum\) of 100001 float32 elements")
expect("silent_large", (0, 1, 2), silent)
expect("silent_inside", (0, 2), r"timeout in all_reduce #1: .*rank 1 does not answer")
