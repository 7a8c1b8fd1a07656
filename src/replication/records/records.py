"""The ledger: the records of finished nodes, and the faults of a record.

A record is one JSON file with a node that was done and its outcome. All that is asked about results
(their status, verification and publication, and the origin of a number) is computed by following
records to the records that they depend on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replication.records.nodes import (
    AnyNode,
    MeasurementNode,
    RenderingNode,
    TrainingNode,
    parse_node,
)
from replication.records.specs import Run
from vitrail.errors import VitrailError
from vitrail.files import sha256, write_atomically

# If the results that depend on a missing record exist, Snakemake does not make the record again.
# `replication.cluster.failures.written_out` fills in TARGET and RECORD.
AGAIN = "run snakemake TARGET --forcerun RECORD to make this file, RECORD, again"


@dataclass(frozen=True)
class Record:
    """A finished node: what was done, and its outcome.

    `outcome` depends on the kind of node. Of a training it has ``sha256`` (of the weights) and
    ``facts``; of a measurement ``values``, ``provenance`` and, if a trained model was measured,
    ``weights`` (their SHA-256); of a rendering ``inputs`` and ``outputs`` (SHA-256 by path).
    """

    node: AnyNode
    outcome: Mapping[str, Any]
    written: Mapping[str, Any]
    """The node as its file has it, without fields that were added to nodes after it was written."""

    @property
    def content(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {"node": self.written, **self.outcome}

    @property
    def text(self) -> str:
        """Return the text of the record's file."""
        return json.dumps(self.content, indent=1) + "\n"

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the record's file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def commits(self) -> tuple[str, ...]:
        """Return the commits that it was made at; "" stands for an unknown one."""
        facts = self.facts if self.facts is not None else {"commit": self.node.commit}
        return tuple(dict.fromkeys(str(facts.get("commit") or "").split("+")))

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """Return how, where and when a training or a measurement was made; else None."""
        facts: Mapping[str, Any] | None = self.outcome.get(
            "facts" if isinstance(self.node, TrainingNode) else "provenance"
        )
        return facts


OUTCOMES: dict[str, dict[str, type]] = {
    "training": {"sha256": str, "facts": dict},
    "measurement": {"values": dict, "code": str, "provenance": dict},
    "rendering": {"inputs": dict, "outputs": dict},
    "report": {"outputs": dict},
}
"""The fields, with their types, that the outcome of each kind of node must have."""


def complete(node: AnyNode, outcome: Mapping[str, Any]) -> Record:
    """Write the record of a node that is done, and return it."""
    record = Record(node, outcome, node.content())
    write_atomically(node.output, record.text)
    return record


def parse_record(content: Any, place: str, remedy: str = AGAIN) -> Record:
    """Convert plain data to a record; `remedy` tells the reader of an error what to do.

    `place` is the origin of the data, for the error.

    Raises:
        VitrailError: the data are no record, its node was changed by hand, or its outcome is
            incomplete.
    """
    if not isinstance(content, dict) or "node" not in content:
        raise VitrailError(f"{place} is no record of a finished node; {remedy}")
    outcome = {name: value for name, value in content.items() if name != "node"}
    record = Record(parse_node(content["node"], place, remedy), outcome, content["node"])
    for name, kind in OUTCOMES[record.node.kind].items():
        if not isinstance(outcome.get(name), kind):
            raise VitrailError(f"{place} does not have the {name} of what was made; {remedy}")
    return record


def read_record(path: Path) -> Record | None:
    """Read the record of a node; None if it is not done. Raises VitrailError if it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise VitrailError(f"cannot read {path} ({error}); {AGAIN}") from None
    return parse_record(content, str(path))


def without_remedy(error: VitrailError) -> str:
    """Return the message of an error of `read_record` without the command that makes it again."""
    return str(error).removesuffix(f"; {AGAIN}")


def read_sound(path: Path) -> Record | None:
    """Read the record of a node; None if it is not done or damaged (`Ledger.fault` tells which)."""
    with suppress(VitrailError):
        return read_record(path)
    return None


def require_record(path: Path) -> Record:
    """Read the record of a node that must be done; raises VitrailError if it is not."""
    if (record := read_record(path)) is None:
        raise VitrailError(f"{path} does not exist: {AGAIN}")
    return record


def trained_by(run: Run) -> str | None:
    """Return the digest of the code that trained a run; several are joined by "+".

    None if its record is missing or damaged.
    """
    record = read_sound(run.record)
    return str(record.outcome["facts"].get("code", "unknown")) if record else None


def code_due(node: TrainingNode) -> str:
    """Return the code digest that Snakemake compares to decide whether a training is due.

    While its record exists, it is the digest in it, since no training is repeated because code has
    changed. Otherwise, or if the node asks for it (`retrain`), it is the digest of the code as it
    is now.
    """
    if not node.retrain and (record := read_sound(node.output)):
        return record.node.code
    return node.code


@dataclass(frozen=True)
class Fault:
    """A fault of a record, and how it is put right.

    `what` is the fault as a clause. `output` is the record that must be made again, after the
    folders of `remove` have been deleted.
    """

    what: str
    output: Path
    remove: tuple[Path, ...] = ()

    def remedy(self, target: str, snakemake: Callable[..., str]) -> str:
        """Return the fault with the commands that put it right for a target.

        `snakemake` returns the command, as `Catalog.snakemake` does.
        """
        delete = shlex.join(["rm", "-r", *map(str, self.remove)]) + " && " if self.remove else ""
        return f"{self.what}: {delete}{snakemake(target, '--forcerun', str(self.output))}"


class Ledger:
    """The finished records of a scale, compared with the nodes that are planned now.

    `planned` returns the node whose record a path is, or None if the path is no record (but data).
    `published` returns the published records. One of them needs no weights: those that it names
    were checked when it was published.
    """

    def __init__(
        self,
        planned: Callable[[Path], AnyNode | None],
        published: Callable[[], Mapping[Path, Record]] = dict,
    ) -> None:
        self._planned = planned
        self._published = published
        self._faults: dict[Path, Fault | None] = {}

    def fault(self, output: Path) -> Fault | None:
        """Return the first fault of the records that a record depends on, or of itself.

        None if there is no fault. A record that does not exist yet is no fault, and the records
        that it will depend on are still checked.
        """
        if output not in self._faults:
            self._faults[output] = self._find_fault(output)
        return self._faults[output]

    def _find_fault(self, output: Path) -> Fault | None:
        if (node := self._planned(output)) is None:
            return None
        try:
            record = read_record(output)
        except VitrailError as error:
            return Fault(without_remedy(error), output)
        for path in node.inputs:
            if fault := self.fault(path):
                return fault
        if record is None:
            return None
        remove: tuple[Path, ...] = ()
        if isinstance(node, TrainingNode):
            remove = (node.run.folder,)
        found = next(_faults_of(record, node, self._published), None)
        return Fault(f"{output} {found}", output, remove) if found else None

    def behind(self, output: Path) -> dict[Path, Record]:
        """Return the record and all that it depends on, each after its inputs, itself last."""
        found: dict[Path, Record] = {}
        self._collect(output, found)
        return found

    def _collect(self, output: Path, found: dict[Path, Record]) -> None:
        node = self._planned(output)
        if node is None or output in found or (record := read_record(output)) is None:
            return
        for path in node.inputs:
            self._collect(path, found)
        found[output] = record


def _faults_of(
    record: Record, node: AnyNode, published: Callable[[], Mapping[Path, Record]]
) -> Iterator[str]:
    """Yield each difference between a record and its node as planned now, as a clause.

    `published` returns the published records, whose weights may be gone.
    """
    yield from planned_otherwise(record, node)
    match node:
        case TrainingNode():
            weights, source = node.run.weights, node.run.source
            if not weights.is_file():
                kept = published().get(node.output)
                if kept is None or kept.content != record.content:
                    yield f"names weights that are gone, {weights}"
            elif digest_once(weights) != record.outcome["sha256"]:
                yield f"names other weights than {weights} holds"
            noted = record.outcome["facts"].get("initial_sha256")
            file, start = node.published, read_record(source.record) if source else None
            if file and file.is_file() and digest_once(file) != noted:
                yield f"was trained from other weights than {file} holds"
            if source and start and start.outcome["sha256"] != noted:
                yield f"was trained from other weights than {source.record} names"
        case MeasurementNode():
            if run := node.measurement.run:
                trained = read_record(run.record)
                if record.outcome.get("weights") != (trained and trained.outcome["sha256"]):
                    yield f"was measured on other weights than {run.record} names"
        case RenderingNode():
            for path in node.artifact.records:
                now = read_record(path)
                if record.outcome["inputs"].get(str(path)) != (now.sha256 if now else None):
                    yield f"shows other numbers than {path} has"
            for file in node.files:
                found = sha256(file) if file.is_file() else None
                if record.outcome["outputs"].get(file.name) != found:
                    yield f"rendered another {file.name} than is here"


def planned_otherwise(record: Record, node: AnyNode) -> Iterator[str]:
    """Yield each difference between what a record was made of and what is planned, as a clause."""
    made = record.node
    if made.plain | {"code": ""} != node.plain | {"code": ""}:
        yield f"was made with other {_differing(made, node)} than are written now"
    code = record.outcome.get("code", made.code)
    # A training is never due because its code has changed.
    if code != node.code and not isinstance(node, TrainingNode):
        yield "was made by other code than is here"


def _differing(made: AnyNode, node: AnyNode) -> str:
    """Name the fields in which two nodes of one kind differ."""
    here, there = made.plain, node.plain
    names = [name for name in there if name != "code" and here.get(name) != there[name]]
    return " and ".join(names) or "fields"


digest_once = functools.cache(sha256)  # for large files that several records depend on
