"""The origin of one cell's number: the nodes that it depends on, and their records."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from replication.claims.comparison import VERDICTS, as_measured, compare
from replication.claims.judge import told_claim
from replication.cluster.failures import written_out
from replication.config.claims import EVERY_ROW, Claim
from replication.config.paper import Labelled
from replication.plan.catalog import Catalog
from replication.records.nodes import AnyNode, MeasurementNode, TrainingNode
from replication.records.records import AGAIN, Record, read_sound
from replication.records.specs import Artifact, Cell
from replication.report.formatting import entry_of, format_interval, short_commit
from replication.report.ledger import (
    RECORDS,
    claims_of_paper,
    ledger_of,
    planned_node,
    published_folder,
    read_published,
    renderings,
)
from replication.report.markdown_report import standing_of
from replication.report.print_recipe import DEFAULT, line_of_yaml, places
from replication.report.print_table import with_unit
from replication.report.results import cells_of
from vitrail.commands import count, heading, say, table
from vitrail.errors import VitrailError, require_known
from vitrail.provenance import duration

WIDTH = 100  # characters of a printed line, unless a word is longer
INDENT = 13  # characters of the names before the values


@dataclass(frozen=True)
class NamedCell:
    """A cell, the artifact that shows it, and the name of the recipe that it measures, if any.

    Recipes that are equal at a scale share a run; `recipe` is the name that the cell uses.
    """

    artifact: Artifact
    cell: Cell
    recipe: str | None

    @property
    def target(self) -> str:
        """Return the name of the artifact's target."""
        return self.artifact.target


def find_cell(catalog: Catalog, target: str, row: str, column: str) -> NamedCell:
    """Return the cell of a table or figure by its labels; the column's may end with its unit.

    Raises:
        VitrailError: there is no such target, it has several artifacts or no cells, or the label
            fits no row or column, or several.
    """
    artifacts = catalog.target(target).artifacts
    if len(artifacts) != 1:
        names = [artifact.target for artifact in artifacts]
        raise VitrailError(f"'{target}' is several tables and figures: name one of {names}")
    (artifact,) = artifacts
    paper = catalog.paper(artifact.paper)
    spec = paper.artifacts_file.artifacts[artifact.name]
    if not artifact.cells:
        raise VitrailError(f"'{target}' has no cells; name a table or figure that has")
    at_row = _labelled(f"{target}: row", row, spec.rows)
    units = {cell.unit for cell in artifact.cells if cell.unit}
    titled = [f" ({unit})" for unit in units if column.endswith(f" ({unit})")]
    known = {label for line in spec.columns for label in (line.full_label, line.label)}
    if titled and column not in known:  # the label has its unit, as in the table's heading
        column = column.removesuffix(titled[0])
    at_column = _labelled(f"{target}: column", column, spec.columns)
    key = (at_row.full_label, at_column.full_label)
    cell = next(cell for cell in artifact.cells if (cell.row, cell.column) == key)
    recipe = spec.cell_at(at_row, at_column, f"{paper.artifacts_path}, {artifact.name}").recipe
    return NamedCell(artifact, cell, recipe if cell.records else None)


def _bare(label: str) -> str:
    """Return a label without the dash before a row of ours."""
    return label.removeprefix("- ")


def _labelled(what: str, label: str, known: Sequence[Labelled]) -> Labelled:
    """Return the row or column of a label, which may omit its group if it stays unique.

    The dash before the label of a row of ours may be left out: a shell takes it for an option.
    """
    by_label = {line.full_label: line for line in known}
    bare = _bare(label)
    named = [({_bare(line.full_label), _bare(line.label)}, line) for line in known]
    require_known(what, bare, {name for names, _ in named for name in names})
    if label in by_label:
        return by_label[label]
    found = [line for names, line in named if bare in names]
    if len(found) > 1:
        names = " or ".join(f"'{line.full_label}'" for line in found)
        raise VitrailError(f"{what} '{label}' is in several groups: name {names}")
    return found[0]


UNDER_SEED = re.compile(r"-seed\d+")
"""The part of a record's name that names its seed."""


@dataclass(frozen=True)
class Records:
    """The records from which a number's origin is read: those made here, or the published ones.

    `read` returns the record of a path. `results` is the folder of the rendered files. `planned`
    tells whether the node of the plan is shown where there is no record.
    """

    catalog: Catalog
    read: Callable[[Path], Record | None]
    artifact: Artifact
    results: Path
    planned: bool

    def node(self, path: Path) -> AnyNode | None:
        """Return the node of a record as it was done, or else as planned; None if there is none."""
        if record := self.read(path):
            return record.node
        return planned_node(self.catalog, path) if self.planned else None


def _published_records(named: NamedCell, catalog: Catalog) -> tuple[Records, list[str]]:
    """Return the published records (none if one is damaged), and the faults in them."""
    folder, faults = published_folder(catalog), []
    records: dict[Path, Record] = {}
    try:
        records = read_published(folder)
    except VitrailError as error:
        faults.append(str(error))
    node = renderings(records).get(named.target)
    artifact = node.artifact if node else named.artifact
    return Records(catalog, records.get, artifact, folder, planned=False), faults


def origin_of(named: NamedCell, catalog: Catalog) -> dict[str, Any]:
    """Return what `vitrail why` prints of a cell, as plain data.

    Measurements, trainings and claims are those made here, or, if the cell is not measured here,
    the published ones; ``origin`` says which. Claims are published ones, too, if the table or
    figure is not rendered here.

    Raises:
        VitrailError: a record made here, or a file of results, is damaged.
    """
    artifact, cell = named.artifact, named.cell
    printed = cell.printed
    here = Records(catalog, read_sound, artifact, catalog.results, planned=True)
    published, faults = _published_records(named, catalog)
    numbers = {"measured": _number(cell, here), "published": _number(cell, published)}
    made_here = bool(numbers["measured"] or not numbers["published"])
    records = here if made_here else published
    rendered = not cells_of(artifact, here.results).empty
    return {
        "target": named.target,
        "source": artifact.source,
        "row": cell.row,
        "column": cell.column,
        "scale": catalog.scale.name,
        "command": catalog.snakemake(named.target),
        "unit": cell.unit,
        "printed": {name: getattr(printed, name) for name in ("value", "std", "source")}
        if printed
        else None,
        **numbers,
        "changed": None if made_here else changed_recipe(cell, _shown(cell, published)),
        "origin": "here" if made_here else "published",
        "records": str(
            catalog.runs_root if made_here else published_folder(catalog) / artifact.paper / RECORDS
        ),
        "data": _data(cell, catalog),
        "claims": _claims(named, here if made_here and rendered else published),
        "measurements": _measurements(cell, records),
        "trainings": _trainings(cell, records),
        "recipe": _recipe(named, catalog),
        "faults": [*faults, *_faults(named, catalog)],
    }


def _shown(cell: Cell, records: Records) -> Cell | None:
    """Return the cell as it was rendered; None if it is not in the artifact or not measured."""
    for shown in records.artifact.cells:
        if (shown.row, shown.column) == (cell.row, cell.column) and shown.records:
            return shown
    return None


def changed_recipe(planned: Cell, published: Cell | None) -> str | None:
    """Say that a published number is of another recipe or measurement than planned; else None."""
    if published is None or not planned.records:
        return None
    then, now = (
        sorted({f"{path.parents[1].name}/{UNDER_SEED.sub('', path.stem)}" for path in cell.records})
        for cell in (published, planned)
    )
    if then == now:
        return None
    return f"published is {', '.join(then)}; as it is planned now, it is {', '.join(now)}"


def _number(cell: Cell, records: Records) -> dict[str, Any] | None:
    """Return the number that the cell's records give, with its verdict; None without records."""
    shown = _shown(cell, records)
    found = {path: records.read(path) for path in (shown.records if shown else ())}
    measured = {path: as_measured(record, path) for path, record in found.items() if record}
    if not measured:
        return None
    tidy = compare(records.artifact, measured).to_dict("records")
    entry = next(
        entry for entry in tidy if (entry["row"], entry["column"]) == (cell.row, cell.column)
    )
    names = ("measured", "std", "n_seeds", "ci_low", "ci_high", "verdict")
    values = {name: None if pd.isna(entry[name]) else entry[name] for name in names}
    number = replace(entry_of(cell, entry).measured, mark="")  # the verdict is told in words
    return {**values, "text": number.text}


def _claims(named: NamedCell, records: Records) -> list[dict[str, Any]]:
    """Return the claims that use a cell, judged on the rendered tables and figures.

    Each has the columns of ``claims.csv``, with None for an empty one.
    """
    paper = records.catalog.paper(named.artifact.paper)
    using = {
        claim.id
        for claim in paper.claims
        if (named.artifact.name, named.cell) in claim_cells(claim, paper.artifacts)
    }
    if not using:
        return []
    judged = claims_of_paper(records.catalog, paper, records.results, records.read)
    return [
        {str(name): None if pd.isna(value) else value for name, value in claim.items()}
        for claim in judged.to_dict("records")
        if claim["id"] in using
    ]


def claim_cells(claim: Claim, artifacts: Mapping[str, Artifact]) -> Iterator[tuple[str, Cell]]:
    """Yield the cells that a claim compares, each with the name of its artifact.

    A claim on every row compares only rows that the artifacts of all its operands have.
    """
    cells = {
        (name, cell.row, cell.column): cell
        for name in dict.fromkeys(operand.artifact for operand in claim.operands)
        if name in artifacts
        for cell in artifacts[name].cells
    }
    every = [operand for operand in claim.operands if EVERY_ROW in operand.row]
    for key, cell in cells.items():
        texts = {operand.text(key) for operand in claim.operands} - {None}
        if any(all(operand.key(text or "") in cells for operand in every) for text in texts):
            yield key[0], cell


def _data(cell: Cell, catalog: Catalog) -> dict[str, str | None]:
    """Return the datasets that a cell's measurement reads, with the digests of their images."""
    measurement = catalog.measurement_of(cell)
    return {info.name: info.digest for info in measurement.reads} if measurement else {}


def _measurements(cell: Cell, records: Records) -> list[dict[str, Any]]:
    """Return the cell's measurement under each seed, from its record or else as planned.

    ``code`` is the digest of the code that took it; ``code_here`` is the digest of this checkout's
    code, if the same measurement is planned here.
    """
    if (shown := _shown(cell, records)) is None:
        return []
    return [_measurement(path, shown.key, records) for path in shown.records]


def _measurement(path: Path, key: str, records: Records) -> dict[str, Any]:
    record, node = records.read(path), records.node(path)
    if not isinstance(node, MeasurementNode):
        raise VitrailError(written_out(f"{path} is no record of a measurement; {AGAIN}", node))
    own = node.measurement
    planned = planned_node(records.catalog, path)
    return {
        "name": own.name,
        "key": key,
        "function": own.function,
        "args": own.args,
        "seed": own.seed,
        "record": str(path),
        **_made(record),
        "code": record.outcome["code"] if record else None,
        "code_here": planned.code if isinstance(planned, MeasurementNode) else None,
    }


def _made(record: Record | None) -> dict[str, Any]:
    """Return how a record was made; a value is None if it is not recorded.

    `seconds` are the total over devices.
    """
    facts = (record.facts if record else None) or {}
    seconds = facts.get("wall_seconds")
    return {
        "sha256": record.sha256 if record else None,
        "commit": "+".join(record.commits) if record else None,
        "device": facts.get("device"),
        "seconds": None if seconds is None else seconds * facts.get("processes", 1),
    }


def _trainings(cell: Cell, records: Records) -> list[dict[str, Any]]:
    """Return the trainings that a cell's measurements depend on, each after its sources."""
    shown = _shown(cell, records)
    behind: dict[Path, TrainingNode] = {}
    for path in shown.records if shown else ():
        if measurement := records.node(path):
            behind |= _trainings_behind(measurement, records)
    found = []
    for path, node in behind.items():
        record = records.read(path)
        code = record.outcome["facts"].get("code") if record else None
        found.append({"record": str(path), "seed": node.run.seed, **_made(record), "code": code})
    return found


def _trainings_behind(node: AnyNode, records: Records) -> dict[Path, TrainingNode]:
    found: dict[Path, TrainingNode] = {}
    for path in node.inputs:
        training = records.node(path)
        if isinstance(training, TrainingNode):
            found |= {**_trainings_behind(training, records), path: training}
    return found


def _recipe(named: NamedCell, catalog: Catalog) -> dict[str, Any] | None:
    """Return the recipe that is measured: the values that a file sets, with file and line.

    None if nothing is measured, or if the measure needs no recipe.
    """
    measurement = catalog.measurement_of(named.cell)
    if measurement is None or measurement.on is None or named.recipe is None:
        return None
    paper = catalog.paper(measurement.paper)
    as_printed = paper.artifacts_file.measures[measurement.name].on == "paper"
    written = (paper.printed_values if as_printed else paper.values)(named.recipe)
    values = measurement.on.recipe.shown()
    return {
        "name": named.recipe,
        "folder": str(measurement.on.home),
        "values": [
            {"field": ".".join(keys), "value": value, "place": place}
            for keys, value, place in places(values, written)
            if place != DEFAULT
        ],
    }


def _faults(named: NamedCell, catalog: Catalog) -> list[str]:
    """Return the faults of the records behind a cell and of its table, with their remedies."""
    ledger = ledger_of(catalog)
    paths = (*named.cell.records, catalog.rendering(named.artifact))
    found = {fault.output: fault for path in paths if (fault := ledger.fault(path))}
    return [fault.remedy(named.target, catalog.snakemake) for fault in found.values()]


def print_origin(origin: Mapping[str, Any], named: NamedCell, catalog: Catalog) -> None:
    """Print what `origin_of` returns for a cell."""
    cell = named.cell
    place = f"{named.target}: {cell.row}, {cell.column}"
    heading(f"{place} ({named.artifact.source}) at scale {origin['scale']}")
    printed, measured = cell.printed, origin["measured"]
    text = with_unit(entry_of(cell).printed.text, cell)
    command = f"{origin['command']}{catalog.profile_hint}"
    tell("printed", f"{text} ({printed.source})" if printed else "no value")
    tell("measured", _numbers(measured, cell) if measured else _not_measured(named, command))
    if origin["published"]:
        tell("published", _numbers(origin["published"], cell))
    if origin["origin"] == "published":
        tell("records", f"{origin['records']}, one record in each line")
    if origin["changed"]:
        tell("changed", origin["changed"])
    for number, (name, digest) in enumerate(origin["data"].items()):
        told = f"SHA-256 {digest} of its decoded images and labels" if digest else "no digest"
        tell("" if number else "data", f"{name}: {told} (as configs/datasets.yaml has it now)")
    for fault in origin["faults"]:
        tell("to correct", fault)
    for number, claim in enumerate(origin["claims"]):
        _print_claim(claim, "" if number else "claims")
    if not origin["claims"]:
        tell("claims", "none uses this cell")
    if cell.records and not (measured and not measured["n_seeds"]):
        tell("one seed by", f"{catalog.snakemake(str(cell.records[0]))}{catalog.profile_hint}")
    if origin["measurements"]:
        _print_measurements(origin["measurements"], origin["origin"])
    if origin["trainings"]:
        _print_trainings(origin["trainings"], origin["origin"])
    if recipe := origin["recipe"]:
        if not origin["trainings"]:  # trainings already end with an empty line
            say("")
        now = " as it is planned now" if origin["origin"] == "published" else ""
        heading(f"Recipe {recipe['name']}{now}: {recipe['folder']}")
        for value in recipe["values"]:
            say(f"{line_of_yaml(value['field'], value['value']):<40}  # {value['place']}")
        say("The other fields have their defaults.")


def _print_claim(claim: Mapping[str, Any], name: str) -> None:
    """Print a claim, its verdict, what it asks, and what was found."""
    standing = standing_of(claim, claim["status"])
    tell(name, f"{claim['id']}, {standing}: {claim['statement']} ({claim['source']})")
    if claim["status"] != "not run":
        tell("", f"Claimed: {told_claim(claim)}.")
    tell("", claim["detail"])


def _numbers(measured: Mapping[str, Any], cell: Cell) -> str:
    """Write a measured value with its spread, its interval and its verdict."""
    if not measured["n_seeds"]:
        return "no value: the measure was taken, and gives none for this cell"
    word = "repetition" if cell.of_hardware else "seed"
    parts = [f"{measured['text']} {cell.unit}".rstrip(), count(measured["n_seeds"], word)]
    if measured["ci_low"] is not None:
        parts.append(format_interval(measured["ci_low"], measured["ci_high"]))
    return ", ".join([*parts, VERDICTS[measured["verdict"]]])


def _not_measured(named: NamedCell, command: str) -> str:
    if not named.cell.records:
        return (
            "nothing at this scale: artifacts.yaml names no measure for this cell, or the scale's "
            "file leaves its recipe out"
        )
    return f"not yet: {command}"


def _print_measurements(measurements: Sequence[Mapping[str, Any]], origin: str) -> None:
    say("")
    first = measurements[0]
    as_published = ", as published" if origin == "published" else ""
    heading(f"Measurement {first['name']}: {first['key']}{as_published}")
    arguments = ", ".join(f"{key}={value}" for key, value in first["args"].items())
    tell("function", first["function"])
    tell("arguments", arguments or "none")
    codes = {own["code"] for own in measurements if own["code"]}
    if (here := first["code_here"]) and codes - {here}:
        tell("code here", here)
    tell("device", ", ".join(dict.fromkeys(own["device"] or "unknown" for own in measurements)))
    tell("records in", str(Path(first["record"]).parent))
    names = [{**own, "record": Path(own["record"]).name} for own in measurements]
    _print_records(names, "not measured", "Measurements")


def _print_trainings(trainings: Sequence[Mapping[str, Any]], origin: str) -> None:
    title = "Trainings, from our published records" if origin == "published" else "Trainings"
    _print_records(trainings, "not trained", title)


def _print_records(records: Sequence[Mapping[str, Any]], missing: str, title: str) -> None:
    """Print a line for each record: its seed, and how it was made; `missing` if there is none."""
    say("")
    rows = []
    for own in records:
        commit = "+".join(map(short_commit, (own["commit"] or "").split("+"))) or "unknown"
        told = [commit, own["code"] or "unknown", _time(own["seconds"])]
        if own["sha256"] is None:
            told = [missing, None, None]
        rows.append([own["record"], str(own["seed"]), *told])
    table(["record", "seed", "commit", "code", "time"], rows, ["time"], title)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


def tell(name: str, text: str) -> None:
    """Print a name and beside it a text, wrapped between words at `WIDTH` characters."""
    lines = textwrap.wrap(text, WIDTH - INDENT, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        say(f"{'' if number else name:<{INDENT}}{line}")
