"""Print the cells of an artifact, for `vitrail show`: measured beside printed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pandas as pd

from replication.claims.comparison import VERDICTS, YES_NO
from replication.plan.catalog import Catalog
from replication.records.specs import Artifact, Cell, Measurement, Run, by_recipe
from replication.report.formatting import Entry, table_of
from replication.report.ledger import ledger_of, published_folder
from replication.report.progress import is_rendered
from replication.report.results import cells_of
from vitrail.commands import heading, say, table


def print_artifact(artifact: Artifact, catalog: Catalog, long: bool) -> None:
    """Print a line for each cell, in one table for each group of columns.

    If the artifact is not made here, its numbers are the published ones, if there are any. With
    `long`, each cell has two lines instead: its numbers, and their origin.
    """
    target = artifact.target
    heading(f"{target}: {artifact.title} ({artifact.source})")
    say(artifact.caption, *filter(None, [artifact.note]))
    say(f"Files: {', '.join(map(str, catalog.files(artifact)))}", "")
    if not artifact.cells:
        measured = {(own.name, _subject(own)) for own in catalog.measurements_of(artifact)}
        table(["measure", "run"], sorted(measured))
        return
    cells, source = cells_of(artifact, catalog.results), "measured"
    if is_rendered(artifact, catalog):
        if fault := ledger_of(catalog).fault(catalog.rendering_node(artifact).output):
            say(f"To correct: {fault.remedy(target, catalog.snakemake)}", "")
    elif cells.empty:
        say(f"Not made here yet: {catalog.snakemake(target)}{catalog.profile_hint}")
        folder = published_folder(catalog)
        cells = cells_of(artifact, folder)
        if not cells.empty:
            source = "published"
            path = folder / artifact.paper / f"{artifact.name}.csv"
            say(f"The numbers below are the published ones: {path} and the files beside it")
        say("")
    numbers = table_of(artifact, cells)
    lines = [(cell, numbers.entry(cell.row, cell.column)) for cell in artifact.cells]
    if long:
        for cell, entry in lines:
            _print_in_full(cell, entry, source, catalog)
        say("")
        return
    numbers_of = (source, "printed")
    header = [artifact.row_header or "row", "column", *numbers_of, "verdict"]
    columns = {column.full_label: column for column in artifact.columns}
    groups: dict[str, list[list[str]]] = {}
    for cell, entry in lines:
        column = columns[cell.column]
        texts = [entry.measured.text, with_unit(entry.printed.text, cell), _verdict(entry)]
        groups.setdefault(column.group or "", []).append([cell.row, column.label, *texts])
    for group, rows in groups.items():
        table(header, rows, right=numbers_of, title=group)
    if any("±" in entry.measured.text for _, entry in lines):
        say("± is the sample standard deviation over seeds (of timings, over repetitions).")


def print_runs(runs: Iterable[Run]) -> None:
    """Print the folder of each recipe's runs, their seeds, and the recipe that they start from."""
    rows = [
        [
            seeds[0].home,
            ", ".join(str(run.seed) for run in seeds),
            seeds[0].recipe.model.weights_from,
        ]
        for seeds in by_recipe(runs)
    ]
    if rows:
        table(["folder", "seeds", "starts from"], rows, title="Runs")


def record(artifact: Artifact, catalog: Catalog) -> dict[str, Any]:
    """Return what is printed of an artifact as plain data."""
    cells = cells_of(artifact, catalog.results).to_dict("records")
    found = {(cell["row"], cell["column"]): cell for cell in cells}
    return {
        "target": artifact.target,
        "title": artifact.title,
        "source": artifact.source,
        "files": [str(path) for path in catalog.files(artifact)],
        "cells": [
            _cell(cell, found.get((cell.row, cell.column), {}), catalog) for cell in artifact.cells
        ],
    }


def _cell(cell: Cell, found: Mapping[Hashable, Any], catalog: Catalog) -> dict[str, Any]:
    measurement = catalog.measurement_of(cell)
    measured = {name: found.get(name) for name in ("measured", "std", "n_seeds", "verdict")}
    return {
        "row": cell.row,
        "column": cell.column,
        "unit": cell.unit,
        "measure": measurement.name if measurement else None,
        "run": _subject(measurement) if measurement else None,
        **{name: None if pd.isna(value) else value for name, value in measured.items()},
        "printed": cell.printed.value if cell.printed else None,
        "printed_std": cell.printed.std if cell.printed else None,
        "place": cell.printed.source if cell.printed else None,
    }


def _print_in_full(cell: Cell, entry: Entry, source: str, catalog: Catalog) -> None:
    """Print a cell's numbers, and below them its measure, its run, and its place in the paper."""
    numbers = {source: entry.measured.text, "printed": with_unit(entry.printed.text, cell)}
    told = [f"{name} {number}" for name, number in numbers.items() if number]
    verdict = filter(None, [_verdict(entry)])
    say(f"{cell.row}, {cell.column}: {', '.join([*told, *verdict]) or 'no number'}")
    origin = []
    if measurement := catalog.measurement_of(cell):
        subject = _subject(measurement)
        origin.append(f"{measurement.name}: {cell.key}" + (subject and f" of {subject}"))
    if cell.printed:
        origin.append(cell.printed.source)
    say(f"    {'; '.join(origin) or 'not measured'}")


def _verdict(entry: Entry) -> str:
    """Return the verdict in words; "" for a cell without numbers."""
    words: Mapping[str, str] = {str(verdict): text for verdict, text in VERDICTS.items()}
    return words.get(entry.verdict, "")


def _subject(measurement: Measurement) -> str:
    """Return the folder of the measured run, in brackets if it need not be trained; else ""."""
    if measurement.run:
        return measurement.run.home.name
    return f"({measurement.described.home.name})" if measurement.described else ""


def with_unit(printed: str, cell: Cell) -> str:
    """Return the text of a printed number with its unit; words and answers get no unit."""
    number = cell.printed is not None and not isinstance(cell.printed.value, str)
    return f"{printed} {cell.unit}".rstrip() if number and cell.unit != YES_NO else printed
