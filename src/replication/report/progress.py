"""What exists on disk: runs, artifacts, and the datasets and published weights they need.

For what is made here, only existence is checked; ``snakemake -n`` tells whether a file is out of
date. Datasets are bundled with a dependency, downloaded by the graph, or placed by hand.
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
    """Return the step of the newest checkpoint of a run; None if there is none."""
    files = (run.folder / "checkpoints").glob("step-" + 8 * "[0-9]" + ".pt")
    return max((int(file.stem.removeprefix("step-")) for file in files), default=None)


def state_of(run: Run) -> State:
    """Return the state of a run by its files.

    It is done if its record exists (a restored one has no weights), and resumable if only weights
    or checkpoints do.
    """
    if run.record.is_file():
        return "done"
    begun = run.weights.is_file() or _last_checkpoint(run) is not None
    return "resumable" if begun else "missing"


def share_left(run: Run) -> float:
    """Return the share of a run's training that is still to do, from 0 to 1."""
    if run.record.is_file() or run.weights.is_file():
        return 0.0
    total = run.recipe.steps(run.dataset.train_images)
    return max(0.0, 1 - (_last_checkpoint(run) or 0) / total) if total else 1.0


def count_states(states: Iterable[State]) -> dict[State, int]:
    """Return how often each state occurs, in the order of `STATES`."""
    counted = Counter(states)
    return {state: counted[state] for state in STATES}


def is_rendered(artifact: Artifact, catalog: Catalog) -> bool:
    """Tell whether all files of an artifact, and the record of its rendering, exist."""
    made = (catalog.rendering(artifact), *catalog.files(artifact))
    return all(file.is_file() for file in made)


@dataclass(frozen=True)
class DatasetNeed:
    """A dataset that targets need; `users` are these targets.

    `fault` is why the dataset cannot be used; None if it is complete.
    """

    info: DatasetInfo
    users: tuple[str, ...]
    fault: str | None

    @property
    def state(self) -> Literal["present", "to download", "missing"]:
        """Return whether the dataset is present, will be downloaded, or must be placed by hand."""
        if self.fault is None:
            return "present"
        return "missing" if self.info.source == "manual" else "to download"

    @property
    def download_bytes(self) -> int:
        """Return the bytes that are still to be downloaded."""
        return sum(file.size for file in self.info.files) if self.state == "to download" else 0


@dataclass(frozen=True)
class WeightsNeed:
    """Published weights from which trainings start, with the file for them on this machine.

    `users` are the targets that need them.
    """

    model: str
    path: Path
    users: tuple[str, ...]
    entry: PublishedWeights | None  # their entry in the registry; None if there is none

    @property
    def state(self) -> str:
        """Return whether they are present or to be downloaded, and if their digest is unknown."""
        if self.entry is None:
            return f"missing in {REGISTRY}"
        place = "present" if self.path.is_file() else "to download"
        return place if self.entry.pinned else f"{place}, not pinned"


def datasets_needed(
    artifacts: Iterable[Artifact], catalog: Catalog, counts: bool = False
) -> list[DatasetNeed]:
    """Return the datasets that the runs and measurements of artifacts read.

    With `counts`, a dataset that is present must also have all its images.
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
    """Return the published weights from which the runs of artifacts start."""
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
    """Return each needed name, sorted, with the targets of the artifacts that need it."""
    users: dict[str, dict[str, None]] = {}
    for name, artifact in needs:
        if name:
            users.setdefault(name, {})[artifact.target] = None
    return [(name, tuple(targets)) for name, targets in sorted(users.items())]
