"""The figures show what the measurements say, for every artifact that has a drawing."""

import importlib

import pandas as pd
import pytest

from replication.papers.variance.figures import fig1, fig2, fig3, sweep
from replication.plan.catalog import load_catalog

CALIBRATIONS = ("baseline", "iid", "empirical")


def tidy(rows, columns, value):
    return pd.DataFrame(
        {"row": row, "column": column, "measured": value(row, column), "std": 0.25}
        for row in rows
        for column in columns
    )


def test_every_drawing_that_the_paper_names_exists(root):
    paper = load_catalog(scale="full", root=root).paper("variance")
    drawn = [artifact.draw for artifact in paper.artifacts.values() if artifact.draw]
    functions = [
        getattr(importlib.import_module(m), f) for m, f in (name.split(":") for name in drawn)
    ]
    assert {*functions} == {fig1, fig2, fig3, sweep}


def test_figure_1_shows_the_ratio_against_training():
    """variance, Eq. 5-6."""
    quantities = {"patch embedding": 2.0, "UP(P)": 0.5, "UP(P)/sqrt(k)": 1.0, "empirical": 1.0}
    cells = tidy(
        ["training", "test 224²"],
        quantities,
        lambda row, column: (
            quantities[column] * (0.5 if (row, column) == ("test 224²", "UP(P)") else 1)
        ),
    )
    variance, ratio = fig1(cells, []).axes
    assert [line.get_label() for line in variance.lines] == [
        "X (patch)", "UP(P)", r"UP(P)$/\sqrt{k}$", "empirical",
    ]  # fmt: skip
    assert [list(line.get_ydata()) for line in ratio.lines[:2]] == [[1, 2], [1, 1]]
    assert [label.get_text() for label in ratio.get_xticklabels()] == ["training", "224²"]


def test_figure_2_draws_all_maps_on_one_scale():
    maps = {"P": [[1.0, 2.0]], **{name: [[1.0, 2.0, 3.0]] for name in CALIBRATIONS}}
    values = {f"map {name}": variances for name, variances in maps.items()}
    values |= {f"{name}/ratio": 0.9 for name in maps}
    fig = fig2(pd.DataFrame(), [{"values": {"0": values}}])
    images = [image for axes in fig.axes[:4] for image in axes.images]
    assert [image.get_clim() for image in images] == [(0, 3)] * 4
    assert images[0].get_array().tolist() == maps["P"]


def test_figure_3_writes_the_variance_under_each_image():
    cells = tidy(
        ["Mixup", "Cutmix"], ["variance"], lambda row, _: {"Mixup": 0.5, "Cutmix": 1.0}[row]
    )
    black = [[[0, 0, 0]] * 2] * 2
    values = {"pixels Mixup": black, "pixels Cutmix": black}
    axes = fig3(cells, [{"values": {"0": values}}]).axes
    assert [(ax.get_title(), ax.get_xlabel()) for ax in axes] == [
        ("Mixup", "Var 0.50"),
        ("Cutmix", "Var 1.00"),
    ]


def test_the_sweep_leaves_out_a_model_that_was_not_run():
    rows = ["ViT-S/16, 352²", "ViT-L/16, 352²"]
    run = tidy(rows, ["0.80", "1.00"], lambda row, _: 1.0 if "S/16" in row else None)
    assert [axes.get_title() for axes in sweep(run, []).axes] == ["ViT-S/16"]


@pytest.mark.parametrize("models", [["ViT-S/16"], ["ViT-S/16", "ViT-L/16"]])
def test_the_sweep_has_a_panel_for_each_model_and_a_line_for_each_size(models):
    rows = [f"{model}, {size}²" for model in models for size in (352, 864)]
    fig = sweep(tidy(rows, ["0.80", "1.00", "1.50"], lambda row, column: float(column)), [])
    assert [axes.get_title() for axes in fig.axes] == models
    for axes in fig.axes:
        small, large = axes.lines[:2]
        assert (small.get_label(), large.get_label()) == ("352²", "864²")
        assert list(small.get_ydata()) == [0.8, 1.0, 1.5]
        assert list(small.get_xdata()) == pytest.approx([0.8, 1.0, 1.5], abs=0.02)
        assert (small.get_xdata() < large.get_xdata()).all()  # no interval hides another
        assert round(axes.lines[-1].get_xdata()[0], 4) == 1.1708


def test_the_bars_of_the_sweep_are_one_standard_deviation():
    cells = tidy(["ViT-S/16, 352²"], ["1.00", "1.50"], lambda row, column: float(column))
    (axes,) = sweep(cells, []).axes
    bars = axes.collections[0].get_segments()
    assert [bar[:, 1].tolist() for bar in bars] == [[0.75, 1.25], [1.25, 1.75]]
