"""``vitrail show``: what is behind each cell of a target, and recipes as they resolve."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replication.cli.options import Results, Runs, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError


@command()
def show(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="A table or figure (variance_table5), a paper (variance), or all.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Print this recipe as YAML: NAME, PAPER/NAME or its run's folder.",
        ),
    ] = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Beside each value of the recipe, name the line that sets it.",
        ),
    ] = False,
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="Show each cell's measure, run and place in the paper, and all runs."
        ),
    ] = False,
    as_json: Json = False,
    scale: Scale = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Show measured beside printed values, or a recipe.

    A line for each cell of the target's tables and figures: its measured value, the value that the
    paper prints, and whether they agree.

    \b
    vitrail show variance_table5
    vitrail show variance_table5 --scale full --long
    vitrail show --recipe variance/vit_s-mixup0.0-cutmix1.0 --why
    """
    from replication.report.print_recipe import print_recipe
    from replication.report.print_table import print_artifact, print_runs, record

    catalog = open_catalog(scale, runs, results)
    if recipe is not None:
        if target or long or as_json:
            raise VitrailError(
                "--recipe shows one recipe (NAME or PAPER/NAME); give it without a target, --long "
                "and --json"
            )
        print_recipe(catalog, recipe, why)
        return
    if why:
        raise VitrailError("--why explains a recipe; add --recipe NAME")
    if target is None:
        raise VitrailError("show needs a target, such as 'all', or --recipe NAME; give one")
    artifacts = catalog.target(target).artifacts
    if as_json:
        say(json.dumps([record(artifact, catalog) for artifact in artifacts], indent=2))
        return
    for artifact in artifacts:
        print_artifact(artifact, catalog, long)
    if long:
        print_runs(catalog.runs_of(*artifacts))
