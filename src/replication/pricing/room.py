"""Find the jobs that fit into no partition of the SLURM profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from snakemake_executor_plugin_slurm.partitions import Partition

from replication.cluster.partition_file import PARTITIONS, read_partitions, suitable
from replication.config.schema import place_of
from replication.config.settings import Resources
from replication.plan.catalog import Catalog
from replication.plan.resources import step_of
from replication.records.specs import Artifact, Measurement, Run, by_recipe
from vitrail.commands import count

NAMED = 2  # number of jobs that a sentence names; it gives the number of the others


def jobs_of(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[Run | Measurement]:
    """Return the trainings and measurements that artifacts need, each under its first seed."""
    cells = (cell for artifact in artifacts for cell in artifact.cells)
    measurements = dict.fromkeys(filter(None, map(catalog.measurement_of, cells)))
    return [*(run for run, *_ in by_recipe(catalog.runs_of(*artifacts))), *measurements]


def name_of(job: Run | Measurement) -> str:
    """Return the name of a training or a measurement in a sentence."""
    if isinstance(job, Measurement) and job.on:
        return f"{job.paper}/{job.name} of {job.on.name}"
    return f"{job.paper}/{job.name}"


def partitions_of(catalog: Catalog) -> list[Partition]:
    """Return the partitions of the SLURM profile; [] at a scale of CPUs, or without their file.

    Raises:
        VitrailError: the file has a mistake.
    """
    file = catalog.root / PARTITIONS
    return [] if catalog.scale.device == "cpu" or not file.is_file() else read_partitions(file)


def without_room(catalog: Catalog, artifacts: Sequence[Artifact]) -> list[str]:
    """Return a sentence for each group of jobs with equal resources that fit into no partition.

    There are none if `partitions_of` returns no partition.

    Raises:
        VitrailError: the partition file has a mistake.
    """
    partitions = partitions_of(catalog)
    if not partitions:
        return []
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in jobs_of(catalog, artifacts):
        asked = catalog.resources(job)
        if not suitable(partitions, asked):
            told, resources = _exceeded(partitions, asked)
            why = f"{_written(asked)} ({told})"
            found[why, _places(resources, job, catalog)].append(name_of(job))
    return [
        f"no partition of {PARTITIONS} has room for {_listed(names)}: {why}; correct the "
        f"limits there, or lower {places}"
        for (why, places), names in found.items()
    ]


def _places(resources: Sequence[str], job: Run | Measurement, catalog: Catalog) -> str:
    """Return some resources of a job, each with the file and line that set it."""
    written = catalog.run_settings(job).resources.get(step_of(job))
    by_place: dict[str, list[str]] = defaultdict(list)
    for name in resources:
        place = place_of(written, name) or str(catalog.paper(job.paper).scale_path)
        by_place[place].append(name)
    return " and ".join(f"{', '.join(names)} in {place}" for place, names in by_place.items())


def _exceeded(partitions: Sequence[Partition], asked: Resources) -> tuple[str, Sequence[str]]:
    """Return the largest value of each limit that excludes a job from all partitions.

    Also return the resources of the job that these limits concern.
    """
    limits = [partition.limits for partition in partitions]
    with_gpus = [each for each in limits if each.max_gpu >= asked.gpus]
    if not with_gpus:
        return f"the largest max_gpu is {max(each.max_gpu for each in limits)}", ["gpus"]
    of_job = {
        "max_mem_mb": "mem_mb",
        "max_threads": "threads",
        "max_cpus_per_task": "threads",
        "max_nodes": "nodes",
        "max_tasks": "nodes",
    }
    wanted = {key: getattr(asked, name) for key, name in of_job.items()}
    of = f"of partitions with at least {count(asked.gpus, 'GPU')} " if asked.gpus else ""
    largest = {key: max(getattr(each, key) for each in with_gpus) for key in wanted}
    exceeded = [key for key in wanted if wanted[key] > largest[key]]
    if not exceeded:
        told = "no partition is large enough for all of these"
        return told, [*dict.fromkeys(("gpus", *of_job.values()))]
    found = " and ".join(f"{key} {of}is {largest[key]:.0f}" for key in exceeded)
    return f"the largest {found}", [*dict.fromkeys(of_job[key] for key in exceeded)]


def _written(asked: Resources) -> str:
    each = [count(asked.gpus, "GPU"), count(asked.threads, "thread"), f"{asked.mem_mb} MB"]
    nodes = "one node" if asked.nodes == 1 else f"each of {asked.nodes} nodes"
    return f"{', '.join(each)} on {nodes}"


def _listed(names: Sequence[str]) -> str:
    others = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {others} more" if others > 0 else "")
