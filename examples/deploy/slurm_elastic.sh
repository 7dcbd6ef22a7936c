#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --no-kill
# Slurm, an elastic world: eight ranks on two hosts. If some ranks or a whole host die, the others
# continue. The program joins, for example, by un::join<un::Elastic<un::Hosts<un::Tcp>>>().
#     sbatch slurm_elastic.sh ./train --epochs 20
set -euo pipefail
if [ -z "${UNISONO_TOKEN:-}" ]; then UNISONO_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n'); fi
export UNISONO_TOKEN # of this job: keeps strangers out
exec srun --no-kill --kill-on-bad-exit=0 --wait=0 "$@"
