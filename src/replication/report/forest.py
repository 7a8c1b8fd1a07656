"""The forest plot: every empirical effect with its interval, beside the printed effect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from replication.claims.effects import effects_of
from vitrail.style import PALETTE, figure

if TYPE_CHECKING:
    import pandas as pd

LOOKS = {
    "held": PALETTE[2],
    "contrary": PALETTE[1],
    "undecided": PALETTE[4],
    "not tested": "#9A9A9A",
}
ROW = 0.085  # inches
LINEAR = 1.0  # points: smaller effects are drawn on a linear scale
WIDE = 20.0  # points: an axis up to here has ticks at 2 and 5, too


def forest(claims: pd.DataFrame) -> Figure:
    """Draw the effects of judged claims (`replication.claims.judge`), with one panel per paper."""
    effects = effects_of(claims)
    papers = [*dict.fromkeys(effects["paper"])]
    if not papers:
        fig, axes = figure("text", 0.1)
        axes.set_title("No empirical effect was measured.")
        axes.axis("off")
        return fig
    most = int(effects.groupby("paper").size().max())
    rows = math.ceil(len(papers) / 2)
    height = rows * (most * ROW + 1.0)  # inches, with titles and axes
    fig, axes = figure("text", height / 6.75, rows, min(len(papers), 2))
    for panel, paper in zip(np.ravel(np.array(axes)), papers, strict=False):
        _panel(panel, paper, effects[effects["paper"] == paper].sort_values("effect"))
    for empty in np.ravel(np.array(axes))[len(papers) :]:
        empty.axis("off")
    handles = [
        Line2D([], [], color=shade, marker="o", lw=1, ms=3, label=status)
        for status, shade in LOOKS.items()
    ]
    printed: Any = {"color": "black", "marker": "D", "mfc": "none", "lw": 0, "ms": 3}
    handles.append(Line2D([], [], label="printed in the paper", **printed))
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return fig


def _panel(axes: Any, paper: str, effects: pd.DataFrame) -> None:
    """Draw the effects of one paper, the largest at the top."""
    for place, effect in enumerate(effects.to_dict("records")):
        half = effect["half_width"]
        axes.errorbar(
            effect["effect"],
            place,
            xerr=None if math.isnan(half) else half,
            color=LOOKS[effect["status"]],
            fmt="o",
            ms=2,
            elinewidth=0.7,
        )
        axes.plot(effect["printed_effect"], place, "D", color="black", mfc="none", ms=2.5, mew=0.5)
    axes.axvline(0, color="black", lw=0.5)
    limits = axes.get_xlim()
    axes.set_xscale("symlog", linthresh=LINEAR)
    steps = (1, 2, 5) if max(map(abs, limits)) <= WIDE else (1,)
    ticks = [step * 10**power for power in range(3) for step in steps]
    ticks = [0, *ticks, *(-tick for tick in ticks)]
    axes.set_xticks([tick for tick in ticks if limits[0] <= tick <= limits[1]])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(effects)), effects["id"], fontsize=3.5)
    axes.set(
        title=paper,
        xlabel="points (other units: hundredths)",
        ylim=(-1, len(effects)),
    )
    axes.grid(axis="y", visible=False)
