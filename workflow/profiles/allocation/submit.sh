#!/bin/bash
# Make targets in an allocation of whole nodes: sbatch workflow/profiles/allocation/submit.sh TARGETS
#
# site: how many nodes, with what, and for how long; sbatch's own options go over these lines. The jobs
# of the array run one after the other. Each goes on where the one before was cut off, and one that
# finds nothing to do ends at once. Two minutes before its time is up, trainings are told to save.
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
export VITRAIL_FAILURES=$PWD/.snakemake/failures/$SLURM_JOB_ID  # which nodes are sick
mkdir -p "$VITRAIL_FAILURES"
memory=${SLURM_MEM_PER_NODE:-0}  # MB; 0 where the allocation has all of each node's
(( memory )) || memory=$(sinfo --noheader --nodes="$SLURMD_NODENAME" --format=%m | tr -d +)
python -m snakemake --unlock &>/dev/null || true  # the allocation before may have been cut off
# A given --config goes over the profile's file.
exec python -m snakemake "$@" --profile workflow/profiles/allocation \
    --cores $(( nodes * SLURM_CPUS_ON_NODE )) \
    --resources gpu=$(( nodes * ${SLURM_GPUS_ON_NODE:-0} )) mem_mb=$(( nodes * memory ))
