"""Runs a program as the ranks of one job, by every launcher at hand. For the examples' checks."""
import os, shutil, socket, subprocess


def environment():
    """Without what another launcher may have left in it."""
    foreign = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "MASTER_", "OMPI_", "PMI", "MPI_", "SLURM_", "PET_", "SM_",
               "TORCHELASTIC", "UNISONO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def by_unisono_run(unisono_run, ranks, command):
    done = subprocess.run([unisono_run, "-n", str(ranks), "--no-label", "--timeout", "200", *command], capture_output=True,
                          text=True, timeout=250, env=environment())
    return done.stdout, done.stderr, done.returncode


def by_mpirun(program, ranks, command):
    options = ["--allow-run-as-root", "--oversubscribe"] if program == "mpirun.openmpi" else []
    done = subprocess.run([program, *options, "-n", str(ranks), *command], capture_output=True, text=True, timeout=250,
                          env=environment())
    return done.stdout, done.stderr, done.returncode


def by_torchruns_variables(ranks, command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in map(str, range(ranks)):
        variables = {"RANK": rank, "WORLD_SIZE": str(ranks), "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": str(ranks),
                     "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**environment(), **variables}))
    try:
        told = [process.communicate(timeout=250) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return "".join(out for out, _ in told), "".join(err for _, err in told), max(process.returncode for process in processes)


def all(unisono_run, ranks, command):
    """(launcher, stdout, stderr) of each; they must succeed. What is not installed is left out, with a word."""
    runs = {"unisono-run": lambda: by_unisono_run(unisono_run, ranks, command),
            "torchrun's variables": lambda: by_torchruns_variables(ranks, command)}
    for program in ("mpirun.openmpi", "mpirun.mpich"):
        if shutil.which(program):
            runs[program] = lambda program=program: by_mpirun(program, ranks, command)
        else:
            print("skipped in part: there is no", program)
    for launcher, start in runs.items():
        out, err, status = start()
        assert status == 0, f"{launcher}: status {status}\n{out}{err}"
        yield launcher, out, err
