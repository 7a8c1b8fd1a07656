# Training: one node trains a recipe under one seed, and writes its record.
# Checkpoints, logs and weights are written beside the record but are not declared as outputs:
# Snakemake deletes the declared outputs of a failed job, and an interrupted job must find its
# checkpoints again.

RECORD = str(RUNS / "{paper}" / "{run}" / "trained-seed{seed}.json")


rule train:
    """Train a recipe under a seed, or go on from its checkpoints."""
    input:
        need(RECORD, "inputs"),
    output:
        RECORD,
    log:
        str(RUNS / "{paper}" / "{run}" / "logs" / "trained-seed{seed}.log"),
    benchmark:
        str(RUNS / "{paper}" / "{run}" / "logs" / "trained-seed{seed}.tsv")
    wildcard_constraints:
        paper=r"[^/]+",
        run=r"[^/]+-[0-9a-f]{8}",
        seed=r"\d+",
    conda:
        "../../envs/environment.yml"
    threads: need(RECORD, "threads")
    resources:
        nodes=need(RECORD, "nodes"),
        gpu=gpus_by_slurm(RECORD, "gpu"),
        gres=gpus_by_slurm(RECORD, "gres"),
        mpi=gpus_by_slurm(RECORD, "mpi"),
        tasks=gpus_by_slurm(RECORD, "tasks"),
        tasks_per_gpu=gpus_by_slurm(RECORD, "tasks_per_gpu"),
        mem_mb=need(RECORD, "mem_mb"),
        runtime=need(RECORD, "runtime"),
    params:
        identity=need(RECORD, "identity"),
        code=trained_by(RECORD),
        node=node_file(),
        placed=placed,
        processes=processes_of_node,
    # Each node runs one process for each GPU, with an equal share of the threads. Processes connect
    # to the first node, where this command runs, at the address that `vitrail address` prints there
    # (docs/cluster.md). The signal before the end of the job's time is for them, not
    # for torchrun.
    shell:
        "processes={params.processes} nodes={resources.nodes}\n"
        "export OMP_NUM_THREADS=$(( {threads} > processes ? {threads} / processes : 1 ))\n"
        "launch=python\n"
        "if (( nodes > 1 )); then\n"
        "    address=$(python -m vitrail address 2> {log:q}) || exit\n"
        '    launch="srun --nodes=$nodes --ntasks=$nodes --cpus-per-task={threads} --cpu-bind=quiet"\n'
        '    launch+=" --kill-on-bad-exit=1 env --ignore-signal=USR1"\n'
        '    launch+=" torchrun --nnodes=$nodes --nproc-per-node=$processes"\n'
        '    launch+=" --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID"\n'
        '    launch+=" --rdzv-endpoint=$address:$(( 20000 + SLURM_JOB_ID % 20000 ))"\n'
        "elif (( processes > 1 )); then\n"
        '    launch="torchrun --standalone --nproc-per-node=$processes"\n'
        "fi\n"
        "{params.placed}$launch -m vitrail run {params.node:q} &> {log:q}"
