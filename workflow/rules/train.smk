# Training: one job trains some seeds of one recipe, in turn, and writes a receipt.
# Checkpoints, logs and weights lie beside the receipt, undeclared: Snakemake deletes the declared
# outputs of a failed job, and a job that was cut off must find its checkpoints again.


def run_of(wildcards):
    """The run whose folder the wildcards name."""
    folder = RUNS / wildcards.paper / wildcards.run
    if folder not in CATALOG.runs:
        raise ValueError(f"{folder} belongs to no recipe at scale '{config['scale']}'")
    return CATALOG.runs[folder]


def training_inputs(wildcards):
    """The run's dataset, and the weights that it starts from."""
    run = run_of(wildcards)
    inputs = dataset_receipts([run.recipe.data.dataset])
    if run.recipe.model.pretrained:
        inputs.append(str(CATALOG.weights_of(run.recipe.model.name)))
    return inputs


def ask(step, resource):
    """A function that gives Snakemake what a job of `step` asks of one resource."""

    def resource_of(wildcards, attempt=1):
        resources = CATALOG.paper(wildcards.paper).resources(step)
        value = getattr(resources, resource)
        # A job that ran out of time gets longer, and goes on from its checkpoint.
        return value * 2 ** (attempt - 1) if resource == "runtime" else value

    return resource_of


def launcher(wildcards):
    """One process for each GPU, or a plain Python."""
    gpus = CATALOG.paper(wildcards.paper).resources("train").gpus
    processes = f"torchrun --standalone --nproc-per-node={gpus}"
    return processes if gpus > 1 else "python"


rule train:
    """Train some seeds of a recipe, or go on from their checkpoints."""
    input:
        training_inputs,
    output:
        str(RUNS / "{paper}" / "{run}" / "trained-{seeds}.json"),
    wildcard_constraints:
        run=r"[^/]+-[0-9a-f]{8}",
        seeds=r"\d+(-\d+)*",
    threads: ask("train", "threads")
    resources:
        gpu=ask("train", "gpus"),
        mem_mb=ask("train", "mem_mb"),
        runtime=ask("train", "runtime"),
    params:
        recipe=lambda wildcards: run_of(wildcards).recipe.canonical_json(),
        name=lambda wildcards: run_of(wildcards).name,
        launcher=launcher,
        seeds=lambda wildcards: wildcards.seeds.split("-"),
    shell:
        "{params.launcher} -m vitrine.training {wildcards.paper} {params.name:q}"
        " --seeds {params.seeds} --receipt {output:q}"
        " --scale {config[scale]} --data {config[data_root]} --runs {config[runs_root]}"
