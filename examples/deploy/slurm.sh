#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
# Slurm: eight ranks on two hosts. srun tells each task its rank. The job's node list names the
# first host.
#     sbatch slurm.sh ./train --epochs 20
set -euo pipefail
if [ -z "${UNISONO_TOKEN:-}" ]; then UNISONO_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'); fi
export UNISONO_TOKEN # of this job: keeps strangers out
exec srun --kill-on-bad-exit=1 "$@"
