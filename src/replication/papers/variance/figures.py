"""Measured counterparts of the paper's three diagrams, and the sweep that its Table 3 suggests."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from vitrail import style
from vitrail.style import Measurements
from vitrail.variance.rescaling import constant_scale

PAPER_FACTOR = constant_scale((14, 14), (28, 28))

# Label and colour of each calibration of P, the same in all figures.
CALIBRATIONS = {
    "UP(P)": ("UP(P)", 1),
    "UP(P)/sqrt(k)": (r"UP(P)$/\sqrt{k}$", 2),
    "empirical": ("empirical", 3),
}


def fig1(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw Var[X], Var[P] and Var[X] / Var[P] in training and at the test sizes (Figure 1).

    The ratio is divided by that of training (variance, Eq. 5-6): it is 1 where there is no variance
    shift.
    """
    patch = "X (patch)"
    looks = {patch: 0, **dict(CALIBRATIONS.values())}
    names = {"patch embedding": patch} | {
        name: calibration[0] for name, calibration in CALIBRATIONS.items()
    }
    x, row = cells["row"].str.removeprefix("test "), cells["column"].map(names)
    values = pd.DataFrame({"x": x, "row": row, "y": cells["measured"]})
    wide = values.pivot_table(index="x", columns="row", values="y", sort=False)
    shift = wide.rdiv(wide[patch], axis=0).drop(columns=patch)
    ratios = (shift / shift.iloc[0]).melt(ignore_index=False, value_name="y").reset_index()
    fig, (variance, ratio) = style.figure(aspect=1.15, rows=2, sharex=True)
    style.series(variance, values, looks)
    style.series(ratio, ratios, dict(CALIBRATIONS.values()))
    variance.set(yscale="log", ylabel="variance")
    fig.legend(
        *variance.get_legend_handles_labels(), loc="outside upper center", ncols=4, columnspacing=1
    )
    ratio.axhline(1, color="black", linewidth=0.6)
    ratio.set_ylabel("Var[X] / Var[P],\ntraining = 1")
    ratio.set_xlabel("training, then test size (paper's pixels)")
    return fig


def fig2(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the variance of P over channels at every position, before and after (Figure 2)."""
    values = style.first_seed(measurements[0])
    labels = ("P", *(label for label, _ in CALIBRATIONS.values()))
    titles = dict(zip(("P", "baseline", "iid", "empirical"), labels, strict=True))
    maps = {name: np.asarray(values[f"map {name}"]) for name in titles}
    limits = {"vmin": 0.0, "vmax": max(variances.max() for variances in maps.values())}
    fig, axes = style.figure(aspect=1.0, rows=2, columns=2)
    for ax, (name, variances) in zip(axes.flat, maps.items(), strict=True):
        drawn = style.picture(ax, variances, **limits)
        ratio = values[f"{name}/ratio"]
        ax.set_title(
            f"{titles[name]}: {variances.shape[0]}×{variances.shape[1]}\nVar = {ratio:.3f} Var[P]"
        )
    fig.colorbar(drawn, ax=axes, label="variance over channels", fraction=0.05, pad=0.02)
    return fig


def fig3(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Show Mixup, Cutmix and random erasing of two photographs (Figure 3)."""
    values = style.first_seed(measurements[0])
    names = list(dict.fromkeys(cells["row"]))
    variance = cells.set_index("row")["measured"]
    fig, axes = style.figure("text", aspect=0.2, columns=len(names))
    for ax, name in zip(axes, names, strict=True):
        style.picture(ax, np.asarray(values[f"pixels {name}"], dtype=np.uint8))
        ax.set(title=name, xlabel=f"Var {variance[name]:.2f}")
    return fig


def sweep(cells: pd.DataFrame, measurements: Measurements) -> Figure:
    """Draw the gain over s = 1 by factor s: a panel for each model, a line for each test size.

    Error bars are one standard deviation over the seeds: with two seeds, Student's 95 % interval is
    plus and minus nine standard deviations, and would hide the lines.
    """
    cells = cells.dropna(subset=["measured"])  # a scale may lack a model
    cells[["model", "size"]] = cells["row"].str.split(", ", n=1, expand=True)
    models, sizes = (list(dict.fromkeys(cells[name])) for name in ("model", "size"))
    # Side by side, so that no interval hides another.
    places = cells["size"].map({size: 0.012 * (n - 1) for n, size in enumerate(sizes)})
    cells["column"] = cells["column"].astype(float) + places
    cells["ci_low"], cells["ci_high"] = (cells["measured"] + k * cells["std"] for k in (-1, 1))
    fig, axes = style.figure("text", aspect=0.36, columns=len(models), squeeze=False)
    for ax, model in zip(axes[0], models, strict=True):
        style.lines(ax, cells[cells["model"] == model].assign(row=cells["size"]))
        ax.axhline(0, color="black", linewidth=0.6)
        paper = ax.axvline(PAPER_FACTOR, color="black", linewidth=0.9, linestyle=":")
        ax.set(title=model, xlabel="factor s")
    axes[0, 0].set_ylabel("gain in top-1 accuracy\n(percentage points)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    named = [*(f"tested at {size}" for size in labels), "the paper's factor"]
    fig.legend([*handles, paper], named, loc="outside upper center", ncols=4)
    return fig
