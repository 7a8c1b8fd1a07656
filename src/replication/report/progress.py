"""What is on disk of runs and artifacts, and of the datasets and published weights that they need.

Of what is made, only existence is checked; whether a file is out of date, ``snakemake -n`` says.
Datasets are bundled with a dependency, downloaded by the graph, or placed by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from replication.config.datasets import DatasetInfo, find
from replication.config.weights import REGISTRY, PublishedWeights, load_weights_registry
from replication.datasets.verify import verify
from replication.plan.catalog import Catalog
from replication.records.specs import Artifact, Run
from vitrail.errors import VitrailError

State = Literal["done", "resumable", "missing"]
STATES: tuple[State, ...] = get_args(State)


def _last_checkpoint(run: Run) -> int | None:
    """The step of the newest checkpoint of a run, None where there is none."""
    files = (run.folder / "checkpoints").glob("step-" + 8 * "[0-9]" + ".pt")
    return max((int(file.stem.removeprefix("step-")) for file in files), default=None)


def state_of(run: Run) -> State:
    """Whether a run is trained, can go on from a checkpoint, or has nothing yet."""
    if run.weights.is_file():
        return "done"
    return "missing" if _last_checkpoint(run) is None else "resumable"


def share_left(run: Run) -> float:
    """The share of a run's training that is still to do, from 0 to 1."""
    if run.weights.is_file():
        return 0.0
    total = run.recipe.steps(run.dataset.train_images)
    return max(0.0, 1 - (_last_checkpoint(run) or 0) / total) if total else 1.0


def training_state(run: Run) -> State:
    """The state of a run's training, which is done when its record is there, too."""
    state = state_of(run)
    return "resumable" if state == "done" and not run.record.is_file() else state


def count_states(states: Iterable[State]) -> dict[State, int]:
    """Count states, in the order of `STATES`."""
    counted = Counter(states)
    return {state: counted[state] for state in STATES}


def is_rendered(artifact: Artifact, catalog: Catalog) -> bool:
    """Whether every file of an artifact is there, and the record of its rendering."""
    made = (catalog.rendering(artifact), *catalog.files(artifact))
    return all(file.is_file() for file in made)


@dataclass(frozen=True)
class DatasetNeed:
    """A dataset, the targets that need it, and what is wrong with it."""

    info: DatasetInfo
    users: tuple[str, ...]
    fault: str | None

    @property
    def state(self) -> Literal["present", "to download", "missing"]:
        """Whether the graph finds it, fetches it, or waits for a person."""
        if self.fault is None:
            return "present"
        return "missing" if self.info.source == "manual" else "to download"

    @property
    def download_bytes(self) -> int:
        """What is still to be downloaded."""
        return sum(file.size for file in self.info.files) if self.state == "to download" else 0


@dataclass(frozen=True)
class WeightsNeed:
    """Published weights that trainings start from, and the file that holds them here."""

    model: str
    path: Path
    users: tuple[str, ...]
    entry: PublishedWeights | None  # the registry's, None where it has none

    @property
    def state(self) -> str:
        """Whether they are here or the graph fetches them, and how far they can be checked."""
        if self.entry is None:
            return f"missing in {REGISTRY}"
        place = "present" if self.path.is_file() else "to download"
        return place if self.entry.pinned else f"{place}, not pinned"


def datasets_needed(
    artifacts: Iterable[Artifact], catalog: Catalog, counts: bool = False
) -> list[DatasetNeed]:
    """The datasets that runs and measurements of some artifacts read.

    With `counts`, a dataset that is there must also have all its images.
    """
    names: list[tuple[str, Artifact]] = []
    for artifact in artifacts:
        infos = [run.dataset for run in catalog.runs_of(artifact)]
        infos += [info for own in catalog.measurements_of(artifact) for info in own.datasets]
        names += [(info.name, artifact) for info in infos]
    needs = []
    for name, users in _users(names):
        info, fault = find(name, catalog.datasets), None
        try:
            verify(info, catalog.data_root, counts)
        except VitrailError as error:
            fault = str(error)
        needs.append(DatasetNeed(info, users, fault))
    return needs


def weights_needed(artifacts: Iterable[Artifact], catalog: Catalog) -> list[WeightsNeed]:
    """The published weights that runs of some artifacts start from."""
    users = _users(
        (run.recipe.model.published, artifact)
        for artifact in artifacts
        for run in catalog.runs_of(artifact)
    )
    registry = load_weights_registry(catalog.root / REGISTRY) if users else {}
    paths = [catalog.weights_of(name) for name, _ in users]
    return [
        WeightsNeed(name, path, targets, registry.get(path.stem))
        for (name, targets), path in zip(users, paths, strict=True)
    ]


def _users(needs: Iterable[tuple[str | None, Artifact]]) -> list[tuple[str, tuple[str, ...]]]:
    """Each name that artifacts need, in order, with their targets."""
    users: dict[str, dict[str, None]] = {}
    for name, artifact in needs:
        if name:
            users.setdefault(name, {})[artifact.target] = None
    return [(name, tuple(targets)) for name, targets in sorted(users.items())]
