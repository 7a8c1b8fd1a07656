"""``vitrail verify``: results made here against the published ones."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replication.cli.options import TARGETS, Results, Runs, Scale, artifacts_of, open_catalog
from vitrail.commands import say
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError


@command()
def verify(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGETS]", help=f"{TARGETS} Without any: all.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Check what is published by itself: render every table again from its records.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE",
            help="Compare with what that scale published, where its recipes are the same.",
        ),
    ] = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Compare your results with the published ones.

    Cell by cell and claim by claim, of all artifacts or of some. Exits with status 1 when cells are
    missing, altered, or further from the published ones than chance explains (docs/reproduce.md
    says how this is judged), and when a claim that held as published fails. With --published
    nothing needs to be trained here. With --against your numbers are compared with those of another
    scale under other seeds, such as study's; exits with status 1 when they differ more than chance
    explains.

    \b
    vitrail verify
    vitrail verify variance_table2
    vitrail verify --published
    vitrail verify --against study
    """
    from replication.publishing.compare import (
        compare_all,
        compare_with_scale,
        print_beside,
        print_faults,
        print_outcome,
        published_faults,
        record,
        told_published,
    )

    catalog = open_catalog(scale, runs, results)
    if against and published:
        raise VitrailError(
            "--against compares your numbers with another scale's, which --published does not "
            "read: give them in commands of their own"
        )
    if targets and (published or against):
        raise VitrailError(
            "--published and --against check all tables and figures at once; leave out "
            f"{', '.join(targets)}"
        )
    if published:
        faults = list(published_faults(catalog))
        if not (faults or as_json):
            say(told_published(catalog))
        print_faults(faults, as_json)
        raise typer.Exit(bool(faults))
    if against:
        outcome = compare_with_scale(catalog, against)
    else:
        outcome = compare_all(catalog, artifacts_of(catalog, targets) if targets else None)
    if as_json:
        say(json.dumps({"scale": catalog.scale.name, **record(outcome)}, indent=2))
    elif against:
        print_beside(outcome, catalog.scale.name, against)
    else:
        print_outcome(outcome)
    raise typer.Exit(bool(outcome.faults))
