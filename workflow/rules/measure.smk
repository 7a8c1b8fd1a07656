# Measurements of a run's trained model, or of what needs no training (variances, parameters, FLOPs,
# throughput).

EVALUATION = str(RUNS / "{paper}" / "{run}" / "measurements" / "{measurement}.json")
BENCHMARK = str(RUNS / "{paper}" / "measurements" / "{measurement}.json")


rule evaluate:
    """Take one measurement on the trained model of a run."""
    input:
        need(EVALUATION, "inputs"),
    output:
        EVALUATION,
    log:
        str(RUNS / "{paper}" / "{run}" / "logs" / "{measurement}.log"),
    benchmark:
        str(RUNS / "{paper}" / "{run}" / "logs" / "{measurement}.tsv")
    wildcard_constraints:
        paper=r"[^/]+",
        run=r"[^/]+-[0-9a-f]{8}",
        measurement=r"[^/]+",
    conda:
        "../../envs/environment.yml"
    threads: need(EVALUATION, "threads")
    resources:
        nodes=1,
        gpu=need(EVALUATION, "gpus"),
        mem_mb=need(EVALUATION, "mem_mb"),
        runtime=need(EVALUATION, "runtime"),
    params:
        identity=need(EVALUATION, "identity"),
        node=node_file(),
        placed=placed,
    shell:
        "{params.placed}python -m vitrail run {params.node:q} &> {log:q}"


rule benchmark:
    """Take one measurement that needs no trained model."""
    input:
        need(BENCHMARK, "inputs"),
    output:
        BENCHMARK,
    log:
        str(RUNS / "{paper}" / "logs" / "{measurement}.log"),
    benchmark:
        str(RUNS / "{paper}" / "logs" / "{measurement}.tsv")
    wildcard_constraints:
        paper=r"[^/]+",
        measurement=r"[^/]+",
    priority: 1  # they take seconds, so the first tables are ready early
    conda:
        "../../envs/environment.yml"
    threads: need(BENCHMARK, "threads")
    resources:
        nodes=1,
        gpu=need(BENCHMARK, "gpus"),
        mem_mb=need(BENCHMARK, "mem_mb"),
        runtime=need(BENCHMARK, "runtime"),
    params:
        identity=need(BENCHMARK, "identity"),
        node=node_file(),
        placed=placed,
    shell:
        "{params.placed}python -m vitrail run {params.node:q} &> {log:q}"
