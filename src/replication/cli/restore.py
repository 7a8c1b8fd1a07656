"""``vitrail restore``: what is published counts as made."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from replication.cli.options import TARGETS, Scale, artifacts_of, open_catalog
from vitrail.commands import count, say
from vitrail.commands.app import command


@command()
def restore(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGETS", help=TARGETS, show_default=False)
    ],
    scale: Scale = None,
) -> None:
    """Restore published records, to extend published tables.

    Writes the published records of trainings and measurements to the folder of runs, unless they
    are made here or are planned differently now. Then snakemake makes what is new alone, and
    vitrail publish accepts all together. Weights are not published: a new measurement of a restored
    model needs a new training of it.

    \b
    vitrail restore position --scale small
    """
    from replication.publishing import restore as restoration

    catalog = open_catalog(scale)
    restored = restoration.restore(catalog, artifacts_of(catalog, targets))
    kinds = Counter(record.node.kind for record in restored)
    told = " and ".join(count(kinds[kind], kind) for kind in ("training", "measurement"))
    say(f"Restored {told} to {catalog.runs_root}/. The rest: {catalog.snakemake(*targets)}")
