"""``vitrail register``: fix the claims of a scale before its runs begin."""

from __future__ import annotations

from typing import Annotated

import typer

from replication.cli.options import Scale, open_catalog
from vitrail.commands import count, say
from vitrail.commands.app import command


@command()
def register(
    papers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAPERS", help="Folders of configs/papers/.", show_default="all of them"
        ),
    ] = None,
    scale: Scale = None,
) -> None:
    """Fix a scale's claims before its runs begin.

    Writes a digest of each claim's margin, recipes, datasets and seeds into registrations.csv of
    its paper, with the time.

    A claim that changes afterwards, or whose models were trained before, is exploratory in the
    report; the others are confirmatory. What is registered and unchanged keeps its time.

    \b
    vitrail register --scale laptop
    """
    from replication.plan import preregistration as registration

    catalog = open_catalog(scale)
    for name in papers or catalog.papers:
        paper = catalog.paper(name)
        new = registration.register(paper.folder, catalog.scale.name, paper.digests)
        place = paper.folder / registration.REGISTRATIONS
        commit = "; commit the file before training" if new else ""
        say(f"{place}: {count(len(new), 'claim')} new or changed{commit}")
