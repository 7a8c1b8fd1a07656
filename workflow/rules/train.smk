# Training: one job trains some seeds of one recipe, in turn, and writes a receipt.
# Checkpoints, logs and weights lie beside the receipt, undeclared: Snakemake deletes the declared
# outputs of a failed job, and a job that was cut off must find its checkpoints again.


def training_inputs(wildcards):
    """The run's dataset, and the weights that it starts from: published, or another run's."""
    run = run_of(wildcards)
    inputs = dataset_receipts([run.recipe.data.dataset])
    if run.recipe.model.published:
        inputs.append(str(CATALOG.weights_of(run.recipe.model.published)))
    if run.source:
        seeds = map(int, wildcards.seeds.split("-"))
        inputs += map(str, run.source.receipts_of(list(seeds)))
    return inputs


def training_resources(wildcards):
    """What the paper or the scale gives a training."""
    return CATALOG.resources(run_of(wildcards))


rule train:
    """Train some seeds of a recipe, or go on from their checkpoints."""
    input:
        training_inputs,
    output:
        str(RUNS / "{paper}" / "{run}" / "trained-{seeds}.json"),
    wildcard_constraints:
        run=r"[^/]+-[0-9a-f]{8}",
        seeds=r"\d+(-\d+)*",
    threads: ask(training_resources, "threads")
    resources:
        gpu=ask(training_resources, "gpus"),
        mem_mb=ask(training_resources, "mem_mb"),
        runtime=ask(training_resources, "runtime"),
    params:
        recipe=lambda wildcards: run_of(wildcards).recipe.canonical_json(),
        name=lambda wildcards: run_of(wildcards).name,
        seeds=lambda wildcards: wildcards.seeds.split("-"),
    # One process for each GPU that the job was given, and its share of the threads.
    shell:
        "processes=$(( {resources.gpu} > 1 ? {resources.gpu} : 1 ))\n"
        "export OMP_NUM_THREADS=$(( {threads} > processes ? {threads} / processes : 1 ))\n"
        "launch=python\n"
        "if (( processes > 1 )); then\n"
        '    launch="torchrun --standalone --nproc-per-node=$processes"\n'
        "fi\n"
        "$launch -m vitrine.training {wildcards.paper} {params.name:q}"
        " --seeds {params.seeds} --receipt {output:q} " + WHERE
