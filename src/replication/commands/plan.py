"""``vitrail plan``: what a target will take, before anything is launched."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replication.commands.options import Data, PricedDevice, Results, Runs, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import Json, command
from vitrail.errors import VitrailError


@command()
def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGETS",
            help="Tables or figures (variance_table5), papers (variance), or all.",
        ),
    ],
    as_json: Json = False,
    scale: Scale = None,
    device: PricedDevice = None,
    data: Data = None,
    runs: Runs = None,
    results: Results = None,
) -> None:
    """Estimate nodes, GPU hours, disk and downloads of targets.

    Nothing is launched.

    \b
    vitrail plan variance_table5 --scale full
    vitrail plan octic_published variance_table3 --scale full
    vitrail plan all --scale full --device h200
    """
    from replication.commands.cost import costs_on
    from replication.commands.estimate import Estimate
    from replication.commands.state import runs_behind

    catalog = open_catalog(scale, runs, results, data)
    named = [artifact for target in targets for artifact in catalog.target(target).artifacts]
    artifacts = list({(artifact.paper, artifact.name): artifact for artifact in named}.values())
    if not artifacts:
        raise VitrailError(
            f"{', '.join(targets)} has no table or figure at scale '{catalog.scale.name}'; choose "
            "another target or another --scale"
        )
    name, costs = costs_on(catalog, device)
    estimate = Estimate(catalog, artifacts, runs_behind(artifacts), costs)
    if as_json:
        asked = {"targets": targets, "scale": catalog.scale.name, "device": name}
        say(json.dumps({**asked, **estimate.figures()}, indent=2))
        return
    say(f"{', '.join(targets)} at scale {catalog.scale.name}: {catalog.scale.description}", "")
    estimate.print_all()
