"""Figures 5, A1 and A2 of the shift paper, drawn from what `illustrations` measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vitrine.artifacts import style
from vitrine.artifacts.style import Measurements
from vitrine.segmentation.illustrations import UNSEEN

RED, YELLOW = "#FF0000", "#FFFF00"  # the paper's colours
WHITE = (255, 255, 255)


def fig5(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show predictions of SwinV2 and A-SwinV2 under a shift, changes in red (Figure 5)."""
    return _predictions(cells, measurements, RED)


def figA1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show predictions of Swin and A-Swin under a shift, changes in yellow (Figure A1)."""
    return _predictions(cells, measurements, YELLOW)


def figA2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show more predictions of SwinV2 and A-SwinV2, changes in yellow (Figure A2)."""
    return _predictions(cells, measurements, YELLOW)


def _predictions(cells: pd.DataFrame, measurements: Measurements, colour: str) -> Figure:
    """A row of axes for each image; the image, then each model's prediction before and after."""
    models = list(dict.fromkeys(cells["row"]))
    images = [column.removeprefix("Image ") for column in dict.fromkeys(cells["column"])]
    values = [style.first_seed(measurement) for measurement in measurements]
    columns = 1 + 2 * len(models)
    shapes = [np.shape(values[0][f"{number}/before"]) for number in images]
    heights = [height / width + 0.2 for height, width in shapes]  # with the line below, in widths
    aspect = sum(heights) / columns + 0.05
    fig, axes = style.figure(
        "text", aspect, len(images), columns, squeeze=False, height_ratios=heights
    )
    for row, number in zip(axes, images, strict=True):
        style.picture(row[0], np.asarray(values[0][f"{number}/pixels"], dtype=np.uint8))
        for own, pair in zip(values, zip(row[1::2], row[2::2], strict=True), strict=True):
            _pair(pair, own, number, colour)
    axes[0, 0].set_title("image")
    for model, before, after in zip(models, axes[0, 1::2], axes[0, 2::2], strict=True):
        before.set_title(f"{model}\nbefore")
        after.set_title("\nafter the shift")
    return fig


def _pair(axes: Sequence[Axes], values: Mapping[str, Any], number: str, colour: str) -> None:
    """Draw predictions before and after a shift, with boxes around what changes."""
    palette = np.asarray([*values["palette"], WHITE], dtype=np.uint8)  # the last is UNSEEN's
    assert UNSEEN == -1
    for ax, which in zip(axes, ("before", "after"), strict=True):
        style.picture(ax, palette[np.asarray(values[f"{number}/{which}"])])
        for top, left, height, width in values[f"{number}/boxes"]:
            corner = (left - 1.5, top - 1.5)
            ax.add_patch(
                Rectangle(corner, width + 2, height + 2, fill=False, color=colour, linewidth=0.8)
            )
    axes[1].set_xlabel(f"{values[f'{number}/changed']:.1f} % changed")
