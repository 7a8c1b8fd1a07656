"""Figures 1 to 9. Most show the P-SHAP of models against their gain in accuracy over another model.

In these, the colour is the dataset and the marker is the model. Datasets that share all their runs,
because the same stand-in replaces them, are drawn as one. Rows of the cells are
"<dataset>, <model>", such as "SVHN, Auto-APE", with a model of `MODELS`.
"""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from replication.datasets.placed_images import DEPENDENT
from replication.papers.position.measures import CLASSES
from vitrail import style
from vitrail.errors import VitrailError, did_you_mean
from vitrail.position.embeddings.auto import GAMMA_0
from vitrail.style import Measurements

# The marker of each model, the same in all figures, and whether it is filled.
MODELS = {
    "APE": ("o", True),
    "no PE": ("X", True),
    "SIN": ("s", True),
    "SIN fine-tuned": ("s", False),
    "RPE": ("^", True),
    "RPE as published": ("^", False),
    "FF": ("D", True),
    "CAPE": ("v", True),
    "iRPE": ("P", True),
    "RoPE": ("*", True),
    "Auto-APE": ("o", False),
    "Auto-RoPE": ("*", False),
    "Auto-RoPE shared": ("X", False),
    "position augm.": ("s", True),
    "crop by patches": ("s", False),
    "CLS token": ("^", True),
    "scratch": ("o", True),
    "pre-trained": ("D", True),
}
# Models that are not in the paper.
OURS = ("SIN fine-tuned", "RPE as published", "crop by patches")
PLAIN = {"Auto-APE": "APE", "Auto-RoPE": "RoPE", "Auto-RoPE shared": "RoPE"}
CHECKPOINT = "checkpoint"
SIZES = {"*": 8.0}  # a star's area is small for its width
GAIN = "accuracy gain over {} (points)"
LINE = "#707070"
KINDS = ("dependent", "independent")
LETTER, HANDLE, LINE_HEIGHT = 0.055, 0.45, 0.14  # inches, in a legend
CROWDED = (0.08, 0.12)  # points within these fractions of width and height cover each other
FLAT = 0.25  # datasets within this fraction of the height, because another one needs the rest
INSET, LARGE_INSET = (0.3, 0.28), (0.5, 0.45)  # of one dataset, of several
AROUND = ((0.1, 0.09), (0.03, 0.12))  # space for its labels (left, below), title (right, above)


def fig1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw samples of each dataset in a row (Figure 1); rows are in the order of the datasets."""
    values = style.first_seed(measurements[0])
    datasets = [str(row) for row in cells["row"].unique()]
    columns = len(values["0/pixels"])
    fig, axes = style.figure(
        "text", aspect=len(datasets) / (columns + 1), rows=len(datasets), columns=columns
    )
    for ax in axes.flat:
        ax.set_axis_off()
    for place, name in enumerate(datasets):
        for ax, pixels in zip(axes[place], values[f"{place}/pixels"], strict=False):
            style.picture(ax, np.asarray(pixels, dtype=np.uint8))
        _write(axes[place, 0], -0.15, 0.5, name, ha="right", va="center")
    return fig


def fig2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw how a Position dataset is made: contents, corners, samples of all classes (Figure 2)."""
    values = style.first_seed(measurements[0])
    shown = int(values["samples"])
    fig, axes = style.figure(
        "text", aspect=(shown + 2.6) / CLASSES, rows=shown + 2, columns=CLASSES
    )
    for ax in axes.flat:
        ax.set_axis_off()
    for label in range(CLASSES):
        _, corners, *samples = axes[:, label]
        columns = slice(label, label + 4 if label in DEPENDENT else label + 1)
        if label not in DEPENDENT or label % 4 == 0:
            # Four classes, one for each corner, share the content of one original class.
            content = fig.add_subplot(axes[0, 0].get_gridspec()[0, columns])
            content.set_title(f"{int(values[f'{label}/original'])}", fontsize=7, pad=2)
            style.picture(content, np.asarray(values[f"{label}/content"], dtype=np.uint8))
        share = np.asarray(values[f"{label}/share"])
        style.picture(corners, share, vmin=0, vmax=100)
        for (row, column), percent in np.ndenumerate(share):
            if percent:
                look: Any = {"color": "black" if percent > 50 else "white", "fontsize": 5}
                corners.text(column, row, f"{percent:.0f}", ha="center", va="center", **look)
        for ax, pixels in zip(samples, values[f"{label}/pixels"], strict=False):
            style.picture(ax, np.asarray(pixels, dtype=np.uint8))
        _write(axes[-1, label], 0.5, -0.1, f"{label}", ha="center", va="top")
    words = ("original\nclass", "corner\n(%)", "samples")
    for ax, text in zip(axes[:, 0], words, strict=False):
        _write(ax, -0.15, 0.5, text, ha="right", va="center")
    return fig


def _write(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    ax.text(x, y, text, fontsize=7, transform=ax.transAxes, **look)


def gains(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw P-SHAP against the gain over APE; columns are "P-SHAP" and "Accuracy".

    Figure 3a shows models without position embedding, 3b position augmentation and a CLS token, 4a
    the baselines and 4b the advanced embeddings.
    """
    return _gains(cells)


fig3a = fig3b = fig4a = fig4b = gains


def fig5(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the distribution of P-SHAP in a Position dataset, by outcome and kind (Figure 5).

    The seeds of the first measurement are pooled.
    """
    seeds = list(measurements[0]["values"].values())
    edges = np.asarray(seeds[0]["edges"])
    fig, axes = style.figure(aspect=1.05, rows=2, sharex=True)
    for ax, outcome in zip(axes, ("correct", "incorrect"), strict=True):
        sizes = []
        for index, kind in enumerate(KINDS):
            group, colour = f"{outcome}/{kind}", style.colour(index)
            counts = np.sum([values[f"{group}/histogram"] for values in seeds], axis=0)
            total = sum(values[f"{group}/images"] for values in seeds)
            if total:
                line: Any = {"color": colour, "linewidth": 0.9}
                look: Any = {"stat": "percent", "element": "step", "alpha": 0.3, **line}
                sns.histplot(x=edges[:-1], weights=counts, bins=[*edges], ax=ax, **look)
                sums = (
                    values[f"{group}/images"] * (values[f"{group}/mean"] or 0) for values in seeds
                )
                ax.axvline(sum(sums) / total, linestyle="--", **line)
            sizes.append(f"{total:,.0f} {kind}")
        ax.set(ylabel="samples (%)", xlim=(0, 1), title=f"{outcome}: {', '.join(sizes)}")
    handles = [
        Patch(color=style.colour(index), alpha=0.3, label=f"position-{kind}")
        for index, kind in enumerate(KINDS)
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=2)
    axes[-1].set_xlabel("P-SHAP")
    return fig


def fig6(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw Figure 4b at a larger size (Figure 6; position, App. F)."""
    return _gains(cells, width="text", aspect=0.5)


def fig7(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the effect of pre-trained weights, and the P-SHAP of the checkpoint (Figure 7).

    Source: position, App. H.

    Models are "scratch" and "pre-trained"; columns are "P-SHAP" and "Accuracy". A row "checkpoint"
    has the P-SHAP of the weights before any fine-tuning; without it no line is drawn.
    """
    own = cells["row"] == CHECKPOINT
    fig = _gains(cells[~own], reference="scratch", fit=False, links={"pre-trained": "scratch"})
    ax = fig.axes[0]
    for x in cells[own & (cells["column"] == "P-SHAP")]["measured"].dropna():
        ax.axvline(x, color="black", linestyle="-.", linewidth=0.9)
        # Above the axes, where there are no points.
        place: Any = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points"}
        ax.annotate(CHECKPOINT, (x, 1), (0, 2), ha="center", fontsize=7, **place)
    return fig


def fig8(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the effect of Auto-PE on P-SHAP and accuracy (Figure 8)."""
    return _gains(cells, fit=False, links=PLAIN)


def fig9a(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the learned factors of Auto-PE, absolute (Figure 9a)."""
    fig, ax = _scatter(_points(cells, "|γ|"), "|γ|")
    for height, text in ((1, "plain PE"), (GAMMA_0, "initial value")):
        ax.axhline(height, color=LINE, linewidth=0.8, linestyle=":")
        place = ax.get_yaxis_transform()
        ax.text(1.01, height, text, transform=place, color=LINE, fontsize=6, va="center")
    ax.set_ylim(bottom=0)
    return fig


def fig9b(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the effective angles of RoPE with and without Auto-PE (Figure 9b)."""
    fig, ax = _scatter(_points(cells, "Angle"), "effective angle (rad a patch)", links=PLAIN)
    ax.set_ylim(bottom=0)
    return fig


def _gains(
    cells: pd.DataFrame,
    reference: str = "APE",
    fit: bool = True,
    links: Mapping[str, str] | None = None,
    **shape: Any,
) -> Figure:
    """Draw P-SHAP against the gain in accuracy over the model `reference` on the same dataset.

    With `fit`, draw the least-squares lines; `links` is as in `_scatter`.
    """
    points = _points(cells, "Accuracy")
    base = points[points["model"] == reference].set_index("dataset")["y"]
    for point in points[~points["dataset"].isin(base.index)].itertuples():
        raise VitrailError(
            f"the row '{point.dataset}, {point.model}' has nothing to be compared with: add "
            f"'{point.dataset}, {reference}'"
        )
    gained = points.assign(y=points["y"] - points["dataset"].map(base))
    fig, ax = _scatter(gained, GAIN.format(reference), links, **shape)
    ax.axhline(0, color=LINE, linewidth=0.6, zorder=1)
    if fit:
        _draw_fits(ax, gained, _colours(gained))
    _enlarge(ax, gained, links, fit)
    return fig


def _points(cells: pd.DataFrame, height: str) -> pd.DataFrame:
    """Return a row for each dataset and model: x, y and their standard deviations over seeds.

    x is the column "P-SHAP", y the column `height`. Datasets that share their runs, and so all
    points, are merged into one with the name "A = B".

    Raises:
        VitrailError: a row has no dataset or no model of `MODELS`, or lacks one of the columns.
    """
    numbers = cells.set_index(["row", "column"])
    points = []
    for row in cells["row"].unique():
        dataset, _, model = row.rpartition(", ")
        if model not in MODELS:
            raise VitrailError(
                f"the row '{row}' is not '<dataset>, <model>' with a model of the figures"
                f"{did_you_mean(model, MODELS)}"
            )
        for column in ("P-SHAP", height):
            if (row, column) not in numbers.index:
                raise VitrailError(f"the row '{row}' has no column '{column}': add one")
        x, y = numbers.loc[(row, "P-SHAP")], numbers.loc[(row, height)]
        points.append((dataset, model, x["measured"], y["measured"], x["std"], y["std"]))
    table = pd.DataFrame(points, columns=["dataset", "model", "x", "y", "x_error", "y_error"])
    return _merged(table).drop_duplicates(["dataset", "model"])


def _merged(table: pd.DataFrame) -> pd.DataFrame:
    """Give datasets that share all their points one name, "A = B"."""
    sharing = defaultdict(list)
    for name, own in table.groupby("dataset", sort=False):
        sharing[own.drop(columns="dataset").to_csv(index=False)].append(str(name))  # NaN equals NaN
    names = {name: " = ".join(group) for group in sharing.values() for name in group}
    return table.assign(dataset=table["dataset"].map(names))


def _scatter(
    points: pd.DataFrame, ylabel: str, links: Mapping[str, str] | None = None, **shape: Any
) -> tuple[Figure, Axes]:
    """Draw points by dataset and model, and dotted lines to the models that `links` gives."""
    fig, ax = style.figure(**{"aspect": 0.8} | shape)
    ax.set(xlabel="P-SHAP", ylabel=ylabel)
    _draw(ax, points, colours := _colours(points), links)
    by_dataset = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    by_model = [
        Line2D([], [], **_marker(model, "black"), label=model)
        for model in MODELS
        if model in set(points.dropna(subset=["x", "y"])["model"])
    ]
    widest = int((fig.get_figwidth() - HANDLE) / LETTER)  # letters in a line of the figure
    for handles, side in ((by_dataset, "upper"), (by_model, "lower")):
        lines = [textwrap.wrap(str(handle.get_label()), widest) for handle in handles]
        for handle, label in zip(handles, lines, strict=True):
            handle.set_label("\n".join(label))
        longest = max(len(line) for label in lines for line in label)
        columns = max(1, int(fig.get_figwidth() / (LETTER * longest + HANDLE)))
        columns = 2 if len(handles) == 4 and columns == 3 else min(columns, len(handles))
        place: Any = f"outside {side} center"
        fig.legend(handles=handles, loc=place, ncols=columns, columnspacing=1)
        rows = math.ceil(sum(map(len, lines)) / columns)
        fig.set_figheight(fig.get_figheight() + LINE_HEIGHT * rows)
    return fig, ax


def _draw(
    ax: Axes, points: pd.DataFrame, colours: Mapping[str, str], links: Mapping[str, str] | None
) -> None:
    """Draw points with their spread over seeds, and dotted lines to the models of `links`."""
    rows: Any = points.itertuples()
    places = {(point.dataset, point.model): point for point in rows}
    for (dataset, model), point in places.items():
        colour = colours[dataset]
        end = places.get((dataset, (links or {}).get(model, "")))
        if end is not None:
            ax.plot([point.x, end.x], [point.y, end.y], color=colour, linestyle=":", linewidth=1)
        errors = {"xerr": point.x_error, "yerr": point.y_error}
        ax.errorbar(point.x, point.y, **errors, color=colour, elinewidth=0.6, alpha=0.5)
        look = _marker(model, colour)
        ax.plot(point.x, point.y, **look, label=f"{dataset}, {model}", zorder=3)


def _enlarge(axes: Axes, points: pd.DataFrame, links: Mapping[str, str] | None, fit: bool) -> None:
    """Enlarge points that cover each other (`_crowded`), in the place that covers least others.

    Covered are points and places on lines. Of equally free places a corner is taken.
    """
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    axes.set(xlim=limits[0], ylim=limits[1])
    extent = np.ptp(limits, axis=1)
    if (crowd := _crowded(points, extent)) is None:
        return
    name, own = crowd
    size = INSET if own["dataset"].nunique() == 1 else LARGE_INSET
    left, below, right, above = 0.13, 0.09, 0.97 - size[0], 0.94 - size[1]
    between = itertools.product(np.linspace(left, right, 7), np.linspace(below, above, 7))
    places = [(right, below), (left, below), (right, above), (left, above), *between]
    shares = (_drawn(axes) - limits[:, 0]) / extent

    def covered(place: tuple[float, float], around: np.ndarray) -> int:
        """Count what is drawn under an inset at this place, or in the space around it."""
        low, high = np.array(place) - around[0], np.array(place) + size + around[1]
        return int(((shares >= low) & (shares <= high)).all(axis=1).sum())

    nothing, labels = np.zeros((2, 2)), np.array(AROUND)
    best = min(places, key=lambda place: (covered(place, nothing), covered(place, labels)))
    inset = axes.inset_axes((*best, *size))
    colours = _colours(points)
    _draw(inset, own, colours, links)
    if fit:
        _draw_fits(inset, own, colours)
    inset.axhline(0, color=LINE, linewidth=0.6, zorder=1)
    inset.margins(0.15)
    low, high = inset.get_ylim()  # at least 1.4 points high, so that noise is not enlarged
    inset.set_ylim(min(low, (low + high - 1.4) / 2), max(high, (low + high + 1.4) / 2))
    title = inset.set_title(f"{name}, enlarged", fontsize=7, pad=2, loc="right")
    title.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    inset.tick_params(labelsize=6, pad=1)
    inset.locator_params("x", nbins=2)
    inset.locator_params("y", nbins=3)


def _drawn(axes: Axes) -> np.ndarray:
    """Return the points that are drawn, and 50 places on each line and error bar: ``(N, 2)``."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]
    ends = [np.asarray(line.get_xydata(), dtype=float) for line in lines]
    bars = [bar for bar in axes.collections if isinstance(bar, LineCollection)]
    ends += [np.asarray(end, dtype=float) for bar in bars for end in bar.get_segments()]
    return np.concatenate([np.linspace(own[0], own[-1], 50) for own in ends if len(own)])


def _crowded(points: pd.DataFrame, extent: np.ndarray) -> tuple[str, pd.DataFrame] | None:
    """Return the name and the points of what an axis of this width and height shows too small.

    It is the first dataset whose points nearly coincide; else, of four or more datasets, all but
    one, if that one needs most of the height; else None. Names are without the stand-ins, which the
    legend has.
    """
    places = points.dropna(subset=["x", "y"]).groupby("dataset", sort=False)
    for dataset, own in places[["x", "y"]]:
        if len(own) > 1 and (np.ptp(own.to_numpy(dtype=float), axis=0) < CROWDED * extent).all():
            return str(dataset).partition(" (")[0], points[points["dataset"] == dataset]
    heights = places["y"].agg(np.ptp)
    if len(heights) > 3:
        tallest = heights.idxmax()
        others = points[points["dataset"] != tallest]
        if np.ptp(others["y"].dropna()) < FLAT * extent[1]:
            return f"without {str(tallest).partition(' (')[0]}", others
    return None


def _marker(model: str, colour: str) -> dict[str, Any]:
    marker, filled = MODELS[model]
    face = {"markersize": SIZES.get(marker, 5.0), "markerfacecolor": colour if filled else "white"}
    return {"color": colour, "marker": marker, "linestyle": "", **face}


def _colours(points: pd.DataFrame) -> dict[str, str]:
    """Return the colour of each dataset; colours follow the order of the rows."""
    return {name: style.colour(index) for index, name in enumerate(points["dataset"].unique())}


def _draw_fits(axes: Axes, points: pd.DataFrame, colours: Mapping[str, str]) -> None:
    """Draw each dataset's least-squares line, over the P-SHAP of the paper's models: not `OURS`.

    Source: position, the captions of Figures 3 and 4.
    """
    drawn = points[~points["model"].isin(OURS)]
    for dataset, colour in colours.items():
        own = drawn.loc[drawn["dataset"] == dataset, ["x", "y"]].dropna()
        x, y = own.to_numpy(dtype=float).T
        if len(x) > 1 and np.ptp(x) > 0:
            # Not seaborn's regplot: it solves by LAPACK, whose last bits, and so the pixels, differ
            # between processes. No band: for five points it would cover half of the figure.
            slope, intercept = statistics.linear_regression(x, y)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, slope * ends + intercept, "--", color=colour, linewidth=0.9)
