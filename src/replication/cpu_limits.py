"""What this process may use of its machine, or of its share of a cluster's node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

MB = 2**20


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_memory(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> int:
    """How much memory, in MB of 2**20 bytes, this process and those that it starts may use.

    It is the least of what the machine has, what SLURM has given the job, and the limits of the
    control group of this process and of those around it (a job's, a container's).

    Args:
        root: where /proc and /sys are.
        environment: the variables by which SLURM tells what the job has.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB
    return min([physical, *_given_by_slurm(environment), *_limits_of_groups(root)])


def _given_by_slurm(environment: Mapping[str, str]) -> Iterator[int]:
    """The memory of a job on this node, in MB; SLURM's 0 is all that the node has."""
    amount = {name: int(text) for name, text in environment.items() if text.isdigit()}
    for memory, count in (
        ("SLURM_MEM_PER_NODE", 1),
        ("SLURM_MEM_PER_CPU", amount.get("SLURM_CPUS_ON_NODE", 0)),
        ("SLURM_MEM_PER_GPU", amount.get("SLURM_GPUS_ON_NODE", 0)),
    ):
        if given := amount.get(memory, 0) * count:
            yield given


def _limits_of_groups(root: Path) -> Iterator[int]:
    """The limits, in MB, of the control groups (cgroups(7), of version 1 or 2) of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, file = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                try:
                    limit = (folder / file).read_text().strip()
                except OSError:  # the topmost has none
                    continue
                if limit.isdigit():  # not "max"
                    yield int(limit) // MB
