# Datasets and published weights: fetched where that is allowed, verified always.


rule fetch_dataset:
    """Fetch a dataset (or find it where it was placed) and verify it."""
    input:
        fetched_before,
    output:
        str(CATALOG.receipt_of("{dataset}")),
    log:
        str(CATALOG.data_root / "logs" / "{dataset}.log"),
    benchmark:
        str(CATALOG.data_root / "logs" / "{dataset}.tsv")
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        data=lambda wildcards, output: Path(output[0]).parents[1],
        made_of=lambda wildcards: CATALOG.made_of(wildcards.dataset),
    # A download tells on the terminal, too, which mirror failed and how long it waits.
    shell:
        "python -m vitrail fetch {wildcards.dataset} --data {params.data:q} --receipt {output:q}"
        " 2>&1 | tee {log:q}"


rule fetch_weights:
    """Fetch published weights as the registry says, where there is a network."""
    output:
        str(CATALOG.weights_of("{name}")),
    log:
        str(CATALOG.data_root / "logs" / "{name}.log"),
    benchmark:
        str(CATALOG.data_root / "logs" / "{name}.tsv")
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        entry=published_entry,
    shell:
        "python -m vitrail fetch-weights {wildcards.name} --output {output:q} 2>&1 | tee {log:q}"
