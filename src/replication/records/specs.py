"""What a plan is made of: runs, measurements, and artifacts with their cells.

Each is one frozen object, and the node that makes it holds that object
(`replication.records.nodes`). An artifact names the records of its measurements by their paths;
`replication.plan.catalog` looks up the measurement of a record, and the runs behind it.
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
    """Return the name by which one asks for an artifact; `parse_target` takes it apart."""
    return f"{paper}_{artifact}"


def parse_target(target: str, papers: Iterable[str]) -> tuple[str, str] | None:
    """Return the paper among `papers` and the artifact that a target names, None if there is none.

    The longest paper counts, as one may be called as another begins: octic, octic_more.
    """
    named = [paper for paper in papers if target.startswith(target_of(paper, ""))]
    if not named:
        return None
    paper = max(named, key=len)
    return paper, target.removeprefix(target_of(paper, ""))


class Run(Strict):
    """A recipe at a scale under one seed.

    Recipes of a paper that come out equal share their runs; `name` is the first of them. `home` is
    the folder of all seeds of the recipe. `source` is the run whose weights training starts from.
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
        """The folder of its weights, checkpoints and log."""
        return self.home / f"seed{self.seed}"

    @property
    def weights(self) -> Path:
        """The file that it is trained to."""
        return self.folder / WEIGHTS

    @property
    def record(self) -> Path:
        """The record of its training, with the digest of its weights."""
        return record_of(self.folder)

    @property
    def lineage(self) -> tuple[Run, ...]:
        """The runs that must be trained for this one, in that order; it is the last."""
        return (*(self.source.lineage if self.source else ()), self)

    @property
    def data(self) -> list[dict[str, Any]]:
        """What decides its weights in the entries of its dataset and of those of its sources."""
        return [run.dataset.identity_fields for run in self.lineage]


def record_of(folder: Path) -> Path:
    """Return the record of the training of the run in a folder."""
    return folder.with_name(f"trained-{folder.name}.json")


def with_sources(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Some runs and those that they start from, each once."""
    return tuple({each.folder: each for run in runs for each in run.lineage}.values())


def by_recipe(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs by their recipe: the seeds of each."""
    groups: dict[Path, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.home, []).append(run)
    return list(groups.values())


class Measurement(Strict):
    """A function with its arguments under one seed, on a trained model, on a recipe or on nothing.

    `run` is the run whose trained model is measured, `described` one whose recipe is measured
    before it is trained, if it ever is. `datasets` are those that are read besides the run's own.
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
        """The run that is measured, trained or not."""
        return self.run or self.described

    @property
    def reads(self) -> tuple[DatasetInfo, ...]:
        """The datasets whose images may be read: that of a trained model, and those named."""
        return (*((self.run.dataset,) if self.run else ()), *self.datasets)

    @property
    def measured_on(self) -> tuple[str, ...]:
        """The names of the datasets that the numbers are of."""
        return tuple(info.name for info in self.datasets or self.reads[:1])


class Cell(Strict):
    """One number of an artifact: where it stands, what measures it, what the paper printed.

    `records` are those of its measurement under each seed, whose value `key` it shows; none where
    nothing is measured. `exact` marks a deterministic fact; `digits` are the decimals that the
    paper prints; `comparable` says that nothing stands in for the paper's recipe, arguments and
    hardware; `of_hardware` marks times and memory, which another machine changes; `one_training` a
    number of a model that another recipe of its row has at this scale, too. `variant_of` has row
    and column of the cell whose printed number this one may explain.
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

    `measurements` are the records of its measurements, each under its seeds; `config` are the
    settings that it was planned with, as ``--config`` takes them.
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
        """The name by which one asks for it."""
        return target_of(self.paper, self.name)

    @property
    def command(self) -> str:
        """The command that makes it with the settings that it was planned with."""
        return snakemake_command(self.target, config=self.config)

    @property
    def records(self) -> tuple[Path, ...]:
        """The records that it is rendered from, each once."""
        return tuple(dict.fromkeys(path for seeds in self.measurements for path in seeds))

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The kinds of files that it is rendered to."""
        return self.SUFFIXES[self.kind]

    def files_in(self, folder: Path) -> tuple[Path, ...]:
        """The files that it is rendered to in a folder."""
        return tuple(folder / f"{self.name}{suffix}" for suffix in self.suffixes)


class ReportedPaper(Strict):
    """What the report says of a paper besides its artifacts.

    `deviations` is Markdown; `stand_ins` are the datasets of the scale that replace the paper's,
    each with what the paper calls those.
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
    """What the report of a scale says besides its artifacts.

    `trainings` are the records that tell what the trainings cost; `findings`, Markdown, are what
    was found in the papers.
    """

    scale: str
    description: str
    findings: str
    papers: tuple[ReportedPaper, ...]
    trainings: tuple[Path, ...]

    @property
    def digest(self) -> str:
        """The digest of all that it says: 8 hex digits."""
        return short_hash(self.model_dump(mode="json"))
