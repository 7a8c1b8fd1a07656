# Benchmarks: measurements that need no trained model (variances, parameters, FLOPs, throughput).


def recipe_option(wildcards):
    """The option that names the recipe that is measured, where one is."""
    described = measurement_of(wildcards).described
    return f"--recipe {shlex.quote(described.name)}" if described else ""


rule benchmark:
    """Take one measurement that needs no trained model."""
    input:
        lambda wildcards: dataset_receipts(measurement_of(wildcards).datasets),
    output:
        str(RUNS / "{paper}" / "measurements" / "{measurement}.json"),
    priority: 1  # seconds each: the first tables come first
    threads: ask(measuring_resources, "threads")
    resources:
        gpu=ask(measuring_resources, "gpus"),
        mem_mb=ask(measuring_resources, "mem_mb"),
        runtime=ask(measuring_resources, "runtime"),
    params:
        measure=lambda wildcards: measurement_of(wildcards).name,
        recipe=recipe_option,
        code=measuring_digest,
    shell:
        "python -m vitrine.measures {wildcards.paper} {params.measure} {params.recipe}"
        " --output {output:q} " + WHERE
