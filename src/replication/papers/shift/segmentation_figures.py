"""Figures 5, A1 and A2 of the shift paper, drawn from what `segmentation_figure_data` measured."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from replication.images.masks import UNSEEN
from vitrail import style
from vitrail.style import Measurements

RED, YELLOW = "#FF0000", "#FFFF00"  # the paper's colours of changed regions
OUTLINE = [withStroke(linewidth=1.8, foreground="black")]  # visible on every colour
GOLDEN = (5**0.5 - 1) / 2
NAMED = 21  # how many classes the legend names: those with the largest areas
SHOWN = ("truth", "before", "after")


def _predictions(cells: pd.DataFrame, measurements: Measurements, colour: str) -> Figure:
    """Draw a row for each image: image, labels, each model's predictions before and after."""
    models = [model.removesuffix(" (Ours)") for model in dict.fromkeys(cells["row"])]
    images = [column.removeprefix("Image ") for column in dict.fromkeys(cells["column"])]
    values = [style.first_seed(measurement) for measurement in measurements]
    classes = values[0]["classes"]
    palette = palette_of(len(classes))
    columns = 2 + 2 * len(models)
    shapes = [np.shape(values[0][f"{number}/before"]) for number in images]
    heights = [height / width + 0.35 for height, width in shapes]  # with two lines below, in widths
    aspect = sum(heights) / columns + 0.12
    fig, axes = style.figure(
        "text", aspect, len(images), columns, squeeze=False, height_ratios=heights
    )
    for row, number in zip(axes, images, strict=True):
        style.picture(row[0], np.asarray(values[0][f"{number}/pixels"], dtype=np.uint8))
        style.picture(row[1], _coloured(values[0][f"{number}/truth"], palette))
        for own, pair in zip(values, zip(row[2::2], row[3::2], strict=True), strict=True):
            _pair(pair, own, number, palette, colour)
    axes[0, 0].set_title("image")
    axes[0, 1].set_title("labels")
    for model, before, after in zip(models, axes[0, 2::2], axes[0, 3::2], strict=True):
        before.set_title(f"{model.replace(' + ', chr(10) + '+ ')}\nbefore")
        after.set_title("after\nthe shift")
    shown = _largest_first(values, images)[:NAMED]
    handles = [Patch(color=palette[label], label=classes[label]) for label in shown]
    fig.legend(handles=handles, loc="outside lower center", ncols=7, columnspacing=1)
    return fig


# Predictions under a shift. Changed regions have red boxes in Figure 5 (SwinV2 and A-SwinV2) and
# yellow ones in Figures A1 (Swin and A-Swin) and A2 (more of SwinV2 and A-SwinV2).
fig5 = functools.partial(_predictions, colour=RED)
figA1 = figA2 = functools.partial(_predictions, colour=YELLOW)


def palette_of(classes: int) -> list[str]:
    """Return the colour of each class of a dataset, the same in all figures.

    Up to 16 classes have the style's colours and their tints, which colour-blind readers can
    distinguish. More classes have hues around the circle, ordered by the golden section, so that
    classes with adjacent numbers have different hues.
    """
    shades = [*style.PALETTE, *map(_tint, style.PALETTE)]
    if classes <= len(shades):
        return shades[:classes]
    hues = sns.husl_palette(classes)
    ranks = (np.arange(classes) * GOLDEN % 1).argsort().argsort()
    return [to_hex(hues[rank]) for rank in ranks]


def _largest_first(values: Sequence[Mapping[str, Any]], images: Sequence[str]) -> list[int]:
    """Return the classes in the maps of a figure, by decreasing area."""
    maps = [own[f"{n}/{which}"] for own in values for n in images for which in SHOWN]
    labels, areas = np.unique(
        np.concatenate([np.ravel(classes) for classes in maps]), return_counts=True
    )
    return [int(label) for label in labels[np.argsort(-areas)] if label != UNSEEN]


def _tint(colour: str) -> str:
    red, green, blue = (0.45 * value + 0.55 for value in to_rgb(colour))
    return to_hex((red, green, blue))


def _coloured(classes: ArrayLike, palette: Sequence[str]) -> np.ndarray:
    """Map classes (H, W) to colours (H, W, 3), white for `UNSEEN`."""
    classes = np.asarray(classes)
    shown = np.ones((*classes.shape, 3))
    for label in np.unique(classes[classes != UNSEEN]):
        shown[classes == label] = to_rgb(palette[label])
    return shown


def _pair(
    axes: Sequence[Axes],
    values: Mapping[str, Any],
    number: str,
    palette: Sequence[str],
    colour: str,
) -> None:
    """Draw predictions before and after a shift, with boxes around changed regions."""
    for ax, which in zip(axes, ("before", "after"), strict=True):
        style.picture(ax, _coloured(values[f"{number}/{which}"], palette))
        for top, left, height, width in values[f"{number}/boxes"]:
            corner = (left - 1.5, top - 1.5)
            look: Any = {"fill": False, "color": colour, "linewidth": 0.8, "path_effects": OUTLINE}
            ax.add_patch(Rectangle(corner, width + 2, height + 2, **look))
    down, across = values[f"{number}/offset"]
    axes[1].set_xlabel(
        f"by ({down}, {across}) pixels\n{values[f'{number}/changed']:.1f} % changed", fontsize=7
    )
