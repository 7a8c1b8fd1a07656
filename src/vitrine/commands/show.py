"""``vitrine show``: what stands behind each cell of a target, and recipes as they resolve."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd
import yaml

from vitrine.artifacts.comparison import YES_NO
from vitrine.artifacts.report import cells_of
from vitrine.artifacts.tables import measured_number, printed_number
from vitrine.commands import heading, say, table
from vitrine.commands.state import runs_behind
from vitrine.errors import VitrineError, did_you_mean
from vitrine.plan.catalog import Artifact, Catalog, Cell, Measurement
from vitrine.plan.schema import place_of


def show(catalog: Catalog, target: str, *, as_json: bool = False) -> None:
    """Print every cell of a target: run, measure, measured and printed value and its place."""
    artifacts = catalog.target(target).artifacts
    if as_json:
        say(json.dumps([_record(artifact, catalog) for artifact in artifacts], indent=2))
        return
    for artifact in artifacts:
        _print_artifact(artifact, catalog)
    if runs := runs_behind(artifacts):
        heading("Runs")
        rows = []
        for run in runs:
            seeds, start = ", ".join(map(str, run.seeds)), run.recipe.model.weights_from
            rows.append([run.name, run.recipe.hash, seeds, run.folder, start])
        table(["run", "recipe hash", "seeds", "folder", "starts from"], rows)


def show_recipe(catalog: Catalog, target: str | None, name: str, *, why: bool = False) -> None:
    """Print a recipe of the target's papers, or of any, as it resolves at this scale.

    Its name is RECIPE or PAPER/RECIPE; it may be that of its run's folder, with the hash. With
    `why`, beside each value stand the file and the line that set it, or "default".

    Raises:
        VitrineError: none of the papers has such a recipe at this scale, or several have.
    """
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
        raise VitrineError(f"{where} has no recipe '{name}'{did_you_mean(name, names)}")
    if len(found) > 1:
        names = [f"{one}/{called}" for one, (called, _) in found.items()]
        raise VitrineError(f"several papers have a recipe '{name}': name {' or '.join(names)}")
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
            yield f"{indent}{_in_one_line(key, {}).removesuffix(' {}')}", ""
            yield from _explained(value, written.get(key) or {}, f"{indent}  ")
        else:
            yield f"{indent}{_in_one_line(key, value)}", place_of(written, key) or "default"


def _in_one_line(key: str, value: Any) -> str:
    return yaml.safe_dump({key: value}, default_flow_style=True, width=math.inf).strip()[1:-1]


def _print_artifact(artifact: Artifact, catalog: Catalog) -> None:
    heading(f"{artifact.paper}_{artifact.name}: {artifact.title} ({artifact.source})")
    say(artifact.caption)
    if artifact.note:
        say(artifact.note)
    say(f"Files: {', '.join(map(str, catalog.files(artifact)))}")
    say()
    if artifact.cells:
        found = _measured_cells(artifact, catalog)
        if not found:
            target = f"{artifact.paper}_{artifact.name}"
            say(f"Not made here yet: snakemake {target} --config scale={catalog.scale.name}")
            say()
        header = [artifact.row_header or "row", "column", "measure", "run", "measured", "printed"]
        rows = [_line(cell, found.get((cell.row, cell.column))) for cell in artifact.cells]
        table([*header, "place"], rows, right=["measured", "printed"])
    else:
        table(["measure", "run"], [[m.name, _subject(m)] for m in artifact.measurements])


def _record(artifact: Artifact, catalog: Catalog) -> dict[str, Any]:
    """What is printed of an artifact, as numbers."""
    found = _measured_cells(artifact, catalog)
    return {
        "target": f"{artifact.paper}_{artifact.name}",
        "title": artifact.title,
        "source": artifact.source,
        "files": [str(path) for path in catalog.files(artifact)],
        "cells": [
            {
                "row": cell.row,
                "column": cell.column,
                "unit": cell.unit,
                "measure": cell.measurement.name if cell.measurement else None,
                "run": _subject(cell.measurement) if cell.measurement else None,
                **{
                    name: None if pd.isna(value) else value
                    for name in ("measured", "std", "n_seeds", "verdict")
                    for value in [found.get((cell.row, cell.column), {}).get(name)]
                },
                "printed": cell.printed.value if cell.printed else None,
                "printed_std": cell.printed.std if cell.printed else None,
                "place": cell.printed.source if cell.printed else None,
            }
            for cell in artifact.cells
        ],
    }


def _measured_cells(
    artifact: Artifact, catalog: Catalog
) -> dict[tuple[str, str], Mapping[Hashable, Any]]:
    """The tidy cells of an artifact that is built, by row and column."""
    cells = cells_of(artifact, catalog, catalog.results).to_dict("records")
    return {(cell["row"], cell["column"]): cell for cell in cells}


def _line(cell: Cell, found: Mapping[Hashable, Any] | None) -> list[object]:
    measurement, printed = cell.measurement, cell.printed
    measure = [f"{measurement.name}: {cell.key}", _subject(measurement)] if measurement else []
    number = measured_number(found, cell.digits)
    measured = " ± ".join(filter(None, [number.value, number.spread])) + number.mark
    place = printed.source if printed else ""
    return [
        cell.row,
        cell.column,
        *(measure or ["not measured", ""]),
        measured,
        _printed(cell),
        place,
    ]


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
