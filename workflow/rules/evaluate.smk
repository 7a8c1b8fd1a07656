# Evaluation: one measurement on all seeds of a run.


def evaluation_inputs(wildcards):
    """The receipts of the run's trainings, and the datasets that the measure reads."""
    measurement = measurement_of(wildcards)
    datasets = {measurement.run.recipe.data.dataset, *measurement.datasets}
    return [*map(str, measurement.run.receipts), *dataset_receipts(sorted(datasets))]


def measuring_resources(wildcards):
    """What the paper or the scale gives a measurement; no GPU to what is measured without one."""
    return CATALOG.resources(measurement_of(wildcards))


rule evaluate:
    """Take one measurement on the trained models of a run."""
    input:
        evaluation_inputs,
    output:
        str(RUNS / "{paper}" / "{run}" / "measurements" / "{measurement}.json"),
    wildcard_constraints:
        run=r"[^/]+-[0-9a-f]{8}",
    threads: ask(measuring_resources, "threads")
    resources:
        gpu=ask(measuring_resources, "gpus"),
        mem_mb=ask(measuring_resources, "mem_mb"),
        runtime=ask(measuring_resources, "runtime"),
    params:
        measure=lambda wildcards: measurement_of(wildcards).name,
        recipe=lambda wildcards: measurement_of(wildcards).run.name,
        code=measuring_digest,
    shell:
        "python -m vitrine.measures {wildcards.paper} {params.measure} --recipe {params.recipe:q}"
        " --output {output:q} " + WHERE
