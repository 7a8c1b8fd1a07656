"""The ledger: the records of finished nodes, and what is wrong with one.

A record is one JSON file: the node that was done, and its outcome. Everything that is asked of
results (status, verification, publication, where a number comes from) is a walk over records.
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

# Snakemake does not make a missing record again by itself where the results that rest on it exist.
# `replication.cluster.failures.written_out` says which TARGET and RECORD these are.
AGAIN = "run snakemake TARGET --forcerun RECORD to make this file, RECORD, again"


@dataclass(frozen=True)
class Record:
    """A finished node: what was done, and what came out.

    The outcome of a training has ``sha256`` of the weights and its ``facts``, that of a measurement
    ``values``, ``provenance`` and of a trained model the ``weights`` (SHA-256), that of a rendering
    ``inputs`` and ``outputs`` (SHA-256 by path).
    """

    node: AnyNode
    outcome: Mapping[str, Any]
    written: Mapping[str, Any]
    """The node as the file has it; a field that nodes have come to have since is not there."""

    @property
    def content(self) -> dict[str, Any]:
        """The record as plain data."""
        return {"node": self.written, **self.outcome}

    @property
    def text(self) -> str:
        """The record as its file has it."""
        return json.dumps(self.content, indent=1) + "\n"

    @property
    def sha256(self) -> str:
        """The digest of the record's file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits that it was made at; "" where it does not say."""
        facts = self.facts if self.facts is not None else {"commit": self.node.commit}
        return tuple(dict.fromkeys(str(facts.get("commit") or "").split("+")))

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """How, where and when a training or a measurement was made; None of a rendering."""
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
"""What the outcome of each kind of node has."""


def complete(node: AnyNode, outcome: Mapping[str, Any]) -> Record:
    """Write the record of a node that is done."""
    record = Record(node, outcome, node.content())
    write_atomically(node.output, record.text)
    return record


def parse_record(content: Any, place: str, remedy: str = AGAIN) -> Record:
    """Make a record of plain data; `remedy` says what to do about one that is damaged.

    Raises:
        VitrailError: it is none, its node was changed by hand, or its outcome is not whole.
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
    """Read the record of a node, None where it is not done; VitrailError where it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise VitrailError(f"cannot read {path} ({error}); {AGAIN}") from None
    return parse_record(content, str(path))


def without_remedy(error: VitrailError) -> str:
    """What an error of `read_record` says, without how the record is made again."""
    return str(error).removesuffix(f"; {AGAIN}")


def read_sound(path: Path) -> Record | None:
    """Read the record of a node, None where it is not done or damaged, as `Ledger.fault` tells."""
    with suppress(VitrailError):
        return read_record(path)
    return None


def require_record(path: Path) -> Record:
    """Read the record of a node that must be done; VitrailError where it is not."""
    if (record := read_record(path)) is None:
        raise VitrailError(f"{path} does not exist: {AGAIN}")
    return record


def trained_by(run: Run) -> str | None:
    """The digest of the code that has trained a run, of several joined by "+".

    None where its weights are gone, or its record is missing or damaged.
    """
    record = read_sound(run.record) if run.weights.is_file() else None
    return str(record.outcome["facts"].get("code", "unknown")) if record else None


def code_due(node: TrainingNode) -> str:
    """The digest of code by which a training is due where it changes, besides its identity.

    It is that of the run's record while its weights are there, for no training is repeated because
    code has changed; else, or where the node asks for that (`retrain`), that of the code now.
    """
    if not node.retrain and node.run.weights.is_file() and (record := read_sound(node.output)):
        return record.node.code
    return node.code


@dataclass(frozen=True)
class Fault:
    """What is wrong with a record, and what makes it right.

    `output` is the record that has to be made again, once the folders of `remove` are deleted.
    """

    what: str
    output: Path
    remove: tuple[Path, ...] = ()

    def remedy(self, target: str, snakemake: Callable[..., str]) -> str:
        """The sentence, with the commands that put it right for a target.

        `snakemake` writes the command, as `Catalog.snakemake`.
        """
        delete = shlex.join(["rm", "-r", *map(str, self.remove)]) + " && " if self.remove else ""
        return f"{self.what}: {delete}{snakemake(target, '--forcerun', str(self.output))}"


class Ledger:
    """The records of a scale beside the nodes that are planned now.

    `planned` gives the node whose record a path is, or None where it is no record (data).
    """

    def __init__(self, planned: Callable[[Path], AnyNode | None]) -> None:
        self._planned = planned
        self._faults: dict[Path, Fault | None] = {}

    def fault(self, output: Path) -> Fault | None:
        """What is wrong with a record, or with one that it rests on or would rest on; else None.

        That a record is not there yet is no fault.
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
        found = next(_faults_of(record, node), None)
        return Fault(f"{output} {found}", output, remove) if found else None

    def behind(self, output: Path) -> dict[Path, Record]:
        """The records that a record rests on, each after its own inputs; it is the last."""
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


def _faults_of(record: Record, node: AnyNode) -> Iterator[str]:
    """Yield each difference between a record and its node as it is planned now."""
    made = record.node
    if made.plain | {"code": ""} != node.plain | {"code": ""}:
        yield f"was made with other {_differing(made, node)} than are written now"
    code = record.outcome.get("code", made.code)
    if code != node.code and not isinstance(node, TrainingNode):  # no training is due for its code
        yield "was made by other code than is here"
    match node:
        case TrainingNode():
            weights, start = node.run.weights, node.initial
            if not weights.is_file():
                yield f"names weights that are gone, {weights}"
            elif digest_once(weights) != record.outcome["sha256"]:
                yield f"names other weights than {weights} holds"
            noted = record.outcome["facts"].get("initial_sha256")
            if start and start.is_file() and digest_once(start) != noted:
                yield f"was trained from other weights than {start} holds"
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


def _differing(made: AnyNode, node: AnyNode) -> str:
    """The fields in which two nodes of one kind differ, in words."""
    here, there = made.plain, node.plain
    names = [name for name in there if name != "code" and here.get(name) != there[name]]
    return " and ".join(names) or "fields"


digest_once = functools.cache(sha256)  # of large files that several records rest on
