# Datasets and published weights: fetched where that is allowed, verified always.

from vitrine.plan.datasets import fetched_with


def fetched_before(wildcards):
    """The receipt of the dataset that is made of the same files, if that comes first."""
    first = fetched_with(wildcards.dataset, CATALOG.datasets)
    return [] if first == wildcards.dataset else [str(CATALOG.receipt_of(first))]


rule fetch_dataset:
    """Fetch a dataset (or find it where it was placed) and verify it."""
    input:
        fetched_before,
    output:
        str(CATALOG.receipt_of("{dataset}")),
    localrule: True
    params:
        version=lambda wildcards: CATALOG.datasets[wildcards.dataset].version,
    shell:
        "python -m vitrine.data {wildcards.dataset} --data {config[data_root]:q} --receipt {output:q}"


rule fetch_weights:
    """Fetch published weights as the registry says, where there is a network."""
    output:
        str(CATALOG.weights_of("{name}")),
    localrule: True
    shell:
        "python -m vitrine.training.weights {wildcards.name} --output {output:q}"
