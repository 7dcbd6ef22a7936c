#!/usr/bin/env python3
"""Starts c_program's ranks without a launcher, twice at one place: the second job finds what the first one left.

    python3 bootstrap.py PROGRAM at|by RANKS
"""
import os
import socket
import subprocess
import sys
import tempfile

FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "MPI_", "SLURM_", "UNISONO_")


def main():
    program, how, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    with tempfile.TemporaryDirectory() as folder:
        place = folder
        for transport in ("auto", "tcp"):
            if how == "at":
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    place = f"127.0.0.1:{free.getsockname()[1]}"
            processes = [
                subprocess.Popen([program, transport, how, str(rank), str(ranks), place], env=environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for rank in range(ranks)
            ]
            try:
                told = [process.communicate(timeout=100)[0] for process in processes]
            finally:
                for process in processes:
                    process.kill()
            expected = [f"{ranks} ranks: all calls\n"] + [""] * (ranks - 1)
            if told != expected or any(process.returncode for process in processes):
                sys.exit(f"{transport}: found {told}, statuses {[process.returncode for process in processes]}")


if __name__ == "__main__":
    main()
