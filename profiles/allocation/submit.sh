#!/bin/bash
# Make targets in an allocation of whole nodes: sbatch profiles/allocation/submit.sh TARGETS
#
# site: number of nodes, their resources, and time; options of sbatch replace these lines. The jobs of
# the array run one after the other. Each continues where the previous one was cut off, and ends at once
# if nothing is left to do. Two minutes before the end of its time, a signal tells trainings to save.
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --array=1-10%1
#SBATCH --signal=USR1@120
#SBATCH --no-kill
#SBATCH --job-name=vitrail
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
nodes=$SLURM_JOB_NUM_NODES
export VITRAIL_FAILURES=$PWD/.snakemake/failures/$SLURM_JOB_ID  # lists faulty nodes
mkdir -p "$VITRAIL_FAILURES"
memory=${SLURM_MEM_PER_NODE:-0}  # MB; 0 if the allocation has all memory of each node
(( memory )) || memory=$(sinfo --noheader --nodes="$SLURMD_NODENAME" --format=%m | tr -d +)
python -m snakemake --unlock &>/dev/null || true  # the previous allocation may have been cut off
# A --config in the arguments replaces settings of the profile's file.
exec python -m snakemake "$@" --profile profiles/allocation \
    --cores $(( nodes * SLURM_CPUS_ON_NODE )) \
    --resources gpu=$(( nodes * ${SLURM_GPUS_ON_NODE:-0} )) mem_mb=$(( nodes * memory ))
