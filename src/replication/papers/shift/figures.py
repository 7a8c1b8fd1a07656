"""Figures 1 to 4, drawn from what `replication.papers.shift.figure_data` measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from replication.papers.shift.figure_data import SHIFTS
from vitrail import style
from vitrail.style import Measurements

WAYS = ("plain", "adaptive")
CHANGED: Any = {"color": style.colour(1), "weight": "bold"}


def fig1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show the fixed and the adaptive grid of patches on a photograph and its copy (Figure 1)."""
    values = style.first_seed(measurements[0])
    fig, axes = style.figure("text", aspect=0.36, columns=4)
    _grids(axes, values, "pixels", int(values["patch"]), "image")
    titles = ("token: a fixed grid", "A-token: the strongest grid")
    for ax, title, way in zip(axes[::2], titles, WAYS, strict=True):
        ax.set_title(f"{title}\ntokens change by {values[f'{way} change']:.2g}", loc="left")
    return fig


def fig2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show the fixed and the adaptive windows over the tokens' norms (Figure 2)."""
    values = style.first_seed(measurements[0])
    fig, axes = style.figure("text", aspect=0.34, columns=4)
    shown = _grids(axes, values, "norms", int(values["window"]), "tokens")
    for ax, title in zip(axes[::2], ("WSA: fixed windows", "A-WSA"), strict=True):
        ax.set_title(title, loc="left")
    fig.colorbar(shown, ax=axes, label="norm of a token", fraction=0.02, pad=0.01)
    return fig


def fig3(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show relative distances before and after a shift, linear and circular (Figure 3)."""
    values = style.first_seed(measurements[0])
    fig, axes = style.figure("text", aspect=0.31, columns=4)
    titles = {"linear": r"$p_q - p_k$", "circular": r"$(p_q - p_k)$ mod $M$"}
    for way, pair in zip(titles, (axes[:2], axes[2:]), strict=True):
        before = np.asarray(values[f"{way}/matrix 0"])
        for ax, shift in zip(pair, (0, 1), strict=True):
            matrix = np.asarray(values[f"{way}/matrix {shift}"])
            top = len(matrix) - 1
            # Pale, so that numbers stay legible.
            style.heat_map(ax, matrix, annot=True, fmt="d", vmin=-top, vmax=top, alpha=0.4)
            for text, changed in zip(ax.texts, (matrix != before).flat, strict=True):
                text.set(**CHANGED if changed else {"color": "black"})
            after = f"tokens shifted by {shift}" if shift else "tokens in place"
            ax.set(title=f"{titles[way]}\n{after}", xlabel="key", ylabel="query")
    return fig


def fig4(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Map the change of tokens under a shift, a row for each model, a column for each block."""
    models = cells["row"].unique()
    blocks = [name for name in cells["column"].unique() if not name.endswith(", drawn")]
    rows, columns = len(models), len(blocks)
    fig, axes = style.figure("column", aspect=0.8, rows=rows, columns=columns, squeeze=False)
    values = [style.first_seed(measurement) for measurement in measurements]
    maps = [[np.asarray(v[f"block {i}/map"]) for i in range(1, len(blocks) + 1)] for v in values]
    top = max(change.max() for row in maps for change in row)
    for row, model, own in zip(axes, models, maps, strict=True):
        for ax, change in zip(row, own, strict=True):
            shown = style.picture(ax, change, vmin=0, vmax=top)
            ax.set_xlabel(f"max {change.max():.1g}")
        row[0].set_ylabel(model.removesuffix(" (Ours)"))
    for ax, block in zip(axes[0], blocks, strict=True):
        ax.set_title(block)
    fig.colorbar(shown, ax=axes, label="|difference| / largest activation", fraction=0.05)
    return fig


def _grids(
    axes: Sequence[Axes], values: Mapping[str, Any], shown: str, cell: int, what: str
) -> AxesImage:
    """Draw the fixed grid, then the chosen one, over `shown` of the image and of its copy.

    One cell is marked by a box: on the fixed grid at the same position in both, on the chosen grid
    at the position to which the shift moves it.
    """
    shift = int(values["shift"])
    for ax, (way, which) in zip(axes, product(WAYS, SHIFTS), strict=True):
        picture = np.asarray(values[f"{which}/{shown}"])
        drawn = style.picture(ax, picture)
        phase, box = np.zeros(2, dtype=int), np.array(picture.shape[:2]) // cell // 2 * cell
        if way == "adaptive":
            phase, box = np.array(values[f"{which}/phase"]), box + values["image/phase"]
            box = box - shift * (which == "shifted")
        for line, first, side in zip((ax.axhline, ax.axvline), phase, picture.shape, strict=False):
            for place in range(int(first), side + 1, cell):
                line(place - 0.5, color="white", linewidth=0.6)
        look: Any = {"fill": False, "color": "black", "linewidth": 1.8, "zorder": 3}
        ax.add_patch(Rectangle((box[1] - 0.5, box[0] - 0.5), cell, cell, **look))
        ax.set(xlabel=f"shifted by ({shift}, {shift})" if which == "shifted" else what)
    return drawn
