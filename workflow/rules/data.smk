# Datasets and published weights: fetched where that is allowed, verified always.


rule fetch_dataset:
    """Fetch a dataset (or find it where it was placed) and verify it."""
    output:
        str(CATALOG.receipt_of("{dataset}")),
    localrule: True
    params:
        version=lambda wildcards: CATALOG.datasets[wildcards.dataset].version,
    shell:
        "python -m vitrine.data {wildcards.dataset} --data {config[data_root]:q} --receipt {output:q}"


rule fetch_weights:
    """Fetch a model's published weights from timm's hub, where there is a network."""
    output:
        str(CATALOG.weights_of("{model}")),
    localrule: True
    shell:
        "python -m vitrine.training.weights {wildcards.model} --output {output:q}"
