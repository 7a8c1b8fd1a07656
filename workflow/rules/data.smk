# Datasets and published weights: fetched where that is allowed, verified always.

NEEDED_DATASETS = set()


def dataset_receipts(names):
    """The receipts of these datasets; remembers that they are needed."""
    NEEDED_DATASETS.update(names)
    return [str(CATALOG.receipt_of(name)) for name in names]


rule fetch_dataset:
    """Fetch a dataset (or find it where it was placed) and verify it."""
    output:
        str(CATALOG.receipt_of("{dataset}")),
    localrule: True
    params:
        version=lambda wildcards: CATALOG.datasets[wildcards.dataset].version,
    shell:
        "python -m vitrine.data {wildcards.dataset} --data {config[data_root]} --receipt {output}"


rule fetch_weights:
    """Fetch a model's published weights from timm's hub, where there is a network."""
    output:
        str(CATALOG.weights_of("{model}")),
    localrule: True
    shell:
        "python -m vitrine.training.weights {wildcards.model} --output {output}"
