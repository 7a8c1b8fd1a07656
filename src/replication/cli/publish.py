"""``vitrail publish``: results become the committed ones."""

from __future__ import annotations

from typing import Annotated

import typer

from replication.cli.options import Results, Runs, Scale, open_catalog
from vitrail.commands.app import command
from vitrail.errors import VitrailError


@command()
def publish(
    scale: Scale = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete published results that are not built here.")
    ] = False,
    only_render: Annotated[
        bool,
        typer.Option(
            "--only-render",
            help="Render what is published again from its records, after a change of the code that "
            "draws or of captions; no run is needed.",
        ),
    ] = False,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Copy results to results/published/ after checking them.

    What is rendered must be what its measurements give, and these must come from the weights and
    the code that are here, at clean commits.

    \b
    vitrail publish --scale laptop
    vitrail publish --scale laptop --only-render
    """
    from replication.publishing import publish as publication

    catalog = open_catalog(scale, runs, results)
    if only_render and prune:
        raise VitrailError("--only-render keeps all that is published: give it without --prune")
    if only_render:
        publication.render_again(catalog)
    else:
        publication.publish(catalog, prune)
