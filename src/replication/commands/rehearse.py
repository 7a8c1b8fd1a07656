"""``vitrail rehearse``: two real steps of every recipe, before weeks of them are paid for."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from replication.commands.options import SCALE, Target, open_catalog
from vitrail.commands import count, say
from vitrail.commands.app import Device, command


@command()
def rehearse(
    target: Target,
    scale: Annotated[str, typer.Option(metavar="NAME", help=SCALE)] = "full",
    device: Device = None,
    largest: Annotated[
        float,
        typer.Option(
            metavar="MILLIONS",
            help="Rehearse models of more than this many million parameters with two blocks.",
        ),
    ] = 100.0,  # ViT-L takes a CPU minutes a step, and 10 GB
) -> None:
    """Try every recipe behind a target for two steps.

    Each recipe is trained with its real model, transforms, optimiser and schedule on a miniature
    dataset in a temporary folder, resumed from a checkpoint, and evaluated. Exits with status 1 if
    a recipe failed.

    \b
    vitrail rehearse variance_table5
    vitrail rehearse all --device cpu
    """
    import torch

    from replication.commands.cost import count_model
    from replication.commands.rehearsal import notes_on, progress, rehearse_run, what_failed
    from replication.commands.state import runs_behind
    from vitrail.provenance import duration

    catalog = open_catalog(scale)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    artifacts = catalog.target(target).artifacts
    runs = runs_behind(artifacts)
    say(f"{target} at scale {catalog.scale.name}: {count(len(runs), 'recipe')} on {device}")
    failures = 0
    for number, run in enumerate(runs, start=1):
        start = time.perf_counter()
        progress(f"[{number}/{len(runs)}] {run.name}")
        try:
            rehearse_run(run, artifacts, catalog, device, largest)
        # A fault of the code is just what a rehearsal is to find, and the other recipes go on.
        except Exception as error:
            failures += 1
            say(f"FAILED  {run.paper}/{run.name}: {what_failed(error)}")
            continue
        took = duration(time.perf_counter() - start)
        size = count_model(run.recipe, run.info.classes).parameters / 1e6
        notes = "".join(f"; {note}" for note in notes_on(run, device, largest))
        say(f"ok      {run.paper}/{run.name}: {took}, {size:.3g} M parameters{notes}")
    say(f"{len(runs) - failures} of {count(len(runs), 'recipe')} passed.")
    raise typer.Exit(bool(failures))
