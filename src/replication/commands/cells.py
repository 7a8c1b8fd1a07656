"""The cells of an artifact as `vitrail show` prints them: measured beside printed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pandas as pd

from replication.evidence.comparison import YES_NO
from replication.evidence.report import cells_of
from replication.evidence.tables import measured_number, printed_number
from replication.plan.catalog import Artifact, Catalog, Cell, Measurement, Run
from vitrail.commands import heading, say, table

NUMBERS = ("measured", "printed")
Found = Mapping[Hashable, Any]
"""A cell as its artifact's CSV has it."""


def print_artifact(artifact: Artifact, catalog: Catalog, long: bool) -> None:
    """Print a line for each cell, a table for each group of columns.

    With `long` each cell has two lines instead: its numbers, and where they come from.
    """
    target = f"{artifact.paper}_{artifact.name}"
    heading(f"{target}: {artifact.title} ({artifact.source})")
    say(artifact.caption, *filter(None, [artifact.note]))
    say(f"Files: {', '.join(map(str, catalog.files(artifact)))}", "")
    if not artifact.cells:
        table(["measure", "run"], [[m.name, _subject(m)] for m in artifact.measurements])
        return
    found = _measured_cells(artifact, catalog)
    if not found:
        say(f"Not made here yet: snakemake {target} --config scale={catalog.scale.name}", "")
    if long:
        for cell in artifact.cells:
            _print_in_full(cell, found)
        say("")
        return
    header = [artifact.row_header or "row", "column", *NUMBERS, "verdict"]
    columns = {column.full_label: column for column in artifact.columns}
    groups: dict[str, list[list[str]]] = {}
    for cell in artifact.cells:
        column = columns[cell.column]
        groups.setdefault(column.group or "", []).append(_line(cell, column.label, found))
    for group, lines in groups.items():
        table(header, lines, right=NUMBERS, title=group)


def print_runs(runs: Iterable[Run]) -> None:
    """Print the folder of each run, its seeds, and the run whose weights it starts from."""
    rows = [
        [run.folder, ", ".join(map(str, run.seeds)), run.recipe.model.weights_from] for run in runs
    ]
    if rows:
        table(["folder", "seeds", "starts from"], rows, title="Runs")


def record(artifact: Artifact, catalog: Catalog) -> dict[str, Any]:
    """What is printed of an artifact, as numbers."""
    found = _measured_cells(artifact, catalog)
    return {
        "target": f"{artifact.paper}_{artifact.name}",
        "title": artifact.title,
        "source": artifact.source,
        "files": [str(path) for path in catalog.files(artifact)],
        "cells": [_cell(one, found.get((one.row, one.column), {})) for one in artifact.cells],
    }


def _cell(cell: Cell, found: Found) -> dict[str, Any]:
    measured = {name: found.get(name) for name in ("measured", "std", "n_seeds", "verdict")}
    return {
        "row": cell.row,
        "column": cell.column,
        "unit": cell.unit,
        "measure": cell.measurement.name if cell.measurement else None,
        "run": _subject(cell.measurement) if cell.measurement else None,
        **{name: None if pd.isna(value) else value for name, value in measured.items()},
        "printed": cell.printed.value if cell.printed else None,
        "printed_std": cell.printed.std if cell.printed else None,
        "place": cell.printed.source if cell.printed else None,
    }


def _measured_cells(artifact: Artifact, catalog: Catalog) -> dict[tuple[str, str], Found]:
    """The tidy cells of an artifact that is built, by row and column."""
    cells = cells_of(artifact, catalog.results).to_dict("records")
    return {(cell["row"], cell["column"]): cell for cell in cells}


def _line(cell: Cell, column: str, cells: Mapping[tuple[str, str], Found]) -> list[str]:
    found = cells.get((cell.row, cell.column), {})
    measured = measured_text(found or None, cell)
    return [cell.row, column, measured, printed_text(cell), str(found.get("verdict", ""))]


def _print_in_full(cell: Cell, cells: Mapping[tuple[str, str], Found]) -> None:
    """Print a cell's numbers, and below them its measure, its run, and its place in the paper."""
    row, column, measured, printed, verdict = _line(cell, cell.column, cells)
    numbers = {"measured": measured, "printed": printed}
    told = [f"{name} {number}" for name, number in numbers.items() if number]
    say(f"{row}, {column}: {', '.join([*told, *filter(None, [verdict])]) or 'no number'}")
    origin = []
    if cell.measurement:
        subject = _subject(cell.measurement)
        origin.append(f"{cell.measurement.name}: {cell.key}" + (subject and f" of {subject}"))
    if cell.printed:
        origin.append(cell.printed.source)
    say(f"    {'; '.join(origin) or 'not measured'}")


def _subject(measurement: Measurement) -> str:
    """The folder of the run that is measured; in brackets where it need not be trained."""
    if measurement.run:
        return measurement.run.folder.name
    return f"({measurement.described.folder.name})" if measurement.described else ""


def measured_text(found: Found | None, cell: Cell) -> str:
    """The measured value with its spread over seeds, and the mark of its verdict."""
    number = measured_number(found, cell.digits)
    return " ± ".join(filter(None, [number.value, number.spread])) + number.mark


def printed_text(cell: Cell) -> str:
    """The printed value with the paper's own decimals, its std and its unit, or yes or no."""
    if cell.printed is None:
        return ""
    value, std = cell.printed.value, cell.printed.std
    text = printed_number(value, std, cell.unit, cell.digits).text
    return text if isinstance(value, str) or cell.unit == YES_NO else f"{text} {cell.unit}".rstrip()
