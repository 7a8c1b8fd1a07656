# Training: one node trains some seeds of one recipe, in turn, and writes its record.
# Checkpoints, logs and weights lie beside the record, undeclared: Snakemake deletes the declared
# outputs of a failed job, and a job that was cut off must find its checkpoints again.

RECORD = str(RUNS / "{paper}" / "{run}" / "trained-{seeds}.json")


def allocation(what):
    """How SLURM is asked for the GPUs of one node, or of several with a task on each; or None."""

    def asked(wildcards):
        node = needs(RECORD.format(**wildcards))
        if node["nodes"] == 1:
            return {"gpu": node["gpus"]}.get(what)
        gpus = f"gpu:{node['gpus']}" if node["gpus"] else None  # of each node
        return {"gres": gpus, "mpi": "srun", "tasks": node["nodes"], "tasks_per_gpu": 0}.get(what)

    return asked


def processes_of_node(wildcards, resources):
    """One for each GPU that a node gives: on this machine it may be fewer than were asked for."""
    return max(1, resources.get("gpu", needs(RECORD.format(**wildcards))["gpus"]))


rule train:
    """Train some seeds of a recipe, or go on from their checkpoints."""
    input:
        need(RECORD, "inputs"),
    output:
        RECORD,
    log:
        str(RUNS / "{paper}" / "{run}" / "logs" / "trained-{seeds}.log"),
    benchmark:
        str(RUNS / "{paper}" / "{run}" / "logs" / "trained-{seeds}.tsv")
    wildcard_constraints:
        paper=r"[^/]+",
        run=r"[^/]+-[0-9a-f]{8}",
        seeds=r"\d+(-\d+)*",
    conda:
        "../../envs/environment.yml"
    threads: need(RECORD, "threads")
    resources:
        nodes=need(RECORD, "nodes"),
        gpu=allocation("gpu"),
        gres=allocation("gres"),
        mpi=allocation("mpi"),
        tasks=allocation("tasks"),
        tasks_per_gpu=allocation("tasks_per_gpu"),
        mem_mb=need(RECORD, "mem_mb"),
        runtime=need(RECORD, "runtime"),
    params:
        identity=need(RECORD, "identity"),
        node=node_file(),
        processes=processes_of_node,
    # On each node one process for each GPU, with its share of the threads. They meet on the first
    # node, where this runs, at the address that the command VITRAIL_ADDRESS prints there
    # (docs/cluster.md). The warning before the job's time is up is for them, not for torchrun.
    shell:
        "processes={params.processes} nodes={resources.nodes}\n"
        "export OMP_NUM_THREADS=$(( {threads} > processes ? {threads} / processes : 1 ))\n"
        "launch=python\n"
        "if (( nodes > 1 )); then\n"
        '    launch="srun --nodes=$nodes --ntasks=$nodes --cpus-per-task={threads} --cpu-bind=quiet"\n'
        '    launch+=" --kill-on-bad-exit=1 env --ignore-signal=USR1"\n'
        '    launch+=" torchrun --nnodes=$nodes --nproc-per-node=$processes"\n'
        '    launch+=" --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID"\n'
        '    launch+=" --rdzv-endpoint=$(eval "${{VITRAIL_ADDRESS:-hostname}}"):$(( 20000 + SLURM_JOB_ID % 20000 ))"\n'
        "elif (( processes > 1 )); then\n"
        '    launch="torchrun --standalone --nproc-per-node=$processes"\n'
        "fi\n"
        "$launch -m vitrail run {params.node:q} &> {log:q}"
