"""What artifacts need from outside: datasets and published weights, there or to be got.

The registry (``configs/datasets.yaml``) says how each dataset is got: bundled with a dependency,
downloaded by the graph, or placed by hand where its licence does not allow a download.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitrine.data import verify
from vitrine.errors import VitrineError
from vitrine.plan.catalog import Artifact, Catalog
from vitrine.plan.datasets import DatasetInfo, find
from vitrine.plan.weights import REGISTRY, PublishedWeights, load_weights_registry


@dataclass(frozen=True)
class DatasetNeed:
    """A dataset, which artifacts need it, and whether it is there."""

    info: DatasetInfo
    artifacts: tuple[Artifact, ...]
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
        if self.state != "to download":
            return 0
        return sum(file.size for file in self.info.files)


@dataclass(frozen=True)
class WeightsNeed:
    """Published weights that trainings start from, and the file that holds them here."""

    model: str
    path: Path
    artifacts: tuple[Artifact, ...]
    entry: PublishedWeights | None
    """The registry's, None where it has none."""

    @property
    def state(self) -> str:
        """Whether they are here or the graph fetches them, and how far they can be checked."""
        if self.entry is None:
            return f"missing in {REGISTRY}"
        place = "present" if self.present else "to download"
        return place if self.entry.pinned else f"{place}, not pinned"

    @property
    def present(self) -> bool:
        """Whether they are here."""
        return self.path.is_file()


def datasets_needed(
    artifacts: Iterable[Artifact], catalog: Catalog, counts: bool = False
) -> list[DatasetNeed]:
    """The datasets that runs and measurements of some artifacts read.

    With `counts`, a dataset that is there must also have all its images.
    """
    users: dict[str, dict[str, Artifact]] = {}
    for artifact in artifacts:
        trained_on = [run.recipe.data.dataset for run in artifact.runs]
        measured_on = [name for one in artifact.measurements for name in one.datasets]
        for name in (*trained_on, *measured_on):
            users.setdefault(name, {})[f"{artifact.paper}_{artifact.name}"] = artifact
    return [
        DatasetNeed(info, tuple(users[name].values()), _fault(info, catalog.data_root, counts))
        for name, info in ((name, find(name, catalog.datasets)) for name in sorted(users))
    ]


def weights_needed(artifacts: Iterable[Artifact], catalog: Catalog) -> list[WeightsNeed]:
    """The published weights that runs of some artifacts start from."""
    users: dict[str, dict[str, Artifact]] = {}
    for artifact in artifacts:
        for run in artifact.runs:
            if published := run.recipe.model.published:
                name = f"{artifact.paper}_{artifact.name}"
                users.setdefault(published, {})[name] = artifact
    registry = load_weights_registry(catalog.root / REGISTRY) if users else {}
    return [
        WeightsNeed(name, path, tuple(users[name].values()), registry.get(path.stem))
        for name, path in ((name, catalog.weights_of(name)) for name in sorted(users))
    ]


def _fault(info: DatasetInfo, data_root: Path, counts: bool) -> str | None:
    """What is wrong with a dataset, None if nothing is."""
    try:
        verify(info, data_root, counts)
    except VitrineError as error:
        return str(error)
    return None
