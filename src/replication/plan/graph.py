"""What a plan is made of: runs, measurements, artifacts with cells, targets, linked together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from replication.config.datasets import DatasetInfo
from replication.config.paper import Labelled, Printed
from replication.config.recipe_types import AnyRecipe
from replication.config.schema import Delta
from replication.plan.code_digest import training_code
from replication.records.nodes import RenderingNode, SeedFolders, TrainedRun, target_of
from replication.records.record import read_record
from vitrail.errors import VitrailError


@dataclass(frozen=True)
class Run(SeedFolders):
    """A recipe at this scale with its seeds, and the folder that holds them.

    Recipes of a paper that come out equal share one; it is called after the first of them. `source`
    is the run whose weights training starts from.
    """

    paper: str
    name: str
    recipe: AnyRecipe
    info: DatasetInfo
    seeds: tuple[int, ...]
    seeds_per_training: int
    folder: Path
    source: Run | None

    @property
    def trainings(self) -> tuple[tuple[int, ...], ...]:
        """The seeds that each training does in turn."""
        step = self.seeds_per_training
        return tuple(self.seeds[i : i + step] for i in range(0, len(self.seeds), step))

    def record(self, seeds: tuple[int, ...]) -> Path:
        """The record of the training of these seeds, with the digests of their weights."""
        return self.folder / f"trained-{'-'.join(map(str, seeds))}.json"

    def records_of(self, seeds: Iterable[int]) -> tuple[Path, ...]:
        """The records of the trainings of these seeds."""
        return tuple(self.record(own) for own in self.trainings if not set(own).isdisjoint(seeds))

    @property
    def records(self) -> tuple[Path, ...]:
        """One record for each training."""
        return self.records_of(self.seeds)

    @property
    def lineage(self) -> tuple[Run, ...]:
        """The runs that must be trained for this one, in that order; it is the last."""
        return (*(self.source.lineage if self.source else ()), self)

    @property
    def data(self) -> list[dict[str, Any]]:
        """What decides its weights in the entries of its dataset and of those of its sources."""
        return [run.info.identity_fields for run in self.lineage]

    @property
    def code(self) -> str:
        """The digest of the code that would train it now."""
        return training_code(self.recipe, self.info).digest

    def trained_by(self, seeds: Iterable[int]) -> set[str]:
        """The digests of the code that has trained these seeds, joined by "+" if several did.

        A seed whose weights are gone, or whose record cannot be read, is not trained: the node
        that makes either again is planned without it.
        """
        there, found = {seed for seed in seeds if self.weights(seed).is_file()}, set()
        for path in self.records_of(there):
            with suppress(VitrailError):
                record = read_record(path)
                facts = record.outcome["facts"] if record else {}
                found |= {
                    str(facts[str(seed)].get("code", "unknown"))
                    for seed in there
                    if str(seed) in facts
                }
        return found

    def planned_code(self, seeds: tuple[int, ...]) -> str:
        """The digest of the code that the training of these seeds is planned with.

        It is that of their record, while their weights are there, else that of the code now.
        """
        with suppress(VitrailError):
            record = read_record(self.record(seeds))
            if record and all(self.weights(seed).is_file() for seed in seeds):
                return record.node.code
        return self.code


def trained_run(run: Run) -> TrainedRun:
    """Where the trained models of a run lie, as nodes are told it."""
    records = {seed: run.record(seeds) for seeds in run.trainings for seed in seeds}
    return TrainedRun(
        name=run.name, recipe_hash=run.recipe.hash, folder=run.folder, records=records
    )


def with_sources(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Some runs and those that they start from, each once."""
    return tuple({each.folder: each for run in runs for each in run.lineage}.values())


@dataclass(frozen=True)
class Measurement:
    """One JSON of numbers: a function with its arguments, on a run, on a recipe or on nothing.

    `described` is the run whose recipe is measured before it is trained, if it ever is;
    `as_printed` says that arguments and datasets are the paper's own.
    """

    paper: str
    name: str
    function: str
    args: Delta
    seeds: tuple[int, ...]
    device: str
    datasets: tuple[str, ...]
    run: Run | None
    described: Run | None
    path: Path
    as_printed: bool

    def __hash__(self) -> int:
        """Hash by path: two measurements of one path are the same."""
        return hash(self.path)

    @property
    def on(self) -> Run | None:
        """The run that is measured, trained or not."""
        return self.run or self.described


@dataclass(frozen=True)
class Cell:
    """One number of an artifact: where it stands, what measures it, what the paper printed.

    It is linked to the plan; as it is written in a node, it is a `ShownCell`.

    `exact` marks a deterministic fact; `digits` are the decimals that the paper prints;
    `comparable` says that nothing stands in for the paper's recipe, arguments and hardware;
    `of_hardware` marks times and memory, which another machine changes; `one_training` a number of
    a model that another recipe of its row has at this scale, too. `variant_of` has row and column
    of the cell whose printed number this one may explain.
    """

    row: str
    column: str
    metric: str
    unit: str
    measurement: Measurement | None
    key: str
    digits: int | None
    exact: bool
    comparable: bool
    of_hardware: bool
    printed: Printed | None
    one_training: bool = False
    variant_of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Artifact:
    """A table or figure of a paper.

    `stand_ins` are the datasets that are read in place of the paper's, with what it calls those.
    """

    paper: str
    name: str
    kind: Literal["table", "figure"]
    title: str
    caption: str
    source: str
    note: str
    row_header: str
    rows: tuple[str, ...]
    columns: tuple[Labelled, ...]
    cells: tuple[Cell, ...]
    measurements: tuple[Measurement, ...]
    draw: str | None
    digits: int | None
    collection: str | None = None
    stand_ins: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The name by which one asks for it."""
        return target_of(self.paper, self.name)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The files that it is rendered to."""
        return RenderingNode.SUFFIXES[self.kind]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that must be trained for its measurements, each once."""
        return with_sources(m.run for m in self.measurements if m.run is not None)


@dataclass(frozen=True)
class Target:
    """What one may ask Snakemake for by name."""

    name: str
    caption: str
    files: tuple[Path, ...]
    artifacts: tuple[Artifact, ...]
