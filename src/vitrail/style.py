"""The style of all figures: safe for colour-blind readers, legible at the width of a column.

Text stays text in the SVG, and neither file carries a date or a random identifier, so that the same
numbers give the same bytes. The functions draw tidy cells (`replication.claims.comparison`) or
images. Code that only one paper's figures need is in that paper's package.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike

from vitrail.files import atomic_path

Measurements = Sequence[Mapping[str, Any]]
"""The argument of a figure's function beside the cells: the contents of its measurements' files."""

# Okabe and Ito (2008), distinct under every common colour vision; yellow is last, faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SEQUENTIAL = "cividis"  # perceptually uniform, and the same to colour-blind readers
FONT, FALLBACK = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"  # as SVG names them
WIDTHS = {"column": 3.3, "text": 6.75}  # inches, of a two-column paper

STYLE: Any = {
    "font.family": "DejaVu Sans",  # shipped with matplotlib: the same everywhere
    **dict.fromkeys(["font.size", "axes.titlesize", "axes.labelsize"], 8),
    **dict.fromkeys(["xtick.labelsize", "ytick.labelsize", "legend.fontsize"], 7),
    "figure.titlesize": 9,
    "axes.prop_cycle": cycler(color=PALETTE),
    **dict.fromkeys(["axes.spines.top", "axes.spines.right"], False),
    "axes.linewidth": 0.6,
    **dict.fromkeys(["axes.grid", "axes.axisbelow"], True),
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "image.cmap": SEQUENTIAL,
    "image.interpolation": "nearest",
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "vitrail",
}


def figure(
    width: Literal["column", "text"] = "column",
    aspect: float = 0.7,
    rows: int = 1,
    columns: int = 1,
    settings: dict[str, Any] | None = None,
    **subplots: Any,
) -> tuple[Figure, Any]:
    """Return a styled figure and its axes (an array of them if there are several).

    The figure is as wide as a column of a two-column paper, or as its text; `aspect` is height over
    width. `settings` override entries of `STYLE`, and `subplots` are passed to `Figure.subplots`,
    such as ``sharey=True``. A matplotlibrc of the user is ignored.
    """
    # Set for the whole process, because later drawing on the axes must use the style, too.
    mpl.rcdefaults()
    mpl.rcParams.update(STYLE | (settings or {}))
    inches = WIDTHS[width]
    fig = Figure(figsize=(inches, inches * aspect), layout="constrained")
    return fig, fig.subplots(rows, columns, **subplots)


def save(fig: Figure, stem: Path) -> None:
    """Write ``<stem>.svg`` and ``<stem>.png``, atomically and the same bytes every time.

    Raises:
        VitrailError: the folder cannot be written to.
    """
    fig.draw_without_rendering()
    fig.set_layout_engine(
        "none"
    )  # everything is placed; else the layout would move legends to the new lower edge
    for legend in fig.legends:
        legend.set_bbox_to_anchor((0, 0, 1, 1), fig.transFigure)
    shown = Bbox.from_extents(0, min(0.0, _lowest(fig)), *fig.get_size_inches())
    for kind, metadata in (("svg", {"Date": None}), ("png", {})):
        with atomic_path(stem.with_name(f"{stem.name}.{kind}")) as partial:
            fig.savefig(partial, format=kind, metadata=metadata, bbox_inches=shown)
            if kind == "svg":  # without this font, one of the same widths replaces it
                text = partial.read_text(encoding="utf-8")
                partial.write_text(text.replace(FONT, FALLBACK), encoding="utf-8")


def _lowest(fig: Figure) -> float:
    """Return the lower end of the figure's own lowest text, in inches from its lower edge."""
    return min((text.get_window_extent().y0 / fig.dpi for text in fig.texts), default=0.0)


def stamp(fig: Figure, lines: Sequence[str]) -> None:
    """Write texts below a figure, such as what it was measured on; each begins a new line.

    `save` makes the picture higher by these lines; the drawing keeps its place.
    """
    width = round(22 * fig.get_figwidth())  # characters of six points
    wrapped = [part for line in lines for part in textwrap.wrap(line, width)]
    look: Any = {"fontsize": 6, "color": "#707070", "ha": "left", "va": "top"}
    fig.text(0.005, -0.04 / fig.get_figheight(), "\n".join(wrapped), **look)


def with_stand_ins_named(cells: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Add to the datasets in the names of rows the stand-ins that were read instead of them.

    `names` maps each stand-in to the paper's names of the datasets that it replaces, joined by
    "and". For example, the row "SVHN, APE" becomes "SVHN (here: pieces-in-a-row), APE".
    """
    rows = cells["row"]
    for stand_in, called in names.items():
        for name in called.split(" and "):
            rows = rows.str.replace(
                rf"\b{re.escape(name)}\b(?! \(here)(?!-)", f"{name} (here: {stand_in})", regex=True
            )
    return cells.assign(row=rows)


def colour(index: int) -> str:
    """Return the palette's colour of a series; a number has the same colour in every figure."""
    return PALETTE[index % len(PALETTE)]


def lines(axes: Axes, cells: pd.DataFrame, looks: Mapping[str, int] | None = None) -> None:
    """Draw a line for each row of tidy cells over its columns, with the seeds' 95 % intervals.

    The columns are numbers, such as image sizes. `looks` is as for `series`; by default the rows
    are numbered in their order.
    """
    # seaborn draws the median and the range of these three values: the mean and its interval.
    values = cells.melt(["row", "column"], ["ci_low", "measured", "ci_high"], value_name="y")
    series(
        axes,
        values.assign(x=values["column"].astype(float)),
        looks or {row: index for index, row in enumerate(dict.fromkeys(cells["row"]))},
        estimator="median",
        errorbar=("pi", 100),
        err_style="bars",  # bars also show the interval of an isolated point
        err_kws={"fmt": "none", "elinewidth": 0.8},
    )


def series(axes: Axes, data: pd.DataFrame, looks: Mapping[str, int], **options: Any) -> None:
    """Draw the columns ``y`` over ``x`` as a line for each ``row``, on empty axes.

    `looks` maps each row to the number of its colour and marker; `options` are passed to
    `seaborn.lineplot`.
    """
    order = list(looks)
    sns.lineplot(
        data,
        x="x",
        y="y",
        hue="row",
        hue_order=order,
        palette=[colour(index) for index in looks.values()],
        style="row",
        style_order=order,
        markers=[MARKERS[index % len(MARKERS)] for index in looks.values()],
        markersize=4.5,
        markeredgewidth=0,
        dashes=False,
        legend=False,
        ax=axes,
        **options,
    )
    for line, row in zip(axes.lines, order, strict=True):
        line.set_label(row)
    axes.set(xlabel="", ylabel="")


def heat_map(axes: Axes, matrix: ArrayLike, **options: Any) -> None:
    """Draw a matrix as squares; `options` are passed to `seaborn.heatmap`, such as its limits."""
    plain = {"cmap": SEQUENTIAL, "cbar": False, "xticklabels": False, "yticklabels": False}
    sns.heatmap(matrix, square=True, ax=axes, **{**plain, **options})
    axes.grid(visible=False)
    axes.tick_params(length=0)


def first_seed(measurement: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a measurement's first seed."""
    values: Mapping[str, Any] = next(iter(measurement["values"].values()))
    return values


def picture(axes: Axes, image: ArrayLike, **shown: Any) -> AxesImage:
    """Show an (H, W) map or an (H, W, 3) image without ticks, grid and frame.

    An image has colours in [0, 1] or bytes; `shown` is passed to `Axes.imshow`, such as limits.
    """
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return axes.imshow(image, **shown)
