"""Read the training logs of a run's seeds as tables with one row per epoch.

`vitrail curves` draws them, and `vitrail publish` publishes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from replication.training.training_log import step_of
from vitrail.errors import VitrailError

DIGITS = "%.6g"


def logs_of(run: Path) -> Iterator[pd.DataFrame]:
    """Yield a table for each seed of `run` with a log: a column ``seed``, then `by_epoch`'s.

    Seeds come in ascending order; seeds whose log has no loss yet are skipped.
    """
    named = ((re.fullmatch(r"seed(0|[1-9]\d*)", file.name), file) for file in run.glob("seed*/"))
    folders = {int(match[1]): folder for match, folder in named if match}
    for seed, folder in sorted(folders.items()):
        if (log := folder / "log.jsonl").is_file() and len(table := by_epoch(log)):
            table.insert(0, "seed", seed)
            yield table


def by_epoch(log: Path) -> pd.DataFrame:
    """Read a ``log.jsonl`` as a table with one row per epoch, empty while there is no loss.

    Returns:
        ``epoch``, the position of the epoch's last entry; ``step`` of that entry; ``loss``, the
        mean over the epoch's steps; ``lr``, ``images_per_second`` and all other values of the log,
        each as last logged in the epoch.

    Raises:
        VitrailError: the file cannot be read.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise VitrailError(
            f"cannot read {log} ({error.strerror or error}): correct its permissions"
        ) from None
    # A running training may have written only part of the last line.
    entries = pd.DataFrame([json.loads(line) for line in lines if step_of(line) is not None])
    if "loss" not in entries:
        return pd.DataFrame()
    # The loss of an entry is the mean over the steps since the previous entry with a loss.
    told = entries["loss"].notna()
    steps = entries["step"].where(told).ffill().fillna(0).diff()
    steps.iloc[0] = entries["step"].iloc[0]
    number = np.ceil(entries["epoch"]).rename("number")
    table = entries.groupby(number).last()
    table["loss"] = (entries["loss"] * steps).groupby(number).sum() / steps.groupby(number).sum()
    return table[["epoch", *table.columns.drop("epoch")]].reset_index(drop=True)
