"""What is on disk of a run, a measurement, an artifact: done, resumable or missing.

Only existence is looked at; whether a file is out of date, ``snakemake -n`` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from vitrine.plan.catalog import Artifact, Catalog, Run

State = Literal["done", "resumable", "missing"]
STATES: tuple[State, ...] = get_args(State)


def _last_checkpoint(run: Run, seed: int) -> int | None:
    """The step of the newest checkpoint of a seed, None where there is none."""
    files = (run.seed_folder(seed) / "checkpoints").glob(f"step-{8 * '[0-9]'}.pt")
    return max((int(file.stem.removeprefix("step-")) for file in files), default=None)


def state_of(run: Run, seed: int) -> State:
    """Whether a seed is trained, can go on from a checkpoint, or has nothing yet."""
    if run.weights(seed).is_file():
        return "done"
    return "missing" if _last_checkpoint(run, seed) is None else "resumable"


def share_left(run: Run, seed: int) -> float:
    """The share of a seed's training that is still to do, from 0 to 1."""
    if run.weights(seed).is_file():
        return 0.0
    total = run.recipe.steps(run.info.train_images)
    return max(0.0, 1 - (_last_checkpoint(run, seed) or 0) / total) if total else 1.0


def job_state(run: Run, seeds: tuple[int, ...]) -> State:
    """The state of a training job: done when its receipt and the weights of all its seeds exist."""
    states = {state_of(run, seed) for seed in seeds}
    if run.receipt(seeds).is_file() and states == {"done"}:
        return "done"
    return "missing" if states == {"missing"} else "resumable"


def count_states(states: Iterable[State]) -> dict[State, int]:
    """Count states, in the order of `STATES`."""
    counted = Counter(states)
    return {state: counted[state] for state in STATES}


def is_rendered(artifact: Artifact, catalog: Catalog) -> bool:
    """Whether every file of an artifact is there."""
    return all(file.is_file() for file in catalog.files(artifact))


def runs_behind(artifacts: Iterable[Artifact]) -> list[Run]:
    """The runs behind some artifacts, each once."""
    return list({run.folder: run for artifact in artifacts for run in artifact.runs}.values())
