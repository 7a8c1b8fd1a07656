"""``vitrail why``: where a cell's number comes from, and what decided a claim."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replication.cli.options import Results, Runs, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError


@command()
def why(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A table or figure (variance_table5), or a claim: its id in report.md, or "
            "PAPER/ID.",
        ),
    ],
    row: Annotated[
        str | None,
        typer.Argument(
            metavar="ROW",
            help="The row's label, without the dash before rows of ours; its group may be left "
            "out where no other has it.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Argument(metavar="COLUMN", help="The column's label, likewise.", show_default=False),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Tell where a number comes from, or what decided a claim.

    Prints the printed, the measured and the published value, the claims that use the cell, the
    measurement, the trainings, and the recipe with the file and line of each value. A claim has its
    verdict, the difference that it asks for, and the measured one with its 95 % interval. Where the
    cell is not measured here, measurement, trainings and claims are those that are published.

    Of a claim, prints its verdict likewise, the cells that it compares, the reason why it is not
    tested and what would change that, and its verdicts as published at the other scales.

    \b
    vitrail why variance_table5 "Mixup 0.2, Cutmix 1.0" ViT-S/16
    vitrail why mvitv2-accuracy-circular-cifar10
    """
    from replication.cli.explain_claim import explain, find_claim, print_explained
    from replication.report.cell_provenance import find_cell, origin_of, print_origin

    catalog = open_catalog(scale, runs, results)
    if row is None and target not in catalog.targets:
        explained = explain(*find_claim(catalog, target), catalog)
        if as_json:
            say(json.dumps(explained, indent=2))
        else:
            print_explained(explained, catalog)
        return
    catalog.target(target)  # must exist, before its rows are asked for
    if row is None or column is None:
        listing = f"vitrail show {target}" + (f" --scale {scale}" if scale else "")
        raise VitrailError(f"why needs a row and a column of {target}; `{listing}` lists them")
    cell = find_cell(catalog, target, row, column)
    origin = origin_of(cell, catalog)
    if as_json:
        say(json.dumps(origin, indent=2))
    else:
        print_origin(origin, cell, catalog)
