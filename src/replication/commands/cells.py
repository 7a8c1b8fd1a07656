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

Found = Mapping[Hashable, Any]
"""A cell as its artifact's CSV has it."""


def print_artifact(artifact: Artifact, catalog: Catalog, long: bool) -> None:
    """Print a line for each cell; with `long` also its measure, its run, and its printed place."""
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
    header = [artifact.row_header or "row", "column", "measured", "printed", "verdict"]
    rows = []
    for cell in artifact.cells:
        rows.append(_line(cell, found.get((cell.row, cell.column), {})))
        if long:
            rows[-1] += _origin(cell)
    if long:
        header += ["measure", "run", "place"]
    table(header, rows, right=["measured", "printed"])


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


def _line(cell: Cell, found: Found) -> list[object]:
    number = measured_number(found or None, cell.digits)
    measured = " ± ".join(filter(None, [number.value, number.spread])) + number.mark
    return [cell.row, cell.column, measured, _printed(cell), found.get("verdict")]


def _origin(cell: Cell) -> list[object]:
    """Where the cell's two numbers come from: its measure, its run, and the place in the paper."""
    measured = cell.measurement
    measure = f"{measured.name}: {cell.key}" if measured else "not measured"
    run = _subject(measured) if measured else None
    return [measure, run, cell.printed.source if cell.printed else None]


def _subject(measurement: Measurement) -> str:
    """The folder of the run that is measured; in brackets where it need not be trained."""
    if measurement.run:
        return measurement.run.folder.name
    return f"({measurement.described.folder.name})" if measurement.described else ""


def _printed(cell: Cell) -> str:
    """The printed value with the paper's own decimals, its std and its unit, or yes or no."""
    if cell.printed is None:
        return ""
    value, std = cell.printed.value, cell.printed.std
    text = printed_number(value, std, cell.unit, cell.digits).text
    return text if isinstance(value, str) or cell.unit == YES_NO else f"{text} {cell.unit}".rstrip()
