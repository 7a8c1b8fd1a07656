"""The parts of a plan: runs, measurements, and artifacts with their cells.

Each part is one frozen object, and the node that computes it contains that object
(`replication.records.nodes`). An artifact refers to its measurements by the paths of their records;
`replication.plan.paper` looks up the measurement of a record, and the runs that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from replication.config.claims import Claim
from replication.config.datasets import DatasetInfo
from replication.config.paper import Printed, ShownColumn
from replication.config.recipe import short_hash
from replication.config.recipe_types import AnyRecipe
from replication.config.schema import Strict
from replication.config.settings import snakemake_command
from replication.config.tuning import TuningResult

WEIGHTS = "weights.safetensors"  # in the folder of each run


def target_of(paper: str, artifact: str) -> str:
    """Return the name of an artifact's target."""
    return f"{paper}_{artifact}"


class Run(Strict):
    """A recipe at a scale under one seed.

    Recipes of a paper that are equal at the scale share their runs; `name` is the first of them.
    `home` is the folder of the recipe, with the runs of all seeds. `source` is the run whose
    weights the training starts from.
    """

    paper: str
    name: str
    recipe: AnyRecipe = Field(discriminator="task")
    dataset: DatasetInfo
    seed: NonNegativeInt
    home: Path
    source: Run | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of its weights, checkpoints and log."""
        return self.home / f"seed{self.seed}"

    @property
    def weights(self) -> Path:
        """Return the file of the trained weights."""
        return self.folder / WEIGHTS

    @property
    def record(self) -> Path:
        """Return the record of its training, which has the digest of its weights."""
        return record_of(self.folder)

    @property
    def lineage(self) -> tuple[Run, ...]:
        """Return the runs to train for this one, in order of training; this one is the last."""
        return (*(self.source.lineage if self.source else ()), self)

    @property
    def data(self) -> list[dict[str, Any]]:
        """Return the registry fields that decide its weights, of its dataset and its sources'."""
        return [run.dataset.identity_fields for run in self.lineage]


def record_of(folder: Path) -> Path:
    """Return the path of the training's record, given the folder of a run."""
    return folder.with_name(f"trained-{folder.name}.json")


def with_sources(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs and those that they start from, without duplicates."""
    return tuple({each.folder: each for run in runs for each in run.lineage}.values())


def by_recipe(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs by recipe: a list of the seeds' runs for each recipe."""
    groups: dict[Path, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.home, []).append(run)
    return list(groups.values())


class Measurement(Strict):
    """A function with its arguments under one seed: on a trained model, on a recipe, or on neither.

    `run` is the run whose trained model is measured. `described` is a run whose recipe is measured,
    whether or not it is ever trained. `datasets` are those that are read besides the run's own.
    """

    paper: str
    name: str
    function: str
    args: dict[str, Any]
    seed: NonNegativeInt
    device: str
    datasets: tuple[DatasetInfo, ...]
    path: Path
    run: Run | None = None
    described: Run | None = None

    def __hash__(self) -> int:
        """Hash by path: two measurements of one path are the same."""
        return hash(self.path)

    @property
    def on(self) -> Run | None:
        """Return the run that is measured, trained or not; None if the measure needs none."""
        return self.run or self.described

    @property
    def reads(self) -> tuple[DatasetInfo, ...]:
        """Return the datasets whose images may be read: a trained model's own, and `datasets`."""
        return (*((self.run.dataset,) if self.run else ()), *self.datasets)

    @property
    def measured_on(self) -> tuple[str, ...]:
        """Return the names of the datasets to which the numbers refer."""
        return tuple(info.name for info in self.datasets or self.reads[:1])


class Cell(Strict):
    """One number of an artifact: its row and column, its measurement, and the printed value.

    `records` are those of its measurement, one for each seed, and the cell shows their value `key`;
    it is empty if nothing is measured. `exact` marks a number that no seed or hardware changes.
    `digits` are the decimals that the paper prints. `comparable` says that nothing stands in for
    the paper's recipe, arguments and hardware. `of_hardware` marks times and memory, which another
    machine changes. `one_training` marks a number of a model that is shown in this row under
    another recipe, too, since both recipes are equal at this scale. `variant_of` is the row and
    column of the cell whose printed number this cell may explain.
    """

    row: str
    column: str
    metric: str
    unit: str
    records: tuple[Path, ...]
    key: str
    digits: int | None
    exact: bool
    comparable: bool
    of_hardware: bool
    printed: Printed | None
    one_training: bool = False
    variant_of: tuple[str, str] | None = None


class Artifact(Strict):
    """A table or figure of a paper at a scale: labels, cells, and the records that it shows.

    `measurements` are the records of its measurements, one tuple of seeds for each. `config` are
    the settings that it was planned with, as ``--config`` takes them.
    """

    SUFFIXES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "table": (".csv", ".md"),
        "figure": (".csv", ".svg", ".png"),
    }

    scale: str
    paper: str
    name: str
    kind: Literal["table", "figure"]
    title: str
    caption: str
    source: str
    note: str
    row_header: str
    rows: tuple[str, ...]
    columns: tuple[ShownColumn, ...]
    cells: tuple[Cell, ...]
    measurements: tuple[tuple[Path, ...], ...]
    draw: str | None
    digits: int | None
    collection: str | None = None
    config: tuple[str, ...] = ()
    stand_ins: dict[str, str] = Field(
        {}, description="dataset that was read -> what the paper calls those that it replaces"
    )

    @property
    def target(self) -> str:
        """Return the name of its target."""
        return target_of(self.paper, self.name)

    @property
    def command(self) -> str:
        """Return the command that makes it with the settings that it was planned with."""
        return snakemake_command(self.target, config=self.config)

    @property
    def records(self) -> tuple[Path, ...]:
        """Return the records that it is rendered from, without duplicates."""
        return tuple(dict.fromkeys(path for seeds in self.measurements for path in seeds))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Return the suffixes of the files that it is rendered to."""
        return self.SUFFIXES[self.kind]

    def files_in(self, folder: Path) -> tuple[Path, ...]:
        """Return the files that it is rendered to in a folder."""
        return tuple(folder / f"{self.name}{suffix}" for suffix in self.suffixes)


class ReportedPaper(Strict):
    """What the report shows of a paper besides its artifacts.

    `deviations` is Markdown. `stand_ins` maps each dataset of the scale that replaces datasets of
    the paper to the paper's names of these.
    """

    name: str
    title: str
    authors: str
    venue: str
    url: str
    deviations: str
    stand_ins: dict[str, str] = {}
    claims: tuple[Claim, ...]
    tuning_results: dict[str, TuningResult] | None = Field(
        None, description="what searches found, by recipes' hashes; null: nothing is searched"
    )
    registered: dict[str, str] | None = Field(
        None, description="when the claims that are as registered were so; null: none was"
    )


class Report(Strict):
    """What the report of a scale shows besides its artifacts.

    `trainings` are the records of trainings, from which their cost is computed. `findings` is
    Markdown: what was found in the papers.
    """

    scale: str
    description: str
    findings: str
    papers: tuple[ReportedPaper, ...]
    trainings: tuple[Path, ...]

    @property
    def digest(self) -> str:
        """Return the digest of all its fields: 8 hex digits."""
        return short_hash(self.model_dump(mode="json"))
