"""``vitrail curves``: a figure of how a run was trained, by epoch, from the logs of its seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vitrail.commands import say
from vitrail.commands.app import command
from vitrail.errors import VitrailError
from vitrail.files import write_atomically


@command()
def curves(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders of runs: runs/PAPER/RECIPE-HASH."),
    ],
) -> None:
    """Draw loss, learning rate and validation of trainings.

    Each run's folder gets curves.svg, curves.png and curves.csv, with a line for each seed. A run
    may still be training. Folders whose logs have no training step are named at the end.

    \b
    vitrail curves runs/octic/h8-l-0a1b2c3d
    vitrail curves runs/shift/*
    """
    without = [run for run in runs if not draw(run)]
    if without:
        named = f"no training step in seed*/log.jsonl: {', '.join(map(str, without))}"
        if len(without) == len(runs):
            raise VitrailError(f"{named}; give folders of runs, runs/PAPER/RECIPE-HASH")
        say(f"Not drawn, {named}")


def draw(run: Path) -> bool:
    """Draw the training of a run into its folder: ``curves.csv``, ``curves.svg``, ``curves.png``.

    Returns:
        Whether the log of a seed has a training step; if none has, nothing is drawn.

    Raises:
        VitrailError: a log cannot be read, or a file cannot be written.
    """
    import pandas as pd

    from replication.training.log_tables import DIGITS, logs_of
    from replication.training.training_log import VALIDATION
    from vitrail.style import colour, figure, save

    if not (logs := list(logs_of(run))):
        return False
    table = pd.concat(logs, ignore_index=True)
    write_atomically(run / "curves.csv", table.to_csv(index=False, float_format=DIGITS))
    scores = [name for name in table.columns if name.startswith(VALIDATION)]
    panels = {"loss": "training loss", "lr": "learning rate"}
    panels |= {name: f"{name.removeprefix(VALIDATION)} on validation (%)" for name in scores[:1]}
    fig, axes = figure("text", 0.36, 1, len(panels))
    for ax, (name, label) in zip(axes, panels.items(), strict=True):
        for number, (seed, rows) in enumerate(table.dropna(subset=name).groupby("seed")):
            look: Any = {"color": colour(number), "marker": ".", "label": f"seed {seed}"}
            ax.plot(rows["epoch"], rows[name], markersize=2.5, linewidth=0.9, **look)
        ax.set(xlabel="epoch", title=label)
    axes[0].legend()
    fig.suptitle(run.name)
    save(fig, run / "curves")
    say(f"{run / 'curves'}.svg, .png and .csv")
    return True
