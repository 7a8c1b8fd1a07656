"""``vitrail verify``: results made here against the published ones."""

from __future__ import annotations

import json

import typer

from replication.commands.options import Results, Runs, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import Json, command


@command()
def verify(
    as_json: Json = False, scale: Scale = None, runs: Runs = None, results: Results = None
) -> None:
    """Compare your results with the published ones.

    Cell by cell and claim by claim. Exits with status 1 when cells are missing, altered, or differ
    by more than their spread over seeds explains, and when a claim that held as published fails.

    \b
    vitrail verify
    vitrail verify --scale gpu
    """
    from replication.commands.agreement import compare_all, print_outcome, record

    catalog = open_catalog(scale, runs, results)
    outcome = compare_all(catalog)
    if as_json:
        say(json.dumps({"scale": catalog.scale.name, **record(outcome)}, indent=2))
    else:
        print_outcome(outcome)
    raise typer.Exit(bool(outcome.faults))
