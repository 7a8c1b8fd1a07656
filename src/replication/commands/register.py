"""``vitrail register``: fix the claims of a scale before its runs begin."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from replication.commands.options import Scale, open_catalog
from replication.commands.power import Known
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
    known: Known = "study",
) -> None:
    """Fix a scale's claims before its runs begin.

    Writes claims, margins, recipes, datasets and seeds into claims.lock, with the time.

    A claim that changes afterwards, or whose models were trained before, is exploratory in the
    report; the others are confirmatory. What is registered and unchanged keeps its time.

    \b
    vitrail register --scale study
    """
    from replication.commands.power import powers
    from replication.plan.registration import LOCK
    from replication.plan.registration import register as lock

    catalog = open_catalog(scale)
    for name in papers or catalog.papers:
        paper = catalog.paper(name)
        sees = {
            claim.claim.partition("/")[2]: None if math.isnan(claim.sees) else round(claim.sees, 4)
            for claim in powers(catalog, paper, known)
        }
        new = lock(paper.folder, catalog.scale.name, paper.digests, sees)
        say(f"{paper.folder / LOCK}: {count(len(new), 'claim')} new or changed")
