"""A node is one piece of work: what is done, to what and with what, in one JSON file.

The rules of the graph take inputs and resources from the node, and the work reads its settings from
the node alone, so that it can be repeated even if the YAML files have changed since. The one
exception is the report: it reads the checkout again, and its node has the digest of what it must
find there. When the work is done, the same node with its outcome is the record of the result
(`replication.records.records`).

`identity` is the digest of what decides the result; it does not cover, for example, where the data
lie or how many workers read them. If it changes, the node is due again. It is computed from the
node's own fields whenever a node is read, so a file that was edited by hand is refused.
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
    """Base of the kinds of nodes.

    `inputs` are the files that must exist before the work starts; `output` is the record that it
    writes. `code` is the digest of the code that decides the result. `commit` is the commit at
    which the node was planned, with "-dirty" if a file behind `code` differs from it. `config` are
    the settings that it was planned with, as ``--config`` takes them.
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
        """Return the paper that it belongs to; "" for all papers."""

    @property
    @abstractmethod
    def decided(self) -> dict[str, Any]:
        """Return the fields that decide the result."""

    @property
    def plain(self) -> dict[str, Any]:
        """Return `decided` as read back from JSON, so that it equals that of the record."""
        content: dict[str, Any] = json.loads(json.dumps(self.decided, default=str))
        return content

    @property
    def identity(self) -> str:
        """Return the digest of what decides the result: 8 hex digits."""
        return short_hash(self.plain)

    @property
    def path(self) -> Path:
        """Return the file that the plan writes the node to."""
        return node_path(self.output, self.scale)

    def content(self) -> dict[str, Any]:
        """Return the node as plain data, with its format and identity."""
        return {**self.model_dump(mode="json"), "format": FORMAT, "identity": self.identity}

    @property
    def needs(self) -> dict[str, Any]:
        """Return what the rules take from the node, as `read_needs` does from its file."""
        return _needs_in(self.content(), self.path)

    def write(self) -> Path:
        """Write the node's file unless its content is the same already; return its path.

        Raises:
            VitrailError: it cannot be written.
        """
        text = json.dumps(self.content(), indent=1) + "\n"
        if not self.path.is_file() or self.path.read_bytes() != text.encode():
            # Not durable: a node that is lost is planned again.
            with atomic_path(self.path, durable=False) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return self.path


class TrainingNode(Node):
    """The training of a run.

    `published` is the file of the published weights that the training starts from. With `retrain`,
    a run that other code has trained is trained again.
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
        """Return the paper of the run."""
        return self.run.paper

    @property
    def decided(self) -> dict[str, Any]:
        """Return recipe, steps, datasets and seed.

        The code is not among them: no training is repeated because code has changed. The record of
        a run tells which code has trained it (`replication.records.records`).
        """
        run = self.run
        return {
            "recipe": run.recipe.canonical_json(),
            "data": run.data,
            "steps": run.recipe.steps(run.dataset.train_images),  # depends on code of its class
            "seed": run.seed,
        }


class MeasurementNode(Node):
    """The work of one measurement."""

    kind: Literal["measurement"] = "measurement"
    measurement: Measurement
    data_root: Path
    workers: NonNegativeInt

    @property
    def paper(self) -> str:
        """Return the paper of the measurement."""
        return self.measurement.paper

    @property
    def device(self) -> str:
        """Return the device that it is taken on."""
        return self.measurement.device

    @property
    def decided(self) -> dict[str, Any]:
        """Return measure, arguments, seed, device, datasets, recipe and code.

        The function's name is not among them: the digest of the code covers the function.
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
        """Return the file that the plan writes the node to: all artifacts share one folder."""
        return self.output.parents[1] / "nodes" / f"{self.artifact.target}.json"

    @property
    def paper(self) -> str:
        """Return the paper of the artifact."""
        return self.artifact.paper

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files that it is rendered to."""
        return self.artifact.files_in(self.output.parent)

    @property
    def decided(self) -> dict[str, Any]:
        """Return all that is shown in it; the code covers the function that draws."""
        artifact = self.artifact.model_dump(
            mode="json", exclude={"draw", "config", "collection"}, exclude_defaults=True
        )
        return {**artifact, "code": self.code}


class ReportNode(Node):
    """The writing of a scale's report from the records of its artifacts, `renderings`.

    `report` is the digest of all else that the report shows: claims and findings, which are read
    from the checkout.
    """

    kind: Literal["report"] = "report"
    report: str
    renderings: tuple[Path, ...]

    @property
    def paper(self) -> str:
        """Return "": the report is of all papers."""
        return ""

    @property
    def path(self) -> Path:
        """Return the file that the plan writes the node to."""
        return self.output.parent / "nodes" / "report.json"

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the report's files: Markdown, HTML page, claims, models, plot of the effects."""
        return report_files(self.output)

    @property
    def decided(self) -> dict[str, Any]:
        """Return all that decides the content of the report."""
        own = {"report", "renderings", "scale", "code"}
        return self.model_dump(mode="json", include=own)


def report_files(record: Path) -> tuple[Path, ...]:
    """Return the files of the report with this record: Markdown, HTML page, then the others."""
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
    """Return the file that the plan writes the node of a training or a measurement to.

    Each scale has its own folder of nodes: two scales may share a run, but not the way it is made.
    """
    folder = output.parent.parent if output.parent.name == "measurements" else output.parent
    return folder / "nodes" / scale / output.name


# Snakemake writes the nodes when it starts. If nothing else is due, it must be told what to make.
PLAN_AGAIN = (
    "delete it and start snakemake again, with --forcerun and the path of its record if that is "
    "there"
)


FORMAT = 3
"""To be increased when other fields enter identities: those of older nodes are not checked."""


def parse_node(content: Any, place: str, remedy: str = PLAN_AGAIN) -> AnyNode:
    """Convert plain data, as from `Node.content`, to a node.

    `place` is the origin of the data; `remedy` tells the reader of an error what to do.

    Raises:
        VitrailError: the data are no node, have other fields than nodes have now, or an identity
            that does not follow from the fields.
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
    """Read a planned node; errors as `parse_node`, also if the file is missing or damaged."""
    return parse_node(_content(path), str(path))


def read_needs(path: Path) -> dict[str, Any]:
    """Read from a node's file what the rules take from it; errors as `read_node`.

    This is the path of the file (`node`), `inputs`, `identity`, `code`, and each of the resources.
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
