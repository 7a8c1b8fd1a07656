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
        version=lambda wildcards: CATALOG.datasets[wildcards.dataset].version,
    # A download tells of its progress on the terminal, too.
    shell:
        "python -m vitrine.data {wildcards.dataset} --data {params.data:q} --receipt {output:q}"
        " 2>&1 | tee {log:q}"


rule fetch_weights:
    """Fetch a model's published weights from timm's hub, where there is a network."""
    output:
        str(CATALOG.weights_of("{model}")),
    log:
        str(CATALOG.data_root / "logs" / "{model}.log"),
    benchmark:
        str(CATALOG.data_root / "logs" / "{model}.tsv")
    localrule: True
    conda:
        "../../envs/environment.yml"
    shell:
        "python -m vitrine.training.weights {wildcards.model} --output {output:q} 2>&1 | tee {log:q}"


rule fetch_checkpoint:
    """Fetch a backbone's published checkpoint from its URL, where there is a network."""
    output:
        str(CATALOG.data_root / "weights" / "{file}.pth"),
    log:
        str(CATALOG.data_root / "logs" / "{file}.log"),
    benchmark:
        str(CATALOG.data_root / "logs" / "{file}.tsv")
    localrule: True
    conda:
        "../../envs/environment.yml"
    params:
        url=lambda wildcards: CATALOG.checkpoint_urls[f"{wildcards.file}.pth"],
    shell:
        "python -m vitrine.training.weights {params.url:q} --output {output:q} 2>&1 | tee {log:q}"
