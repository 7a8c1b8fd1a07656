"""A node is one piece of work: what is to be done, to what, and with what; one JSON file each.

The rules take inputs and resources from it, and the work reads nothing else: it is repeated from
its node alone, whatever the YAML has come to say since. When it is done, the same node with its
outcome is the record of the result (`replication.records.record`).

`identity` is the digest of what decides the result (not where the data lie, or how many workers
read them), and where it changes the node is due again. It is computed from the node's own fields
wherever a node is read, so a file that was edited by hand is refused.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from replication.config.claims import Claim
from replication.config.datasets import DatasetInfo
from replication.config.paper import Printed, ShownColumn
from replication.config.recipe import short_hash
from replication.config.recipe_types import AnyRecipe
from replication.config.schema import Strict, parse
from replication.config.settings import Resources, snakemake_command
from replication.config.tuning import TuningResult
from vitrail.errors import VitrailError
from vitrail.files import atomic_path


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


WEIGHTS = "weights.safetensors"  # in the folder of each seed


def seed_folder(folder: Path, seed: int | str) -> Path:
    """Return where one seed of the run in a folder keeps its weights and log."""
    return folder / f"seed{seed}"


class SeedFolders:
    """The folder of a run, with one in it for each seed."""

    if TYPE_CHECKING:  # a field of some, computed by others

        @property
        def folder(self) -> Path:
            """The folder of the run."""

    def seed_folder(self, seed: int) -> Path:
        """Where the run of one seed keeps its weights and log."""
        return seed_folder(self.folder, seed)

    def weights(self, seed: int) -> Path:
        """The file that a seed is trained to."""
        return self.seed_folder(seed) / WEIGHTS


class TrainedRun(SeedFolders, Strict):
    """A trained run, for the nodes that use its weights: where they lie, and the records of them.

    `records` are those of the training nodes, by seed.
    """

    name: str
    recipe_hash: str
    folder: Path
    records: Mapping[int, Path]


class Node(Strict, ABC):
    """What the kinds of nodes have in common.

    `inputs` are the files that must be there before it starts; `output` is the record that it
    writes. `code` is the digest of the code that decides the result, and `commit` the commit that
    the plan was made at, with "-dirty" where a file behind `code` differs from it. `config` are the
    settings that it was planned with, as ``--config`` takes them.
    """

    kind: str
    scale: str
    paper: str
    name: str
    output: Path
    inputs: tuple[Path, ...]
    code: str
    commit: str | None
    config: tuple[str, ...] = ()
    resources: Resources = Resources()

    @property
    @abstractmethod
    def decided(self) -> dict[str, Any]:
        """The fields that decide the result."""

    @property
    def plain(self) -> dict[str, Any]:
        """`decided` as it is read back from JSON, so that a planned node equals its record's."""
        content: dict[str, Any] = json.loads(json.dumps(self.decided, default=str))
        return content

    @property
    def identity(self) -> str:
        """The digest of what decides the result: 8 hex digits."""
        return short_hash(self.plain)

    @property
    def path(self) -> Path:
        """Where the plan writes the node."""
        return node_path(self.output, self.scale)

    def content(self) -> dict[str, Any]:
        """The node as plain data, with its identity."""
        return {**self.model_dump(mode="json"), "format": FORMAT, "identity": self.identity}

    @property
    def needs(self) -> dict[str, Any]:
        """What the rules take from the node, as `read_needs` reads it from the node's file."""
        return _needs_in(self.content(), self.path)

    def write(self) -> Path:
        """Write the node's file, unless it says the same; return its path.

        Raises:
            VitrailError: it cannot be written.
        """
        text = json.dumps(self.content(), indent=1) + "\n"
        if not self.path.is_file() or self.path.read_bytes() != text.encode():
            with atomic_path(self.path, durable=False) as temporary:  # it can be planned again
                temporary.write_text(text, encoding="utf-8")
        return self.path


class TrainingNode(SeedFolders, Node):
    """Some seeds of one recipe, trained in turn.

    `published` is the file of the published weights that training starts from, `start` the run from
    whose weights of the same seed it does. With `retrain`, what other code has trained is trained
    anew. `data` has what counts of the entries of the datasets of the runs that it starts from. A
    validation, each `validate_every` epochs, changes no bit of its weights.
    """

    kind: Literal["training"] = "training"
    recipe: AnyRecipe = Field(discriminator="task")
    dataset: DatasetInfo
    data: tuple[dict[str, Any], ...]
    seeds: tuple[NonNegativeInt, ...] = Field(min_length=1)
    device: str
    data_root: Path
    workers: NonNegativeInt
    checkpoint_seconds: PositiveFloat
    published: Path | None = None
    start: TrainedRun | None = None
    retrain: bool = False
    validate_every: PositiveInt | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.output.parent

    def initial(self, seed: int) -> Path | None:
        """The file of the weights that a seed starts from, published or of another run."""
        return self.published or (self.start.weights(seed) if self.start else None)

    @property
    def decided(self) -> dict[str, Any]:
        """Recipe, steps, datasets, seeds and code."""
        return {
            "recipe": self.recipe.canonical_json(),
            "data": (*self.data, self.dataset.identity_fields),
            "steps": self.recipe.steps(self.dataset.train_images),  # by a formula of its class
            "seeds": self.seeds,
            "code": self.code,
        }


class MeasurementNode(Node):
    """A function with its arguments, on trained models, on a recipe or on nothing.

    `run` says where the trained models lie; without it a `recipe` is measured untrained. `datasets`
    are those that the measure reads besides the `dataset` of the recipe; `data` is that of the run.
    """

    kind: Literal["measurement"] = "measurement"
    function: str
    args: dict[str, Any] = {}
    seeds: tuple[NonNegativeInt, ...] = Field(min_length=1)
    device: str
    data_root: Path
    workers: NonNegativeInt
    datasets: tuple[DatasetInfo, ...] = ()
    recipe: AnyRecipe | None = Field(None, discriminator="task")
    recipe_name: str | None = None
    dataset: DatasetInfo | None = None
    data: tuple[dict[str, Any], ...] = ()
    run: TrainedRun | None = None

    @property
    def reads(self) -> tuple[DatasetInfo, ...]:
        """The datasets whose images may be read: those named, and that of a trained model."""
        return (*((self.dataset,) if self.run and self.dataset else ()), *self.datasets)

    @property
    def measured_on(self) -> tuple[str, ...]:
        """The names of the datasets that the numbers are of."""
        return tuple(info.name for info in self.datasets or self.reads[:1])

    @property
    def decided(self) -> dict[str, Any]:
        """The measure by name, arguments, seeds, device, datasets, recipe and code.

        The code covers the function, whatever it is called.
        """
        own = self.dataset
        return {
            "measure": f"{self.paper}/{self.name}",
            **{name: getattr(self, name) for name in ("args", "seeds", "device")},
            "datasets": [info.identity_fields for info in self.datasets],
            "data": (*self.data, own.identity_fields) if own else self.data,
            "recipe": self.recipe.canonical_json() if self.recipe else None,
            "trained": self.run.recipe_hash if self.run else None,
            "code": self.code,
        }


class ShownCell(Strict):
    """A cell as it is rendered; `measurement` is the record whose value `key` it shows.

    The other fields are those of `replication.plan.graph.Cell`. That one has the measurement
    itself, with its run, which is needed to plan and to price it; this one is written in a node and
    read where there is no plan, and so has a path only.
    """

    row: str
    column: str
    metric: str
    unit: str
    measurement: Path | None
    key: str
    digits: int | None
    exact: bool
    comparable: bool
    of_hardware: bool
    printed: Printed | None
    one_training: bool = False
    variant_of: tuple[str, str] | None = None


class RenderingNode(Node):
    """A table or a figure: cells with the records that they show, labels and printed values."""

    SUFFIXES: ClassVar = {"table": (".csv", ".md"), "figure": (".csv", ".svg", ".png")}

    kind: Literal["rendering"] = "rendering"
    shape: Literal["table", "figure"]
    title: str
    caption: str
    source: str
    note: str
    row_header: str
    rows: tuple[str, ...]
    columns: tuple[ShownColumn, ...]
    cells: tuple[ShownCell, ...]
    measurements: tuple[Path, ...]
    draw: str | None
    digits: int | None
    stand_ins: dict[str, str] = Field(
        {}, description="dataset that was read -> what the paper calls those that it replaces"
    )

    @property
    def path(self) -> Path:
        """Where the plan writes the node: beside those of the other artifacts of the scale."""
        return self.output.parents[1] / "nodes" / f"{self.target}.json"

    @property
    def target(self) -> str:
        """The name by which one asks for it."""
        return target_of(self.paper, self.name)

    @property
    def command(self) -> str:
        """The command that makes it with the settings that it was planned with."""
        return snakemake_command(self.target, config=self.config)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The kinds of files that it is rendered to."""
        return self.SUFFIXES[self.shape]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is rendered to."""
        return tuple(self.output.with_suffix(suffix) for suffix in self.suffixes)

    @property
    def decided(self) -> dict[str, Any]:
        """All that is written in it; the code covers the function that draws."""
        own = {"shape", "title", "caption", "source", "note", "row_header", "rows", "columns"}
        own |= {"cells", "measurements", "digits", "stand_ins", "scale", "code"}
        return self.model_dump(mode="json", include=own, exclude_defaults=True)


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


class ReportNode(Node):
    """The page of a scale: every artifact, whose records are its inputs, and every paper's claims.

    `trainings` are the records that tell what the trainings cost; `findings`, Markdown, are what
    was found in the papers.
    """

    kind: Literal["report"] = "report"
    description: str
    findings: str = ""
    papers: tuple[ReportedPaper, ...]
    renderings: tuple[Path, ...]
    trainings: tuple[Path, ...]

    @property
    def path(self) -> Path:
        """Where the plan writes the node."""
        return self.output.parent / "nodes" / "report.json"

    @property
    def files(self) -> tuple[Path, ...]:
        """The report in Markdown and as a page, claims, models, and the plot of the effects."""
        return report_files(self.output)

    @property
    def decided(self) -> dict[str, Any]:
        """All that is written in it."""
        own = {"description", "findings", "papers", "renderings", "trainings", "scale", "code"}
        return self.model_dump(mode="json", include=own, exclude_defaults=True)


def report_files(record: Path) -> tuple[Path, ...]:
    """The files of the report with this record, the Markdown first, then the page."""
    more = ("claims.csv", "models.csv", "effects.svg", "effects.png")
    return record.with_suffix(".md"), record.with_suffix(".html"), *map(record.with_name, more)


AnyNode = TrainingNode | MeasurementNode | RenderingNode | ReportNode
NODES: dict[str, type[AnyNode]] = {
    "training": TrainingNode,
    "measurement": MeasurementNode,
    "rendering": RenderingNode,
    "report": ReportNode,
}


def node_path(output: Path, scale: str) -> Path:
    """Where the plan writes the node of a training or a measurement.

    Two scales may share a run and differ in how it is made.
    """
    folder = output.parent.parent if output.parent.name == "measurements" else output.parent
    return folder / "nodes" / scale / output.name


# Snakemake writes the nodes when a run begins: where nothing is due, it is to be told what is.
PLAN_AGAIN = (
    "delete it and start snakemake again, with --forcerun and the path of its record if that is "
    "there"
)


FORMAT = 2
"""Raised where identities come to be of other fields: those of older nodes are not checked."""


def parse_node(content: Any, place: str, remedy: str = PLAN_AGAIN) -> AnyNode:
    """Make a node of plain data, as `Node.content` gives it; `remedy` says what to do about others.

    Raises:
        VitrailError: it is none, of other fields than nodes have now, or its identity is not that
            of its fields.
    """
    if not isinstance(content, dict) or str(content.get("kind")) not in NODES:
        raise VitrailError(f"{place} holds no node; {remedy}")
    fields = {name: content[name] for name in content if name not in ("format", "identity")}
    try:
        node = parse(NODES[content["kind"]], fields, place)
    except VitrailError as error:
        raise VitrailError(f"{error}; {remedy}") from None
    if content.get("format") == FORMAT and content.get("identity") != node.identity:
        raise VitrailError(
            f"{place} was changed by hand: its identity is {content.get('identity')!r}, and its "
            f"fields give '{node.identity}'; {remedy}"
        )
    return node


def read_node(path: Path) -> AnyNode:
    """Read a planned node; errors as `parse_node`, also where the file is missing or damaged."""
    return parse_node(_content(path), str(path))


def read_needs(path: Path) -> dict[str, Any]:
    """Read what the rules take from a node's file; errors as `read_node`.

    These are the path of the file (`node`), `inputs`, `identity`, and each of the resources.
    """
    try:
        return _needs_in(_content(path), path)
    except (KeyError, TypeError) as error:
        raise _no_node(path, error) from None


def _needs_in(content: Any, path: Path) -> dict[str, Any]:
    named = {name: content[name] for name in ("inputs", "identity")}
    return {"node": str(path), **named, **content["resources"]}


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _no_node(path, error) from None


def _no_node(path: Path, error: Exception) -> VitrailError:
    return VitrailError(f"{path} is no node ({type(error).__name__}: {error}); {PLAN_AGAIN}")
