# Training: one job trains some seeds of one recipe, in turn, and writes a receipt.
# Checkpoints, logs and weights lie beside the receipt, undeclared: Snakemake deletes the declared
# outputs of a failed job, and a job that was cut off must find its checkpoints again.

RECEIPT = str(RUNS / "{paper}" / "{run}" / "trained-{seeds}.json")


rule train:
    """Train some seeds of a recipe, or go on from their checkpoints."""
    input:
        need(RECEIPT, "inputs"),
    output:
        RECEIPT,
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
    threads: need(RECEIPT, "threads")
    resources:
        gpu=need(RECEIPT, "gpus"),
        mem_mb=need(RECEIPT, "mem_mb"),
        runtime=need(RECEIPT, "runtime"),
    params:
        identity=need(RECEIPT, "identity"),
        job=job_file(),
    # One process for each GPU that the job was given, and its share of the threads.
    shell:
        "processes=$(( {resources.gpu} > 1 ? {resources.gpu} : 1 ))\n"
        "export OMP_NUM_THREADS=$(( {threads} > processes ? {threads} / processes : 1 ))\n"
        "launch=python\n"
        "if (( processes > 1 )); then\n"
        '    launch="torchrun --standalone --nproc-per-node=$processes"\n'
        "fi\n"
        "$launch -m vitrine run {params.job:q} &> {log:q}"
