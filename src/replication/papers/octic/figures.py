"""Figures 1 to 7 and Appendix B's intensities, drawn from cells and from the illustrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import NullLocator

from replication.papers.octic.figure_data import BANKS, STAGES
from vitrail import style
from vitrail.octic.group import ELEMENTS, regular
from vitrail.style import Measurements

Point = tuple[float, float]

# A family has one colour and marker in all figures; Figure 4b has H8 and I8, in this order.
FAMILIES = {"ViT": 6, "H2": 3, "I8": 1, "H8": 0, "D2": 4, "D8": 2}
LIMIT = 64 / 12  # multiplications of a dense linear layer divided by those of an octic one
DIGITS = (1, 1.5, 2, 3, 5, 7)  # of the numbers that label a decade
DIVERGING = mpl.colormaps["RdBu_r"]  # zero is white; blue and red are safe for all readers
PLANES = ("$A_1$", "$A_2$", "$B_1$", "$B_2$", "$E$", "$E$", "$E$", "$E$")
PLANE_COLOURS = (0, 5, 2, 4, 3, 3, 3, 3)  # of the palette, one for each irrep
STAGE_LABELS = {
    "norm1": "LayerNorm",
    "proj": "attention, proj",
    "norm2": "LayerNorm",
    "GELU": "$F^{-1}$, GELU, $F$",
}
FILTERS_ACROSS = 4
LINE = "#707070"
# The two mirrorings that generate the group: each with its colour and words.
MIRRORS = {"m": (style.colour(0), "left-right"), "mr": (style.colour(4), "diagonal")}
# Places of a ring, clockwise: row and column.
RING = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
HOLLOW: Any = {"marker": "o", "linestyle": "", "mfc": "white"}
CENTRED: Any = {"ha": "center", "va": "center"}
ABOVE: Any = {"loc": "outside upper center"}


def fig1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw accuracy against multiply-adds and throughput, as printed and as measured (Figure 1).

    Rows are "<family>, <size>", such as "D8, ViT-L/16"; columns are "Top-1 Acc.", "GMACs" and
    "Throughput (im/s)". At a smaller scale one small model represents both sizes, or only one of
    them: it is one point, and is not drawn against throughput, which the table has for the two
    original sizes.
    """
    accuracy, products, speed = "Top-1 Acc.", "GMACs", "Throughput (im/s)"
    judged = cells[cells["column"] == accuracy].set_index("row")
    run = judged.dropna(subset=["measured"])
    models = run.drop_duplicates("measurement")
    panels = [("paper_value", products), ("paper_value", speed), ("measured", products)]
    if len(models) == len(judged):
        panels.append(("measured", speed))
    sizes = list(dict.fromkeys(row.split(", ")[1] for row in judged.index))
    fig, axes = style.figure("text", aspect=0.36, columns=len(panels))
    axes[1].sharey(axes[0])
    for ax, (source, cost) in zip(axes, panels, strict=True):
        wide = cells.pivot(index="row", columns="column", values=source)
        wide = wide.loc[models.index if source == "measured" else judged.index]
        for family, index in FAMILIES.items():
            own = wide[wide.index.str.startswith(f"{family}, ")]
            smaller = own[~own.index.str.endswith(sizes[0])]
            look = {"color": style.colour(index), "marker": style.MARKERS[index], "markersize": 5}
            ax.plot(own[cost], own[accuracy], label=family, **look)
            ax.plot(smaller[cost], smaller[accuracy], **HOLLOW | look)
            if source == "measured":
                bounds = judged.loc[own.index]
                ax.vlines(
                    own[cost], bounds["ci_low"], bounds["ci_high"], color=look["color"], lw=0.7
                )
        ax.set_title("here" if source == "measured" else "as printed")
        ax.set_xlabel(cost)
        if wide[cost].max() > 2 * wide[cost].min():
            ax.set_xscale("log")
            _label_places(ax, [10.0**power * digit for power in range(-3, 6) for digit in DIGITS])
        else:
            ax.locator_params(axis="x", nbins=4)
    axes[0].set_ylabel("Top-1 accuracy (%)")
    handles, labels = axes[0].get_legend_handles_labels()
    for fill, _ in zip(("black", "white"), sizes, strict=False):
        handles.append(Line2D([], [], color="black", **HOLLOW | {"mfc": fill}))
    fig.legend(handles, [*labels, *sizes], **ABOVE, ncols=8, columnspacing=1)
    return fig


def fig2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw `intertwiner`: dense in the regular basis, sparse in the isotypic one (Figure 2)."""
    values = style.first_seed(measurements[0])
    names = {
        "regular": [f"$y_{plane}$" for plane in range(8)],
        "isotypic": [*PLANES[:4], "$E_1$", "$E_1$", "$E_2$", "$E_2$"],
    }
    fig, axes = style.figure("column", aspect=0.62, columns=2)
    for ax, (basis, labels) in zip(axes, names.items(), strict=True):
        matrix = np.asarray(values[f"{basis}/matrix"])
        top = np.abs(matrix).max()
        mask = np.abs(matrix) < 1e-9 * top
        style.heat_map(ax, matrix, mask=mask, cmap=DIVERGING, vmin=-top, vmax=top)
        edges = np.linspace(0, len(matrix), 9)
        middles = (edges[1:] + edges[:-1]) / 2
        ax.set_xticks(middles, labels)
        ax.set_yticks(middles, labels, rotation=0)
        ax.tick_params(labelsize=7, pad=1, labeltop=True, labelbottom=False)
        for edge in edges:
            ax.axhline(edge, color="#D0D0D0", linewidth=0.4)
            ax.axvline(edge, color="#D0D0D0", linewidth=0.4)
        ax.set_xlabel(
            f"{basis} basis\n{values[f'{basis}/share']:.4g} % non-zero\n"
            f"{values[f'{basis}/multiplications']:.0f} multiplications"
        )
    return fig


def fig3(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the families' chains of blocks, and an octic block with its planes (Figure 3).

    The measurement is `block_planes` with the labels d8, i8 and h8.
    """
    values = style.first_seed(measurements[0])
    fig, (families, block) = style.figure("text", aspect=0.53, rows=2, height_ratios=(1, 1.3))
    for ax in (families, block):
        ax.set_axis_off()
    for row, family in enumerate(("d8", "i8", "h8")):
        _family(families, -row, family, values)
    families.set(xlim=(0, 9.65), ylim=(-2.4, 0.4))
    _octic_block(block, values)
    return fig


def fig4a(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the saving of a block by width, with its limit 16/3 (Figure 4a)."""
    fig, ax = _by_width(cells, "dense over octic MACs of a block")
    ax.axhline(LIMIT, color="black", linewidth=0.9, linestyle="--")
    _note(ax, f"linear layers alone: {LIMIT:.2f}", (0, LIMIT), ax.get_yaxis_transform(), va="top")
    ax.set_ylim(top=1.05 * LIMIT)
    return fig


def fig4b(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw accuracy by the number of octic blocks k, of H8 and I8 (Figure 4b).

    A smaller model has one run for several k; those after the first are hollow.
    """
    fig, ax = style.figure()
    cells = cells.dropna(subset="measured")
    style.lines(ax, cells)
    again = cells[cells.duplicated(["row", "measurement"])]
    ax.plot(again["column"].astype(float), again["measured"], mec="none", ms=2, **HOLLOW)
    ax.set(
        xlabel="octic blocks k of 24\n(smaller models: the same share)",
        ylabel="Top-1 accuracy (%)",
    )
    ax.set_xticks(sorted(cells["column"].astype(int).unique()))
    handles, _ = ax.get_legend_handles_labels()
    if len(again):
        label = "same model as the point before"
        handles.append(Line2D([], [], mec="black", ms=4, label=label, **HOLLOW))
    if cells["std"].notna().any():
        label = f"{cells['n_seeds'].max():.0f} seeds (95 %), else 1"
        handles.append(Line2D([], [], color="black", marker="|", linestyle="", label=label))
    fig.legend(handles=handles, **ABOVE, ncols=2)
    return fig


def fig5(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw `cayley`'s diagrams of a photograph and of its features (Figure 5)."""
    values = style.first_seed(measurements[0])
    patch, top = int(values["patch"]), _scale_of_irrep(np.asarray(values["e/features"]))
    photographs, features = {}, {}
    for element in ELEMENTS:
        photographs[element] = _patches(np.asarray(values[f"{element}/pixels"]) / 255, patch)
        planes = np.asarray(values[f"{element}/features"]) / top
        features[element] = _mosaic(DIVERGING(planes / 2 + 0.5)[..., :3], 4)
    filters = np.asarray(values["filters"])
    filters = _mosaic(filters / np.abs(filters).max(axis=(1, 2, 3), keepdims=True) / 2 + 0.5, 4)
    fig, (left, right) = style.figure("text", aspect=0.4, columns=2, width_ratios=(1, 1.62))
    middle = _cayley_diagram(left, photographs)
    for height, (mirror, (colour, words)) in zip((-0.2, 0.2), MIRRORS.items(), strict=True):
        text = f"{_power(mirror)}: {words}"
        left.text(middle[0], middle[1] + height, text, color=colour, fontsize=7, **CENTRED)
    middle = _cayley_diagram(right, features)
    _place(right, filters, middle)
    for plane, name in enumerate(PLANES):
        side, va = (-0.27, "bottom") if plane < 4 else (0.27, "top")
        x, y = middle[0] + (plane % 4 - 1.5) / 4, middle[1] + side
        right.text(x, y, name, fontsize=7, ha="center", va=va)
    return fig


def fig6(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the principal components of the six banks of each `learned_filters` (Figure 6).

    Rows are called ``training: bank``; each training that was measured has a line of pictures.
    """
    trained = dict.fromkeys(cells.dropna(subset=["measured"])["row"].str.split(": ").str[0])
    per_training = [style.first_seed(measurement) for measurement in measurements]
    components = [np.asarray(v[f"{bank}/components"]) for v in per_training for bank in BANKS]
    rows = max(-(-len(bank) // FILTERS_ACROSS) for bank in components)
    lines = len(per_training)
    fig, axes = style.figure(
        "text", aspect=(0.04 + 0.045 * rows) * lines, rows=lines, columns=len(BANKS)
    )
    for line, (training, values) in zip(
        np.atleast_2d(axes), zip(trained, per_training, strict=True), strict=True
    ):
        for ax, bank in zip(line, BANKS, strict=True):
            filters = np.asarray(values[f"{bank}/components"])
            style.picture(ax, _mosaic(filters / 2 + 0.5, FILTERS_ACROSS, rows))
            ax.set(title=bank, xlabel=f"{values[f'{bank}/explained']:.1f} %")
        line[0].set_ylabel(training)
    return fig


def fig7(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the accuracy of nearest neighbours in the course of a training (Figure 7).

    Columns are percent of the training, rows are families.
    """
    fig, ax = style.figure()
    style.lines(ax, cells, {row: FAMILIES[row] for row in dict.fromkeys(cells["row"])})
    ax.set(xlabel="share of training (%)", ylabel="20-NN accuracy (%)")
    fig.legend(**ABOVE, ncols=5, columnspacing=1)
    return fig


def figb1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw arithmetic intensity by width, and where octic layers overtake (octic, App. B).

    The measurement is `replication.papers.octic.measures.arithmetic_intensity`; its "crossing" is
    marked.
    """
    fig, ax = _by_width(cells, "FLOPs per byte")
    crossing = style.first_seed(measurements[0])["crossing"]
    ax.axvline(crossing, color="black", linewidth=0.9, linestyle=":")
    _note(ax, f"d = {crossing:.0f}", (crossing, 0), ax.get_xaxis_transform(), ha="right")
    return fig


def ring() -> list[str]:
    """Return the elements as the two mirrorings reach them in turn: m, then mr, then m, ..."""
    elements = ["e"]
    for mirror in [*MIRRORS] * 4:
        matrix = regular(mirror) @ regular(elements[-1])
        elements.append(next(element for element in ELEMENTS if (regular(element) == matrix).all()))
    return elements[:-1]  # the last mirroring leads back


def _by_width(cells: pd.DataFrame, ylabel: str) -> tuple[Figure, Axes]:
    """Draw a line for each row over widths, on a logarithmic axis."""
    fig, ax = style.figure()
    style.lines(ax, cells)
    ax.set(xlabel="embedding dimension d", ylabel=ylabel, xscale="log")
    _label_places(ax, [2**power for power in range(4, 17)])
    if cells["row"].nunique() > 1:
        ax.legend()
    return fig, ax


def _label_places(axes: Axes, places: Sequence[float]) -> None:
    """Label those `places` of a logarithmic x axis that the data cover, as plain numbers."""
    low, high = axes.dataLim.intervalx
    shown = [place for place in places if low <= place <= high]
    axes.set_xticks(shown, [f"{place:g}" for place in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _note(axes: Axes, text: str, place: Point, system: Any, **aligned: Any) -> None:
    """Write a text next to a line, at a distance of three points."""
    offset = (-3 if aligned.get("ha") == "right" else 3, -3 if aligned.get("va") == "top" else 3)
    axes.annotate(text, place, offset, system, "offset points", fontsize=7, **aligned)


def _arrow(axes: Axes, start: Point, end: Point, colour: str = LINE, **look: Any) -> None:
    look = {"arrowstyle": "-|>", "mutation_scale": 6, "linewidth": 0.8} | look
    look |= {"color": colour, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=look)


def _family(axes: Axes, y: float, family: str, values: Mapping[str, Any]) -> None:
    """Draw a model as a chain of boxes at height `y`: octic ones coloured, the others grey."""
    octic, standard, tokens, channels, invariants = (
        int(values[f"{family}/{quantity}"])
        for quantity in ("octic blocks", "standard blocks", "tokens", "channels", "invariants")
    )
    blocks = f"{octic} octic blocks\n8 × {tokens} × {channels // 8}"
    steps = [
        ("PatchEmbed", 1.1, True),
        (blocks, 1.75 if standard else 5.2, True),
        (f"{invariants} invariants" if invariants else "concatenate", 1.3, False),
        (f"{standard} standard blocks\n{tokens} × {channels}", 1.75 if standard else 0, False),
        ("head", 0.6, False),
    ]
    colour = style.colour(FAMILIES[family.upper()])
    axes.text(0.05, y, family.upper(), color=colour, weight="bold", va="center")
    left = 0.6
    for text, width, is_octic in (step for step in steps if step[1]):
        _arrow(axes, (left, y), (left + 0.2, y))
        left += 0.2
        face = mpl.colors.to_rgba(colour, 0.25) if is_octic else "#EDEDED"
        look: Any = {"fc": face, "ec": colour if is_octic else LINE, "linewidth": 0.8}
        form = "round,pad=0,rounding_size=0.06"
        axes.add_patch(FancyBboxPatch((left, y - 0.32), width, 0.64, form, **look))
        axes.text(left + width / 2, y, text, fontsize=7, **CENTRED)
        left += width


def _octic_block(axes: Axes, values: Mapping[str, Any]) -> None:
    """Draw the planes that each part of a block returns, as bars as long as their channels."""
    shapes = {"x": values["norm1/shape"]} | {stage: values[f"{stage}/shape"] for stage in STAGES}
    unit = 0.62 / max(shape[-1] for shape in shapes.values())
    end = 0.0
    for place, (stage, (planes, _, tokens, channels)) in enumerate(shapes.items()):
        for plane, index in enumerate(PLANE_COLOURS):
            corner = (place, 7.1 - plane)
            axes.add_patch(Rectangle(corner, unit * channels, 0.8, color=style.colour(index), lw=0))
        label = f"{STAGE_LABELS.get(stage, stage)}\n{planes} × {tokens} × {channels}"
        axes.text(place, -0.3, label, fontsize=7, va="top")
        if place:
            _arrow(axes, (end + 0.05, 4), (place - 0.05, 4))
        end = place + unit * channels
    for plane, name in enumerate(PLANES):
        axes.text(-0.06, 7.5 - plane, name, fontsize=7, ha="right", va="center")
    width = unit * shapes["x"][-1]
    for first, last in ((0, 3), (3, 7)):  # what is added to the outputs of proj and fc2
        start, stop = first + 0.75 * width, last + 0.25 * width
        axes.plot([start, start, stop], [8.2, 9.2, 9.2], color=LINE, linewidth=0.8)
        _arrow(axes, (stop, 9.2), (stop, 8.1))
        axes.text(stop - 0.05, 8.6, "+", color=LINE, ha="right", va="center")
    axes.set(xlim=(-0.3, len(shapes) - 0.15), ylim=(-2.2, 10.5))


def _cayley_diagram(axes: Axes, pictures: Mapping[str, np.ndarray]) -> Point:
    """Draw a picture for each element in a ring, arrows between; return the middle of the ring."""
    height = len(pictures["e"]) / pictures["e"].shape[1]
    pitch = (1.35, height + 0.4)
    centres = [(pitch[0] * column, pitch[1] * row) for row, column in RING]
    colours = [colour for colour, _ in MIRRORS.values()] * 4
    following = zip(centres, [*centres[1:], centres[0]], ring(), colours, strict=True)
    for (x, y), (next_x, next_y), element, colour in following:
        _place(axes, pictures[element], (x, y))
        axes.text(x - 0.5, y - height / 2 - 0.03, _power(element), fontsize=7)
        across, down = 0.13 * np.sign(next_x - x), 0.13 * np.sign(next_y - y)
        mid_x, mid_y = (x + next_x) / 2, (y + next_y) / 2
        ends = (mid_x - across, mid_y - down), (mid_x + across, mid_y + down)
        _arrow(axes, *ends, colour, arrowstyle="<|-|>")
    axes.set(xlim=(-0.52, 2 * pitch[0] + 0.52), ylim=(2.5 * height + 0.82, -height / 2 - 0.2))
    return pitch


def _place(axes: Axes, picture: np.ndarray, centre: Point) -> None:
    """Show a picture one unit wide, centred at `centre`."""
    (x, y), half = centre, len(picture) / picture.shape[1] / 2
    style.picture(axes, picture, extent=(x - 0.5, x + 0.5, y + half, y - half))


def _power(element: str) -> str:
    """Write an element as mathematics: mrrr as m r^3."""
    turns = element.count("r")
    turn = f"r^{turns}" if turns > 1 else "r" * turns
    return f"${element[0] if element[0] in 'em' else ''}{turn}$"


def _patches(pixels: np.ndarray, size: int) -> np.ndarray:
    """Cut ``(S, S, 3)`` into patches of `size` pixels, with white between."""
    count = len(pixels) // size
    grid = pixels.reshape(count, size, count, size, 3).swapaxes(1, 2)
    return _mosaic(grid.reshape(-1, size, size, 3), count)


def _scale_of_irrep(planes: np.ndarray) -> np.ndarray:
    """Return the 98 % quantile of each plane's absolute values, ``(8, 1, 1)``.

    The two rows of a copy of E share the larger one.
    """
    scale = np.quantile(np.abs(planes), 0.98, axis=(1, 2))
    scale[4:] = scale[4:].reshape(2, 2).max(axis=1).repeat(2)
    return scale[:, None, None]


def _mosaic(tiles: np.ndarray, columns: int, rows: int | None = None) -> np.ndarray:
    """Put ``(n, h, w, 3)`` colours side by side in rows of `columns`, white between and after."""
    n, height, width, _ = tiles.shape
    gap = max(1, round(width / 12))
    rows = rows or -(-n // columns)
    image = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap, 3))
    for index, tile in enumerate(tiles):
        top, left = (height + gap) * (index // columns), (width + gap) * (index % columns)
        image[top : top + height, left : left + width] = tile
    return image
