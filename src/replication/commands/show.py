"""``vitrail show``: what stands behind each cell of a target, and recipes as they resolve."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd
import yaml

from replication.commands.state import runs_behind
from replication.evidence.comparison import YES_NO
from replication.evidence.report import cells_of
from replication.evidence.tables import measured_number, printed_number
from replication.plan.catalog import Artifact, Catalog, Cell, Measurement
from replication.plan.schema import place_of
from vitrail.commands import heading, say, table
from vitrail.errors import VitrailError, did_you_mean

Found = Mapping[Hashable, Any]
"""A cell as its artifact's CSV has it."""


def show(
    catalog: Catalog, target: str | None, recipe: str | None, why: bool, as_json: bool
) -> None:
    """Print every cell of a target: run, measure, measured and printed value; or a recipe.

    Raises:
        VitrailError: neither is given or known, or `why` without a recipe.
    """
    if recipe is not None:
        _show_recipe(catalog, target, recipe, why)
        return
    if why:
        raise VitrailError("--why explains a recipe; add --recipe NAME")
    if target is None:
        raise VitrailError("show needs a target, such as 'all', or --recipe NAME; give one")
    artifacts = catalog.target(target).artifacts
    if as_json:
        say(json.dumps([_record(artifact, catalog) for artifact in artifacts], indent=2))
        return
    for artifact in artifacts:
        _print_artifact(artifact, catalog)
    if runs := runs_behind(artifacts):
        rows = []
        for run in runs:
            seeds, start = ", ".join(map(str, run.seeds)), run.recipe.model.weights_from
            rows.append([run.name, run.recipe.hash, seeds, run.folder, start])
        table(["run", "recipe hash", "seeds", "folder", "starts from"], rows, title="Runs")


def _show_recipe(catalog: Catalog, target: str | None, name: str, why: bool) -> None:
    """Print a recipe of the target's papers, or of any, named [PAPER/]RECIPE or by its folder."""
    paper, _, recipe = name.rpartition("/")
    papers = {one.paper for one in catalog.target(target).artifacts} if target else catalog.papers
    known = {
        (one, known): catalog.paper(one).run(known)
        for one in sorted(papers)
        for known in catalog.paper(one).recipes
        if not paper or one == paper
    }
    # Recipes that share a run are found by their own names, and by the one of its folder.
    found = {
        one: (called if recipe == called else run.name, run)
        for (one, called), run in known.items()
        if recipe in (called, run.folder.name)
    }
    if not found:
        where = f"'{target}'" if target else f"scale '{catalog.scale.name}'"
        names = [f"{one}/{called}" if paper else called for one, called in known]
        raise VitrailError(f"{where} has no recipe '{name}'{did_you_mean(name, names)}")
    if len(found) > 1:
        names = [f"{one}/{called}" for one, (called, _) in found.items()]
        raise VitrailError(f"several papers have a recipe '{name}': name {' or '.join(names)}")
    called, run = next(iter(found.values()))
    say(f"# {run.paper}, recipe {called} at scale {catalog.scale.name}: {run.folder}")
    values = run.recipe.model_dump(mode="json")
    if why:
        for line, place in _explained(values, catalog.paper(run.paper).values(called)):
            say(f"{line:<40}  # {place}" if place else line)
    else:
        say(yaml.safe_dump(values, sort_keys=False).rstrip())


def _explained(
    values: Mapping[str, Any], written: Mapping[str, Any], indent: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a recipe in YAML, and where each value was written."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{yaml.safe_dump(key).splitlines()[0]}:", ""
            yield from _explained(value, written.get(key) or {}, f"{indent}  ")
        else:
            line = yaml.safe_dump({key: value}, default_flow_style=True, width=math.inf)
            yield f"{indent}{line.strip()[1:-1]}", place_of(written, key) or "default"


def _print_artifact(artifact: Artifact, catalog: Catalog) -> None:
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
    header = [artifact.row_header or "row", "column", "measure", "run", "measured", "printed"]
    rows = [_line(cell, found.get((cell.row, cell.column))) for cell in artifact.cells]
    table([*header, "place"], rows, right=["measured", "printed"])


def _record(artifact: Artifact, catalog: Catalog) -> dict[str, Any]:
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
    cells = cells_of(artifact, catalog, catalog.results).to_dict("records")
    return {(cell["row"], cell["column"]): cell for cell in cells}


def _line(cell: Cell, found: Found | None) -> list[object]:
    one = cell.measurement
    measure = [f"{one.name}: {cell.key}", _subject(one)] if one else ["not measured", ""]
    number = measured_number(found, cell.digits)
    measured = " ± ".join(filter(None, [number.value, number.spread])) + number.mark
    place = cell.printed.source if cell.printed else ""
    return [cell.row, cell.column, *measure, measured, _printed(cell), place]


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
