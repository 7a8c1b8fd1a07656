"""Resources that nodes ask for: threads, GPUs, memory and time."""

from __future__ import annotations

from replication.config.settings import Resources, RunSettings, Step
from replication.records.specs import Measurement, Run
from vitrail.errors import VitrailError

# SMALL_MEM_MB: upper limit of a node on the CPU at a scale of GPUs, lower limit of a node on a GPU
# at a scale of CPUs. COPYING_MINUTES: upper limit of a training of no steps, which copies weights.
SMALL_MEM_MB, COPYING_MINUTES = 16000, 60


def resources_of(of: Run | Measurement, settings: RunSettings, device: str) -> Resources:
    """Return the resources that a training or a measurement asks for by its recipe's settings.

    `device` is the scale's. Some nodes run on the CPU at a scale of GPUs: measures with `device:
    cpu`, all nodes under --config device=cpu, and trainings of no steps, which only copy weights.
    They ask for no GPU and for at most `SMALL_MEM_MB` of memory. A node that runs on a GPU at a
    scale of CPUs asks for one GPU.
    """
    asked = settings.resources_of(step_of(of))
    if isinstance(of, Measurement):
        device = of.device
    elif not trains(of):
        device = "cpu"
    update: dict[str, int] = {}
    if device == "cpu" and asked.gpus:
        mem_mb = min(SMALL_MEM_MB, asked.mem_mb)
        update = {"nodes": 1, "gpus": 0, "threads": 1, "mem_mb": mem_mb}
    elif device != "cpu" and not asked.gpus:
        update = {"gpus": 1, "mem_mb": max(SMALL_MEM_MB, asked.mem_mb)}
    if isinstance(of, Run) and not trains(of):
        update["runtime"] = min(COPYING_MINUTES, asked.runtime)
    return asked.model_copy(update=update)


def step_of(of: Run | Measurement) -> Step:
    """Return the step whose resources a training or a measurement asks for."""
    if isinstance(of, Run):
        return "train"
    return "evaluate" if of.run else "benchmark"


def trains(run: Run) -> bool:
    """Tell whether a run takes any step; one of no steps only copies its weights, on the CPU."""
    return run.recipe.steps(run.dataset.train_images) > 0


def require_devices(run: Run, asked: Resources, where: str) -> None:
    """Raise a `VitrailError` if the GPUs that a run asks for cannot share its steps equally.

    `where` is the place that asks for them, for the error.
    """
    try:
        run.recipe.batch.share(asked.devices)
    except VitrailError as error:
        raise VitrailError(
            f"{where} has resources: {{train: {{nodes: {asked.nodes}, gpus: {asked.gpus}}}}}, but "
            f"{error}, counted over all nodes"
        ) from error


def more_nodes(run: Run, asked: Resources) -> list[int]:
    """Return the numbers of machines, above that asked for, that can share a step equally."""
    parts, devices = run.recipe.batch.parts, asked.devices // asked.nodes
    return [
        nodes
        for nodes in range(asked.nodes + 1, parts // devices + 1)
        if parts % (nodes * devices) == 0
    ]
