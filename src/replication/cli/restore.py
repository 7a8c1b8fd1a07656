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

    Writes the published records of trainings and measurements to the folder of runs. snakemake
    then makes only what is new, and vitrail publish publishes old and new results together. A
    training that was begun or made here is kept. One whose recipe, data or measurements are not
    published as they are planned now is not restored. Weights are not published, so a restored
    model cannot be measured in a new way.

    \b
    vitrail restore position --scale small
    """
    from replication.publishing import restore as restoration

    catalog = open_catalog(scale)
    restored = restoration.restore(catalog, artifacts_of(catalog, targets))
    kinds = Counter(record.node.kind for record in restored)
    told = " and ".join(count(kinds[kind], kind) for kind in ("training", "measurement"))
    say(f"Restored {told} to {catalog.runs_root}/. The rest: {catalog.snakemake(*targets)}")
