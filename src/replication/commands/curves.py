"""``vitrail curves``: a figure of how a run was trained, by epoch, from the logs of its seeds.

`vitrail publish` keeps of the logs what `by_epoch` makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from replication.engine.journal import VALIDATION, step_of
from vitrail.commands import say
from vitrail.errors import VitrailError
from vitrail.files import write_atomically
from vitrail.style import colour, figure, save

DIGITS = "%.6g"


def curves(run: Path) -> None:
    """Draw the training of a run into its folder: ``curves.csv``, ``curves.svg``, ``curves.png``.

    Raises:
        VitrailError: no seed has a log, or a file cannot be written.
    """
    if not (logs := list(logs_of(run))):
        raise VitrailError(
            f"{run} holds no seed*/log.jsonl with an entry: give the folder of a run, "
            "runs/PAPER/RECIPE-HASH"
        )
    table = pd.concat(logs, ignore_index=True)
    write_atomically(run / "curves.csv", table.to_csv(index=False, float_format=DIGITS))
    scores = [name for name in table.columns if name.startswith(VALIDATION)][:1]
    panels = {"loss": "training loss", "lr": "learning rate"}
    panels |= {name: f"{name.removeprefix(VALIDATION)} on validation (%)" for name in scores}
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


def logs_of(run: Path) -> Iterator[pd.DataFrame]:
    """Yield what `by_epoch` makes of the log of each seed that has one, with a column ``seed``."""
    folders = {int(folder.name[4:]): folder for folder in run.glob("seed*") if folder.is_dir()}
    for seed, folder in sorted(folders.items()):
        if (log := folder / "log.jsonl").is_file() and len(table := by_epoch(log)):
            table.insert(0, "seed", seed)
            yield table


def by_epoch(log: Path) -> pd.DataFrame:
    """Read a ``log.jsonl`` as one row for each epoch that it covers.

    Returns:
        ``epoch``, where the row ends; ``step``; ``loss``, the mean over the epoch's steps; ``lr``,
        ``images_per_second`` and what else is told, as last told in the epoch.

    Raises:
        VitrailError: the file cannot be read.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise VitrailError(
            f"cannot read {log} ({error.strerror or error}): correct its permissions"
        ) from None
    # A training that goes on may be in the middle of a line.
    entries = pd.DataFrame([json.loads(line) for line in lines if step_of(line) is not None])
    if "loss" not in entries:
        return pd.DataFrame()
    # An entry's loss is the mean over the steps since the last entry that has one.
    told = entries["loss"].notna()
    steps = entries["step"].where(told).ffill().fillna(0).diff()
    steps.iloc[0] = entries["step"].iloc[0]
    number = np.ceil(entries["epoch"]).rename("number")
    table = entries.groupby(number).last()
    table["loss"] = (entries["loss"] * steps).groupby(number).sum() / steps.groupby(number).sum()
    return table[["epoch", *table.columns.drop("epoch")]].reset_index(drop=True)
