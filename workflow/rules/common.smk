# What the rules share: which object of the catalogue the wildcards name, and what its job asks for.

NEEDED_DATASETS = set()

# The same arguments for every step.
WHERE = "--scale {config[scale]:q} --data {config[data_root]:q} --runs {config[runs_root]:q}"


def dataset_receipts(names):
    """The receipts of these datasets; remembers that they are needed."""
    NEEDED_DATASETS.update(names)
    return [str(CATALOG.receipt_of(name)) for name in names]


def run_of(wildcards):
    """The run whose folder the wildcards name."""
    folder = RUNS / wildcards.paper / wildcards.run
    if folder not in CATALOG.runs:
        raise ValueError(f"{folder} belongs to no recipe at scale '{config['scale']}'")
    return CATALOG.runs[folder]


def measurement_of(wildcards):
    """The measurement that the wildcards name, on a run, on a recipe or on nothing."""
    folder = RUNS / wildcards.paper / wildcards.get("run", "")
    path = folder / "measurements" / f"{wildcards.measurement}.json"
    if path not in CATALOG.measurements:
        raise ValueError(f"{path} belongs to no artifact at scale '{config['scale']}'")
    return CATALOG.measurements[path]


def measuring_digest(wildcards):
    """Changes with the code that measures and with that which is measured."""
    measurement = measurement_of(wildcards)
    return source_digest(measurement.function, *measurement.sources)


def ask(job_of, resource):
    """A function that gives Snakemake what a job asks of one resource.

    `job_of` finds the resources of the job from its wildcards.
    """

    def resource_of(wildcards, attempt=1):
        value = getattr(job_of(wildcards), resource)
        # A job that ran out of time gets longer, and goes on from its checkpoint.
        return value * 2 ** (attempt - 1) if resource == "runtime" else value

    return resource_of
