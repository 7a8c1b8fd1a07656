# Benchmarks: measurements that need no trained model (variances, parameters, FLOPs, throughput).


def measurement_alone(wildcards):
    """The measurement on nothing that the wildcards name."""
    return measurement_of(wildcards, RUNS / wildcards.paper)


def gpus_of_benchmark(wildcards):
    """GPUs only for what is measured on one."""
    on_cpu = measurement_alone(wildcards).device == "cpu"
    return 0 if on_cpu else ask("benchmark", "gpus")(wildcards)


rule benchmark:
    """Take one measurement that needs no trained model."""
    input:
        lambda wildcards: dataset_receipts(measurement_alone(wildcards).datasets),
    output:
        str(RUNS / "{paper}" / "measurements" / "{measurement}.json"),
    threads: ask("benchmark", "threads")
    resources:
        gpu=gpus_of_benchmark,
        mem_mb=ask("benchmark", "mem_mb"),
        runtime=ask("benchmark", "runtime"),
    params:
        measure=lambda wildcards: measurement_alone(wildcards).name,
    shell:
        "python -m vitrine.measures {wildcards.paper} {params.measure}"
        " --output {output:q}"
        " --scale {config[scale]} --data {config[data_root]} --runs {config[runs_root]}"
