"""``vitrail plan``: what a target will take, before anything is launched."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replication.cli.options import (
    TARGETS,
    Data,
    PricedDevice,
    Results,
    Runs,
    Scale,
    artifacts_of,
    open_catalog,
)
from vitrail.commands import say
from vitrail.commands.app import Json, command


@command()
def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGETS",
            help=TARGETS,
        ),
    ],
    as_json: Json = False,
    scale: Scale = None,
    device: PricedDevice = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Estimate steps, GPU hours, disk and downloads of targets.

    Nothing is launched.

    \b
    vitrail plan variance_table5 --scale full
    vitrail plan octic_published variance_table3 --scale full
    vitrail plan all --scale full --device h200
    """
    from replication.pricing.estimate import Estimate
    from replication.pricing.speed import costs_on

    catalog = open_catalog(scale, runs, results, data)
    artifacts = artifacts_of(catalog, targets)
    catalog.require_devices(artifacts)
    name, costs = costs_on(catalog, device)
    extended = catalog.extended()
    runs_of_all = extended.runs_of(*artifacts_of(extended, targets))
    ours = [run for run in runs_of_all if extended.paper(run.paper).is_ours(run.name)]
    estimate = Estimate(catalog, artifacts, costs, ours)
    if as_json:
        asked = {"targets": targets, "scale": catalog.scale.name, "device": name}
        say(json.dumps({**asked, **estimate.figures()}, indent=2))
        return
    say(f"{', '.join(targets)} at scale {catalog.scale.name}")
    say(f"The whole scale: {catalog.scale.description}", "")
    estimate.print_all()
