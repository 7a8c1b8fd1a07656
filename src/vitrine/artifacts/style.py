"""One look for every figure: safe for colour-blind readers, legible at the width of a column.

Text stays text in the SVG, and neither file carries a date or a random identifier, so that the same
numbers give the same bytes. The primitives draw tidy cells (`vitrine.artifacts.comparison`) or
images; what only one paper needs lives with that paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from vitrine.files import atomic_path

# Okabe and Ito (2008), told apart under every common colour vision; yellow last, faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SEQUENTIAL = "cividis"  # perceptually uniform, and the same to colour-blind readers
WIDTHS = {"column": 3.3, "text": 6.75}  # inches, of a two-column paper

STYLE: Any = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib: the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 9,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "image.cmap": SEQUENTIAL,
    "image.interpolation": "nearest",
    "savefig.dpi": 300,
    "svg.fonttype": "none",
    "svg.hashsalt": "vitrine",
}


def figure(
    width: Literal["column", "text"] = "column",
    aspect: float = 0.7,
    rows: int = 1,
    columns: int = 1,
    **subplots: Any,
) -> tuple[Figure, Any]:
    """Return a styled figure and its axes (an array of them if there are several).

    Args:
        width: a column of a two-column paper, or the whole text.
        aspect: height of the figure over its width.
        rows: of axes.
        columns: of axes.
        **subplots: passed to `Figure.subplots`, such as ``sharey=True``.
    """
    # For the whole process, as what is drawn on the axes later must follow it too.
    mpl.rcParams.update(STYLE)
    inches = WIDTHS[width]
    fig = Figure(figsize=(inches, inches * aspect), layout="constrained")
    return fig, fig.subplots(rows, columns, **subplots)


def save(fig: Figure, stem: Path) -> None:
    """Write ``<stem>.svg`` and ``<stem>.png``, atomically and the same bytes every time.

    Raises:
        VitrineError: the folder cannot be written to.
    """
    for kind, metadata in (("svg", {"Date": None}), ("png", {})):
        with atomic_path(stem.with_name(f"{stem.name}.{kind}")) as partial:
            fig.savefig(partial, format=kind, metadata=metadata)


def colour(index: int) -> str:
    """The palette's colour of a series, the same number the same colour in every figure."""
    return PALETTE[index % len(PALETTE)]


def lines(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a line for each row over its columns as numbers, with the seeds' 95 % band.

    Args:
        axes: to draw on.
        cells: tidy cells whose columns are numbers, such as image sizes.
    """
    for index, (label, row) in enumerate(cells.groupby("row", sort=False)):
        points = row.assign(x=row["column"].astype(float)).sort_values("x")
        axes.plot(
            points["x"],
            points["measured"],
            label=str(label),
            color=colour(index),
            marker=MARKERS[index % len(MARKERS)],
        )
        band = (points["x"], points["ci_low"], points["ci_high"])
        axes.fill_between(*band, color=colour(index), alpha=0.2, linewidth=0)


def bars(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw a group of bars for each column, a bar for each row, with the seeds' deviation."""
    rows, groups = cells["row"].unique(), cells["column"].unique()
    width = 0.8 / len(rows)
    for index, row in enumerate(rows):
        series = cells[cells["row"] == row].set_index("column").reindex(groups)
        x = np.arange(len(groups)) + (index - (len(rows) - 1) / 2) * width
        axes.bar(
            x,
            series["measured"],
            width * 0.92,
            yerr=series["std"].fillna(0),
            label=row,
            color=colour(index),
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.grid(visible=False, axis="x")


def heatmaps(
    maps: Sequence[Sequence[ArrayLike]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    bar_label: str,
    width: Literal["column", "text"] = "text",
) -> Figure:
    """Draw a grid of (H, W) maps on one shared scale, with one colour bar."""
    arrays = [[np.asarray(one, dtype=float) for one in row] for row in maps]
    finite = np.concatenate([one[np.isfinite(one)] for row in arrays for one in row])
    fig, grid = _image_grid(arrays, row_labels, column_labels, width, beside=0.6)
    for axes, one in zip(grid.flat, (one for row in arrays for one in row), strict=True):
        shown = axes.imshow(one, vmin=finite.min(), vmax=finite.max(), cmap=SEQUENTIAL)
    fig.colorbar(shown, ax=grid, label=bar_label, fraction=0.05, pad=0.02)
    return fig


def montage(
    images: Sequence[Sequence[ArrayLike]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    captions: Sequence[Sequence[str]] | None = None,
    width: Literal["column", "text"] = "text",
) -> Figure:
    """Draw a grid of images, (H, W, 3) in [0, 1] or bytes, with a caption under each if given."""
    arrays = [[np.asarray(one) for one in row] for row in images]
    fig, grid = _image_grid(arrays, row_labels, column_labels, width, under=0.15 if captions else 0)
    for i, row in enumerate(arrays):
        for j, one in enumerate(row):
            grid[i, j].imshow(one)
            if captions:
                grid[i, j].set_xlabel(captions[i][j], fontsize=STYLE["xtick.labelsize"])
    return fig


def _image_grid(
    images: Sequence[Sequence[np.ndarray]],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    width: Literal["column", "text"],
    beside: float = 0.0,
    under: float = 0.0,
) -> tuple[Figure, np.ndarray]:
    """Axes without ticks, shaped like the images.

    `beside` makes room to the right of the grid and `under` below each image, in inches.
    """
    rows, columns = len(images), len(images[0])
    one = (WIDTHS[width] - beside - 0.2) / columns - 0.08  # what labels and padding leave
    height = one * images[0][0].shape[0] / images[0][0].shape[1] + under + 0.08
    aspect = (rows * height + 0.2) / WIDTHS[width]
    fig, grid = figure(width, aspect, rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    for axes, label in zip(grid[0], column_labels, strict=True):
        axes.set_title(label)
    for axes, label in zip(grid[:, 0], row_labels, strict=True):
        axes.set_ylabel(label)
    return fig, grid
