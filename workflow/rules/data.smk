# Datasets and published weights: fetched where that is allowed, and always verified.


rule fetch_dataset:
    """Fetch a dataset (or find it where it was placed) and verify it."""
    input:
        fetched_before,
    output:
        str(CATALOG.receipt_of("{dataset}")),
    log:
        str(CATALOG.fetched / "logs" / "{dataset}.log"),
    benchmark:
        str(CATALOG.fetched / "logs" / "{dataset}.tsv")
    retries: 0  # it tries each mirror several times
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        data=str(DATA),
        made_of=lambda wildcards: CATALOG.made_of(wildcards.dataset),
    # `tee` also shows on the terminal which mirror failed, and how long a download waits.
    shell:
        "python -m vitrail fetch {wildcards.dataset} --data {params.data:q} --receipt {output:q}"
        " 2>&1 | tee {log:q}"


rule fetch_weights:
    """Fetch published weights as the registry says, where there is a network."""
    output:
        str(CATALOG.weights_of("{name}")),
    log:
        str(CATALOG.fetched / "logs" / "{name}.log"),
    benchmark:
        str(CATALOG.fetched / "logs" / "{name}.tsv")
    retries: 0  # it tries each mirror several times
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        entry=published_entry,
    shell:
        "python -m vitrail fetch-weights {wildcards.name} --output {output:q} 2>&1 | tee {log:q}"
