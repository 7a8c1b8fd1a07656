"""A node is one piece of work: what is to be done, to what, and with what; one JSON file each.

The rules take inputs and resources from it, and the work reads nothing else: it is repeated from
its node alone, whatever the YAML has come to say since; the report alone reads the checkout again,
and its node has the digest of what it must find there. When it is done, the same node with its
outcome is the record of the result (`replication.records.records`).

`identity` is the digest of what decides the result (not where the data lie, or how many workers
read them), and where it changes the node is due again. It is computed from the node's own fields
wherever a node is read, so a file that was edited by hand is refused.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt

from replication.config.recipe import short_hash
from replication.config.schema import Strict, parse
from replication.config.settings import Resources, TrainingOptions
from replication.records.specs import Artifact, Measurement, Run
from vitrail.errors import VitrailError
from vitrail.files import atomic_path


class Node(Strict, ABC):
    """What the kinds of nodes have in common.

    `inputs` are the files that must be there before it starts; `output` is the record that it
    writes. `code` is the digest of the code that decides the result, and `commit` the commit that
    the plan was made at, with "-dirty" where a file behind `code` differs from it. `config` are the
    settings that it was planned with, as ``--config`` takes them.
    """

    kind: str
    scale: str
    output: Path
    inputs: tuple[Path, ...]
    code: str
    commit: str | None
    config: tuple[str, ...] = ()
    resources: Resources = Resources()

    @property
    @abstractmethod
    def paper(self) -> str:
        """The paper that it is of; "" where it is of all."""

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


class TrainingNode(Node):
    """The training of a run.

    `published` is the file of the published weights that training starts from. With `retrain`, what
    other code has trained is trained anew.
    """

    kind: Literal["training"] = "training"
    run: Run
    device: str
    data_root: Path
    options: TrainingOptions = TrainingOptions()
    published: Path | None = None
    retrain: bool = False

    @property
    def paper(self) -> str:
        """The paper of the run."""
        return self.run.paper

    @property
    def initial(self) -> Path | None:
        """The file of the weights that it starts from, published or of another run."""
        return self.published or (self.run.source.weights if self.run.source else None)

    @property
    def decided(self) -> dict[str, Any]:
        """Recipe, steps, datasets and seed.

        Not the code: no training is repeated because code has changed. Which code has trained a run
        is told by its record (`replication.records.records`).
        """
        run = self.run
        return {
            "recipe": run.recipe.canonical_json(),
            "data": run.data,
            "steps": run.recipe.steps(run.dataset.train_images),  # by a formula of its class
            "seed": run.seed,
        }


class MeasurementNode(Node):
    """The taking of a measurement."""

    kind: Literal["measurement"] = "measurement"
    measurement: Measurement
    data_root: Path
    workers: NonNegativeInt

    @property
    def paper(self) -> str:
        """The paper of the measurement."""
        return self.measurement.paper

    @property
    def device(self) -> str:
        """The device that it is taken on."""
        return self.measurement.device

    @property
    def decided(self) -> dict[str, Any]:
        """The measure by name, arguments, seed, device, datasets, recipe and code.

        The code covers the function, whatever it is called.
        """
        own = self.measurement
        return {
            "measure": f"{own.paper}/{own.name}",
            **{name: getattr(own, name) for name in ("args", "seed", "device")},
            "datasets": [info.identity_fields for info in own.datasets],
            "data": own.on.data if own.on else [],
            "recipe": own.on.recipe.canonical_json() if own.on else None,
            "trained": own.run.recipe.hash if own.run else None,
            "code": self.code,
        }


class RenderingNode(Node):
    """The rendering of a table or a figure."""

    kind: Literal["rendering"] = "rendering"
    artifact: Artifact

    @property
    def path(self) -> Path:
        """Where the plan writes the node: beside those of the other artifacts of the scale."""
        return self.output.parents[1] / "nodes" / f"{self.artifact.target}.json"

    @property
    def paper(self) -> str:
        """The paper of the artifact."""
        return self.artifact.paper

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it is rendered to."""
        return self.artifact.files_in(self.output.parent)

    @property
    def decided(self) -> dict[str, Any]:
        """All that is written in it; the code covers the function that draws."""
        artifact = self.artifact.model_dump(
            mode="json", exclude={"draw", "config", "collection"}, exclude_defaults=True
        )
        return {**artifact, "code": self.code}


class ReportNode(Node):
    """The writing of a scale's report from the records of its artifacts, `renderings`.

    `report` is the digest of what it says besides: claims and findings lie in the checkout.
    """

    kind: Literal["report"] = "report"
    report: str
    renderings: tuple[Path, ...]

    @property
    def paper(self) -> str:
        """None of them."""
        return ""

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
        own = {"report", "renderings", "scale", "code"}
        return self.model_dump(mode="json", include=own)


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


FORMAT = 3
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
    named = {name: content[name] for name in ("inputs", "identity", "code")}
    return {"node": str(path), **named, **content["resources"]}


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _no_node(path, error) from None


def _no_node(path: Path, error: Exception) -> VitrailError:
    return VitrailError(f"{path} is no node ({type(error).__name__}: {error}); {PLAN_AGAIN}")
