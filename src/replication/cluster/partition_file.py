"""The partition file of the SLURM profile, checked before a job is submitted.

Snakemake's executor for SLURM reads the file, too, but its errors name neither the file nor the
partition. It also takes ``12:00:00`` without quotes for a number of minutes, since YAML 1.1 reads
it as a number of base 60.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    field_validator,
    model_validator,
)
from snakemake_executor_plugin_slurm import WorkflowError
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits
from snakemake_executor_plugin_slurm.utils import parse_time_to_minutes

from replication.config.schema import Strict, load
from replication.config.settings import Resources

PROFILE = Path("slurm")
PARTITIONS = PROFILE / "partitions.yaml"
CONFIG = PROFILE / "config.yaml"  # the profile itself
SLURM_RESOURCE = re.compile("slurm[-_]")  # begins names such as slurm_account
OWN_RESOURCES = ("slurm_account", "gpu_model", "constraint", "qos")  # of the profile's template
LONGEST = 365 * 24 * 60  # minutes; a longer limit is taken for a mistake
# The limits that SLURM tells, with the resource of a job that each limits, and the unit.
TOLD = {
    "max_runtime": ("runtime", "minutes"),
    "max_gpu": ("gpus", "GPUs of a node"),
    "max_threads": ("threads", "CPUs of a node"),
    "max_mem_mb": ("mem_mb", "MB of a node"),
}


def _number_of_jobs(value: Any) -> float:
    """Return how many jobs may run at once: a whole number above 0, or infinity."""
    if value == "unlimited":
        return math.inf
    if type(value) is not int or value < 1:
        raise ValueError("write a number of jobs, or unlimited")
    return value


def _minutes(value: Any) -> float:
    """Return the minutes that the executor reads in a time limit.

    Raises ValueError for a value that the executor would read wrongly or not at all.
    """
    how = "write minutes, such as 2880, or a time, such as 2-00:00:00 or 12:00:00"
    # In 30:00, SLURM reads the first number as minutes, and the executor reads it as hours.
    if isinstance(value, bool) or re.fullmatch(r"\d+:\d+", str(value)):
        raise ValueError(how)
    if value == math.inf:
        return math.inf
    try:
        minutes = parse_time_to_minutes(value)
    except (WorkflowError, TypeError, ValueError, OverflowError):
        raise ValueError(how) from None
    if not 0 < minutes <= LONGEST:
        raise ValueError(how)
    return float(minutes)


def _megabytes(value: Any) -> Any:
    """Return a limit of memory; raises ValueError for a text that is no number, such as 64G."""
    if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d+)?", value):
        raise ValueError("write MB without a unit, such as 64000")
    return value


Megabytes = Annotated[NonNegativeFloat, BeforeValidator(_megabytes)]


class Limits(Strict):
    """The limits of one partition; the fields are those that the executor for SLURM knows."""

    @model_validator(mode="before")
    @classmethod
    def _cpus_are_threads(cls, written: Any) -> Any:
        if isinstance(written, dict) and "max_cpus" in written:
            raise ValueError("write 'max_cpus' as 'max_threads', the CPUs of one node")
        return written

    max_runtime: Annotated[float, BeforeValidator(_minutes)] = math.inf
    max_mem_mb: Megabytes = math.inf
    max_mem_mb_per_cpu: Megabytes = math.inf
    max_cpus_per_task: NonNegativeFloat = math.inf
    max_threads: NonNegativeFloat = math.inf
    max_nodes: NonNegativeFloat = math.inf
    max_tasks: NonNegativeFloat = math.inf
    max_tasks_per_node: NonNegativeFloat = math.inf
    max_gpu: NonNegativeInt = 0
    available_gpu_models: list[str] | None = None
    max_cpus_per_gpu: NonNegativeFloat = math.inf
    supports_mpi: bool = True
    max_mpi_tasks: NonNegativeFloat = math.inf
    available_constraints: list[str] | None = None
    cluster: str | None = Field(
        None, validation_alias=AliasChoices("cluster", "clusters", "slurm_cluster")
    )


class PartitionFile(Strict):
    """A partition file: the limits of each partition, by its name."""

    partitions: dict[str, Limits]

    @field_validator("partitions", mode="before")
    @classmethod
    def _has_partitions(cls, partitions: Any) -> Any:
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError("name at least one partition with its limits, such as 'cpu: {}'")
        for name, limits in partitions.items():
            if not isinstance(limits, dict):
                raise ValueError(
                    f"limits of '{name}' must be a mapping; without any: '{name}: {{}}'"
                )
        return partitions


def suitable(partitions: Iterable[Partition], asked: Resources) -> list[Partition]:
    """Return the partitions that the executor could choose for a job, whatever its time.

    The job's time is later cut to that of its partition. Resources that only a site asks for (a
    cluster, a model of GPUs) exclude no partition here.
    """
    resources: dict[str, Any] = {"nodes": asked.nodes, "mem_mb": asked.mem_mb, "gpu": asked.gpus}
    if asked.nodes > 1:
        resources |= {"tasks": asked.nodes, "mpi": "srun"}
    job: Any = SimpleNamespace(threads=asked.threads, resources=resources)
    return [
        partition
        for partition in partitions
        if replace(partition, partition_cluster=None).score_job_fit(job) is not None
    ]


def longest(partitions: Iterable[Partition], asked: Resources) -> float:
    """Return the longest time, in minutes, of the partitions that suit a job."""
    return most(suitable(partitions, asked), "runtime", asked.gpus)


def most(suitable: Sequence[Partition], resource: str, gpus: int) -> float:
    """Return the largest limit of a resource among the partitions that suit a job.

    For a job without a GPU, only partitions without GPUs count, if there are any. Infinity if no
    partition suits it.
    """
    if not gpus:
        suitable = [partition for partition in suitable if not partition.limits.max_gpu] or suitable
    return max((getattr(p.limits, f"max_{resource}") for p in suitable), default=math.inf)


def read_partitions(path: Path = PARTITIONS) -> list[Partition]:
    """Return the partitions that a file names, as objects of the executor for SLURM.

    Raises:
        VitrailError: it is missing or no valid YAML, names no partition, or has a key or a value
            that the executor would not understand.
    """
    found = []
    for name, limits in load(PartitionFile, path).partitions.items():
        given = limits.model_dump(exclude={"cluster"})
        found.append(Partition(name, PartitionLimits(**given), limits.cluster))
    return found


class Profile(BaseModel):
    """What commands read of the SLURM profile; Snakemake reads the rest."""

    jobs: Annotated[float, BeforeValidator(_number_of_jobs)] = 1
    retries: NonNegativeInt = 0
    default_resources: dict[str, Any] | list[Any] | None = Field(None, alias="default-resources")

    @model_validator(mode="before")
    @classmethod
    def _resources_are_below_their_key(cls, written: Any) -> Any:
        """Refuse a resource of jobs as an option, or by a name with hyphens, as Snakemake does.

        Also refuse an empty one, which Snakemake ignores, and one whose name is nearly that of a
        resource of the profile: Snakemake takes any name, and the job would lack the resource.
        """
        if not isinstance(written, dict):
            return written
        resources = written.get("default-resources")
        below = resources if isinstance(resources, dict) else {}
        options = [key for key in map(str, written) if SLURM_RESOURCE.match(key)]
        for key in [*options, *(key for key in map(str, below) if "-" in key)]:
            resource = key.replace("-", "_")
            raise ValueError(
                f"'{key}' must stand below 'default-resources:', indented, as '{resource}'"
            )
        for key in map(str, below):
            near = difflib.get_close_matches(key, OWN_RESOURCES, n=1, cutoff=0.7)
            if near and key not in OWN_RESOURCES:
                raise ValueError(
                    f"'{key}' below 'default-resources:' is no resource; did you mean '{near[0]}'?"
                )
        for key, value in below.items():
            if value in (None, ""):
                raise ValueError(
                    f"'{key}' below 'default-resources:' is empty; write its value or delete the "
                    "line"
                )
        return written

    @property
    def account(self) -> str:
        """Return the account of all jobs; "" if there is none, or if resources are a list."""
        asked = self.default_resources
        return str(asked.get("slurm_account") or "") if isinstance(asked, dict) else ""


def read_profile(root: Path) -> Profile:
    """Return the SLURM profile of a checkout; its defaults if there is none.

    Raises:
        VitrailError: the file is no valid YAML, or has a value that Snakemake refuses or ignores.
    """
    return load(Profile, root / CONFIG) if (root / CONFIG).is_file() else Profile()


def place_of(resource: str) -> str:
    """Return where the profile sets a resource that every job asks for."""
    return f"{resource} under default-resources in {CONFIG}"


def different_from(
    slurm: Mapping[str, Mapping[str, float]],
    partitions: Iterable[Partition],
    jobs: Sequence[Resources],
) -> Iterator[str]:
    """Yield a sentence for each partition that SLURM lacks, and for each limit that is too large.

    `slurm` has the limits of each of SLURM's partitions, by the keys of `TOLD`; if it is empty,
    nothing is compared. `jobs` is what each job asks for: a limit of a partition matters only to
    the jobs that suit it. Partitions of other clusters are not compared.
    """
    for partition in partitions if slurm else ():
        name = partition.name
        if partition.partition_cluster is not None:
            continue
        if name not in slurm:
            yield (
                f"a partition {name} in SLURM, which has only {', '.join(sorted(slurm))}; correct "
                f"its name in {PARTITIONS}"
            )
            continue
        jobs_here = [each for each in jobs if suitable([partition], each)]
        for field, (resource, unit) in TOLD.items():
            limit, written = slurm[name][field], getattr(partition.limits, field)
            asked = max((getattr(each, resource) for each in jobs_here), default=0)
            if limit < min(written, asked):
                here = "none" if written == math.inf else f"{written:.0f}"
                yield (
                    f"the right {field} of partition {name}: SLURM's limit is {limit:.0f} {unit}, "
                    f"and {PARTITIONS} has {here}; set {field}: {limit:.0f} there"
                )
