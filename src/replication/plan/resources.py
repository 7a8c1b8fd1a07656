"""What nodes ask a machine for: threads, GPUs, memory and time."""

from __future__ import annotations

from replication.config.settings import Resources, RunSettings
from replication.records.specs import Measurement, Run
from vitrail.errors import VitrailError

# What runs on the CPU at a scale of GPUs takes at most so much memory, and what runs on a GPU at a
# scale of CPUs at least so much. A training of no steps copies weights, in so many minutes.
SMALL_MEM_MB, COPYING_MINUTES = 16000, 60


def resources_of(of: Run | Measurement, settings: RunSettings, device: str) -> Resources:
    """What the training of a run, or a measurement, asks for by the settings of its recipe.

    `device` is the scale's. What runs on the CPU at a scale of GPUs (what a measure or --config
    device=cpu says, and a training of no steps, which only copies weights) has no GPU, nor the
    memory of what has one. What runs on a GPU at a scale of CPUs has one.
    """
    if isinstance(of, Run):
        asked, device = settings.resources_of("train"), device if trains(of) else "cpu"
    else:
        asked, device = settings.resources_of("evaluate" if of.run else "benchmark"), of.device
    update: dict[str, int] = {}
    if device == "cpu" and asked.gpus:
        mem_mb = min(SMALL_MEM_MB, asked.mem_mb)
        update = {"nodes": 1, "gpus": 0, "threads": 1, "mem_mb": mem_mb}
    elif device != "cpu" and not asked.gpus:
        update = {"gpus": 1, "mem_mb": max(SMALL_MEM_MB, asked.mem_mb)}
    if isinstance(of, Run) and not trains(of):
        update["runtime"] = min(COPYING_MINUTES, asked.runtime)
    return asked.model_copy(update=update)


def trains(run: Run) -> bool:
    """Whether a run takes any step: one of none only copies its weights, on the CPU."""
    return run.recipe.steps(run.dataset.train_images) > 0


def require_devices(run: Run, asked: Resources, where: str) -> None:
    """Raise a `VitrailError` where the GPUs that a run asks for cannot share its steps equally.

    `where` names what asks for them.
    """
    try:
        run.recipe.batch.share(asked.devices)
    except VitrailError as error:
        raise VitrailError(
            f"{where} has resources: {{train: {{nodes: {asked.nodes}, gpus: {asked.gpus}}}}}, but "
            f"{error}, counted over all nodes"
        ) from error


def more_nodes(run: Run, asked: Resources) -> list[int]:
    """The numbers of nodes above what a run asks for whose GPUs can share its steps equally."""
    parts, devices = run.recipe.batch.parts, asked.devices // asked.nodes
    return [
        nodes
        for nodes in range(asked.nodes + 1, parts // devices + 1)
        if parts % (nodes * devices) == 0
    ]
