"""``vitrail publish``: results become the committed ones."""

from __future__ import annotations

from typing import Annotated

import typer

from replication.commands.options import Results, Runs, Scale, open_catalog
from vitrail.commands.app import command


@command()
def publish(
    scale: Scale = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete published results that are not built here.")
    ] = False,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Copy results to results/published/ after checking them.

    What is rendered must be what its measurements give, and these must come from the weights and
    the code that are here, at clean commits.

    \b
    vitrail publish --scale laptop
    """
    from replication.commands import publication

    publication.publish(open_catalog(scale, runs, results), prune)
