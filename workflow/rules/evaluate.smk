# Evaluation: one measurement on all seeds of a run.


def measurement_of(wildcards, output_folder):
    """The measurement that is written to this path."""
    path = output_folder / "measurements" / f"{wildcards.measurement}.json"
    if path not in CATALOG.measurements:
        raise ValueError(f"{path} belongs to no artifact at scale '{config['scale']}'")
    return CATALOG.measurements[path]


def measurement_on_run(wildcards):
    """The measurement on a run that the wildcards name."""
    return measurement_of(wildcards, RUNS / wildcards.paper / wildcards.run)


def evaluation_inputs(wildcards):
    """The receipts of the run's trainings, and the datasets that the measure reads."""
    measurement = measurement_on_run(wildcards)
    datasets = {measurement.run.recipe.data.dataset, *measurement.datasets}
    return [*map(str, measurement.run.receipts), *dataset_receipts(sorted(datasets))]


rule evaluate:
    """Take one measurement on the trained models of a run."""
    input:
        evaluation_inputs,
    output:
        str(RUNS / "{paper}" / "{run}" / "measurements" / "{measurement}.json"),
    wildcard_constraints:
        run=r"[^/]+-[0-9a-f]{8}",
    threads: ask("evaluate", "threads")
    resources:
        gpu=ask("evaluate", "gpus"),
        mem_mb=ask("evaluate", "mem_mb"),
        runtime=ask("evaluate", "runtime"),
    params:
        measure=lambda wildcards: measurement_on_run(wildcards).name,
        recipe=lambda wildcards: measurement_on_run(wildcards).run.name,
    shell:
        "python -m vitrine.measures {wildcards.paper} {params.measure} --recipe {params.recipe:q}"
        " --output {output:q}"
        " --scale {config[scale]} --data {config[data_root]} --runs {config[runs_root]}"
