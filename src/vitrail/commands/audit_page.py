"""The page of an audit (`vitrail.commands.audit`): its numbers as four plots with intervals.

A part is a mapping with ``rows``, or with ``refused``, the sentence that says why it could not be
measured; the sentence is then printed in place of the plot.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font

from vitrail.commands.audit_answers import CONSISTENT, KEPT, interval, recipe, short
from vitrail.style import MARKERS, STYLE, colour, figure, save, stamp

Part = Mapping[str, Any]
Row = Mapping[str, Any]


def page(parts: Mapping[str, Part], title: str, origin: str, stem: Path) -> None:
    """Write the page of an audit's `parts` as ``<stem>.png`` and ``<stem>.svg``.

    `parts` are by name. `title` names the model and the images; `origin` (software, device,
    weights) is printed at the edge.

    Raises:
        VitrailError: the folder cannot be written to.
    """
    # Dollar signs in names of folders and models must not start mathematics.
    plain = {"text.parse_math": False}
    shape: Any = {"aspect": 0.9, "rows": 2, "columns": 2, "height_ratios": (1, 0.8)}
    fig, axes = figure("text", settings=plain, **shape)
    _bars(axes[0, 0], "Shifted", parts, "Circular shifts", "Standard shifts")
    _bars(axes[0, 1], "Turned and mirrored", parts, "Turns and mirrors")
    _position(axes[1, 0], parts["P-SHAP"])
    _sizes(axes[1, 1], parts["Test sizes"])
    fig.suptitle("\n".join([textwrap.fill(_drawable(title), 100), _headline(parts["Accuracy"])]))
    stamp(fig, [origin])
    save(fig, stem)


def _drawable(text: str) -> str:
    """Replace letters that the figures' font lacks, such as Chinese ones, by ``\\u....``."""
    font = get_font(findfont(STYLE["font.family"])).get_charmap()
    return "".join(
        letter if ord(letter) in font else letter.encode("ascii", "backslashreplace").decode()
        for letter in text
    )


def _headline(accuracy: Part) -> str:
    if "refused" in accuracy:
        return "no labels: each image's label is the class that the model predicts"
    return ", ".join(f"{row['quantity']} {_told(row)} %" for row in accuracy["rows"])


def _bars(axes: Axes, title: str, parts: Mapping[str, Part], *names: str) -> None:
    """Draw a bar with the share of unchanged predictions for each condition of the named parts."""
    own = {name: parts[name] for name in names}
    shares = [row for row in _begin(axes, title, *own.values()) if row["quantity"] == KEPT]
    if not shares:
        return
    conditions, values = ([row[key] for row in shares] for key in ("condition", "value"))
    axes.barh(conditions, values, xerr=_errors(shares), color=colour(0), height=0.6, **WHISKERS)
    for place, value in enumerate(values):
        axes.text(102, place, f"{value:.1f}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.axvline(CONSISTENT, color="#404040", linestyle="--", linewidth=0.8)
    label = [f"predictions that stay, % (dashed: {CONSISTENT})"]
    for name, part in own.items():
        file, _, _section = recipe(name, part).partition("#")  # sections' names are too wide here
        label += textwrap.wrap(file, 46)
    axes.set(xlim=(0, 100), xlabel="\n".join(label))


def _position(axes: Axes, part: Part) -> None:
    for row in _begin(axes, "Dependence on position", part):  # a single one
        errors = _errors([row]) if interval(row) else None
        axes.errorbar(row["value"], 0, xerr=errors, fmt="o", color=colour(0), capsize=3)
        axes.text(0.5, 0.6, _told(row), transform=axes.transAxes, ha="center")
        label = "P-SHAP: 0 is image alone, 1 is position alone"
        label += f"\n({row['condition']})" if row["condition"] else ""
        axes.set(xlim=(0, 1), ylim=(-1, 1), yticks=[], xlabel=label)


def _sizes(axes: Axes, part: Part) -> None:
    """Draw a line over image sizes for each calibration of the positions."""
    rows = _begin(axes, "Other test sizes", part)
    if not rows:
        return
    names = list(dict.fromkeys(row["quantity"] for row in rows))
    pixels = sorted({_pixels(row) for row in rows})
    for index, name in enumerate(names):
        own = [row for row in rows if row["quantity"] == name]
        # Next to each other, so that no interval hides another.
        beside = 0.008 * max(pixels) * (index - (len(names) - 1) / 2)
        places = [_pixels(row) + beside for row in own]
        values = [row["value"] for row in own]
        look: Any = {"color": colour(index), "marker": MARKERS[index], "capsize": 2}
        axes.errorbar(places, values, _errors(own), label=name.partition(": ")[2], **look)
    if len(names) > 1:
        axes.legend()
    quantity = names[0].partition(": ")[0]
    label = "top-1, %" if quantity == "top-1" else "images whose prediction stays, %"
    where = "image size, pixels" + (" (points beside each other)" if len(names) > 1 else "")
    axes.set(ylim=(0, 103), xticks=pixels, xlabel=where, ylabel=label)


def _pixels(row: Row) -> int:
    """Return the image size in pixels of a row of the part "Test sizes"."""
    return int(row["condition"].split()[0])


WHISKERS: Any = {"error_kw": {"elinewidth": 0.8, "capsize": 2, "ecolor": "#404040"}}


def _begin(axes: Axes, title: str, *parts: Part) -> list[Row]:
    """Set the title, print why parts were refused, and return the rows of the other parts."""
    axes.set_title(title, loc="left")
    rows = [row for part in parts for row in part.get("rows", [])]
    refused = [part["refused"] for part in parts if "refused" in part]
    if refused:
        said = "\n".join(textwrap.fill(f"Not measured: {_drawable(part)}", 46) for part in refused)
        axes.text(0.02, 0.02 if rows else 0.5, said, transform=axes.transAxes, fontsize=7)
    if not rows:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return rows


def _errors(rows: Sequence[Row]) -> list[list[float]]:
    """Return the lengths of the intervals below and above the values, (2, n)."""
    below = [max(0.0, row["value"] - row["low"]) for row in rows]
    return [below, [max(0.0, row["high"] - row["value"]) for row in rows]]


def _told(row: Row) -> str:
    return short(row["value"]) + (f" ({interval(row)})" if interval(row) else "")
