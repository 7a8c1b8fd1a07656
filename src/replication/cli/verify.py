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
            metavar="TARGETS",
            help=f"{TARGETS} Without any: all that are made here.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    scale: Scale = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Check what is published by itself, without targets: render every table "
            "and the report again from the records.",
        ),
    ] = False,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Compare your results with the published ones.

    Cell by cell and claim by claim, of all tables and figures that are made here, or of some. Says
    how many of the published ones are not made here. Exits with status 1 when cells are missing,
    altered, or further from the published ones than chance explains (docs/reproduce.md says how
    this is judged), and when a claim that held as published fails. With --published nothing needs
    to be trained here.

    \b
    vitrail verify
    vitrail verify variance_table2
    vitrail verify --published
    """
    from replication.publishing.compare import (
        compare_all,
        print_faults,
        print_outcome,
        published_faults,
        record,
        summary_faults,
        told_published,
    )

    catalog = open_catalog(scale, runs, results)
    if targets and published:
        raise VitrailError(
            "--published checks all tables and figures at once; leave out " + ", ".join(targets)
        )
    if published:
        faults = [*published_faults(catalog)] or [*summary_faults(open_catalog(scale))]
        if not (faults or as_json):
            say(told_published(catalog))
        print_faults(faults, as_json)
        raise typer.Exit(bool(faults))
    outcome = compare_all(catalog, artifacts_of(catalog, targets) if targets else None)
    if as_json:
        say(json.dumps({"scale": catalog.scale.name, **record(outcome)}, indent=2))
    else:
        print_outcome(outcome)
    raise typer.Exit(bool(outcome.faults))
