"""The figures show what the cells and the measurements say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from replication.config.datasets import load_registry
from replication.context import Described
from replication.papers.position.figures import (
    MODELS,
    fig1,
    fig2,
    fig3a,
    fig3b,
    fig4a,
    fig4b,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9a,
    fig9b,
)
from replication.papers.position.measures import position_samples
from vitrail import style
from vitrail.errors import VitrailError

P_SHAP = {"EuroSAT": 0.1, "SVHN": 0.5}


def tidy(rows, height="Accuracy", std=np.nan):
    """Cells of rows that map to P-SHAP and another number."""
    return pd.DataFrame(
        {"row": row, "column": column, "measured": value, "std": std}
        for row, numbers in rows.items()
        for column, value in zip(("P-SHAP", height), numbers, strict=True)
    )


def rows_of(models, value):
    """A row for each dataset and model, P-SHAP growing by 0.01 from model to model."""
    return {
        f"{dataset}, {model}": (start + 0.01 * index, value(dataset, index))
        for dataset, start in P_SHAP.items()
        for index, model in enumerate(models)
    }


def drawn(ax):
    """The place of each point by its label."""
    return {
        line.get_label(): (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in ax.lines
        if ", " in str(line.get_label())
    }


def lines(ax, look):
    """The ends of the lines of a look, by colour."""
    return {
        line.get_color().upper(): line.get_xydata()[[0, -1]].tolist()
        for line in ax.lines
        if line.get_linestyle() == look and len(line.get_xdata()) > 1
    }


def legends(fig):
    return [[text.get_text() for text in legend.get_texts()] for legend in fig.legends]


@pytest.mark.parametrize(
    ("draw", "models"),
    [
        (fig3a, ["APE", "no PE"]),
        (fig3b, ["APE", "position augm.", "CLS token"]),
        (fig4a, ["APE", "no PE", "SIN", "RPE"]),
        (fig4b, ["APE", "FF", "CAPE", "iRPE", "RoPE"]),
        (fig6, ["APE", "FF", "CAPE", "iRPE", "RoPE"]),
        (fig8, ["APE", "RoPE", "Auto-APE", "Auto-RoPE"]),
    ],
)
def test_points_are_p_shap_and_the_gain_over_ape_of_their_dataset(draw, models):
    rows = rows_of(models, lambda dataset, index: 90 - 10 * index + len(dataset))
    fig = draw(tidy(rows), [])
    places = drawn(fig.axes[0])
    assert places.keys() == rows.keys()
    for row, (p_shap, _) in rows.items():
        index = models.index(row.partition(", ")[2])
        assert places[row] == pytest.approx((p_shap, -10 * index))
    assert legends(fig) == [list(P_SHAP), [model for model in MODELS if model in models]]


def test_a_dataset_whose_points_cover_each_other_is_shown_again_in_the_emptiest_corner():
    rows = {"SVHN, APE": (0.4, 90.0), "SVHN, no PE": (0.0, 30.0)}
    rows |= {"EuroSAT, APE": (0.006, 90.0), "EuroSAT, no PE": (0.0, 92.0)}
    fig = fig3a(tidy(rows), [])
    (inset,) = fig.axes[0].child_axes
    assert inset.get_title(loc="right") == "EuroSAT, enlarged"
    stood_in = {row.replace("EuroSAT", "EuroSAT (here: two-pieces)"): rows[row] for row in rows}
    (longer,) = fig3a(tidy(stood_in), []).axes[0].child_axes
    assert longer.get_title(loc="right") == "EuroSAT, enlarged"
    assert drawn(inset) == {"EuroSAT, APE": (0.006, 0.0), "EuroSAT, no PE": (0.0, 2.0)}
    fig.draw_without_rendering()
    corner = fig.axes[0].transAxes.inverted().transform(inset.get_window_extent().p0)
    assert corner == pytest.approx((0.67, 0.09))  # below and to the right, where no point is
    # A point where the title of an inset in that corner would be, and none in the corner beside it.
    beside = {**rows, "SVHN, no PE": (0.2, 30.0)}
    beside |= {"CIFAR-10, APE": (0.35, 90.0), "CIFAR-10, no PE": (0.3, 56.2)}
    fig = fig3a(tidy(beside), [])
    (inset,) = fig.axes[0].child_axes
    fig.draw_without_rendering()
    corner = fig.axes[0].transAxes.inverted().transform(inset.get_window_extent().p0)
    assert corner == pytest.approx((0.13, 0.09))
    spread = {row: value for row, value in rows.items() if "SVHN" in row}
    assert fig3a(tidy(spread), []).axes[0].child_axes == []


def test_datasets_beside_one_of_much_larger_effects_are_shown_again_without_it():
    low = {"EuroSAT, APE": (0.02, 90.0), "EuroSAT, no PE": (0.2, 92.0)}
    low |= {"CIFAR-10, APE": (0.1, 60.0), "CIFAR-10, no PE": (0.25, 57.0)}
    low |= {"Flowers-102, APE": (0.1, 30.0), "Flowers-102, no PE": (0.15, 31.0)}
    far = {"SVHN, APE": (0.5, 80.0), "SVHN, no PE": (0.3, 50.0)}
    (inset,) = fig3a(tidy(low | far), []).axes[0].child_axes
    assert inset.get_title(loc="right") == "without SVHN, enlarged"
    assert drawn(inset).keys() == low.keys()
    assert lines(inset, "--") == {
        colour: ends
        for colour, ends in lines(fig3a(tidy(low | far), []).axes[0], "--").items()
        if ends[0][0] < 0.3
    }
    near = {**far, "SVHN, no PE": (0.3, 74.0)}
    assert fig3a(tidy(low | near), []).axes[0].child_axes == []


def test_equal_accuracies_are_shown_on_an_axis_of_a_point_at_least():
    rows = {"SVHN, APE": (0.4, 90.0), "SVHN, no PE": (0.0, 30.0)}
    rows |= {"EuroSAT, APE": (0.006, 90.0), "EuroSAT, no PE": (0.0, 90.0 + 1e-14)}
    (inset,) = fig3a(tidy(rows), []).axes[0].child_axes
    low, high = inset.get_ylim()
    assert low <= -0.4
    assert high >= 0.4


def test_a_dashed_line_fits_the_models_of_each_dataset():
    """position, App. F."""
    gains = [0.0, 3.0, 3.0, 0.0]
    rows = rows_of(["APE", "no PE", "SIN", "RPE"], lambda _, index: 70 + gains[index])
    ax = fig4a(tidy(rows), []).axes[0]
    for colour, start in zip((style.colour(0), style.colour(1)), P_SHAP.values(), strict=True):
        # Symmetric about the middle: the least squares are the constant mean.
        ends = np.array(lines(ax, "--")[colour])
        assert ends == pytest.approx(np.array([(start, 1.5), (start + 0.03, 1.5)]))


def test_a_dashed_line_fits_three_models_too():
    """position, Figure 3(b)."""
    gains = [0.0, 3.0, 0.0]
    rows = rows_of(["APE", "position augm.", "CLS token"], lambda _, index: 70 + gains[index])
    ax = fig3b(tidy(rows), []).axes[0]
    for colour, start in zip((style.colour(0), style.colour(1)), P_SHAP.values(), strict=True):
        ends = np.array(lines(ax, "--")[colour])
        assert ends == pytest.approx(np.array([(start, 1.0), (start + 0.02, 1.0)]))


@pytest.mark.parametrize(
    ("draw", "models", "ours"),
    [
        (fig3b, ["APE", "CLS token"], "crop by patches"),
        (fig4a, ["APE", "no PE", "SIN", "RPE"], "RPE as published"),
        (fig4a, ["APE", "no PE", "SIN", "RPE"], "SIN fine-tuned"),
    ],
)
def test_a_model_that_the_paper_does_not_have_is_drawn_and_not_fitted(draw, models, ours):
    rows = rows_of(models, lambda dataset, index: 70 + index**2 + len(dataset) * index)
    more = rows | {f"{dataset}, {ours}": (0.9, 20.0) for dataset in P_SHAP}
    without, with_ours = (draw(tidy(found), []).axes[0] for found in (rows, more))
    assert drawn(with_ours).keys() == more.keys()
    assert len(lines(without, "--")) == len(P_SHAP)
    assert lines(with_ours, "--") == lines(without, "--")


def test_the_fit_leaves_out_what_is_not_measured_and_needs_two_places():
    rows = {
        "EuroSAT, APE": (0.1, 70.0),
        "EuroSAT, SIN": (0.2, 72.0),
        "EuroSAT, RPE": (np.nan, 99.0),
        "SVHN, APE": (0.5, 90.0),
        "SVHN, SIN": (0.5, 95.0),
        "CIFAR-10, APE": (np.nan, np.nan),
    }
    fits = lines(fig4a(tidy(rows), []).axes[0], "--")
    assert list(fits) == [style.colour(0)]
    assert np.array(fits[style.colour(0)]) == pytest.approx(np.array([(0.1, 0), (0.2, 2)]))


def test_datasets_that_share_their_runs_are_drawn_once_and_all_named():
    rows = rows_of(["APE", "no PE"], lambda dataset, index: 80.0 + len(dataset) * index)
    for model in ("APE", "no PE"):
        rows[f"Twin, {model}"] = rows[f"SVHN, {model}"]
    fig = fig3a(tidy(rows), [])
    assert legends(fig)[0] == ["EuroSAT", "SVHN = Twin"]
    assert len(drawn(fig.axes[0])) == 4
    rows["Twin, no PE"] = (0.51, 80.0)
    assert legends(fig3a(tidy(rows), []))[0] == ["EuroSAT", "SVHN", "Twin"]


def test_the_spread_over_seeds_is_drawn_in_both_directions():
    rows = rows_of(["APE", "no PE"], lambda *_: 80.0)
    cells = tidy(rows, std=0.25)
    bars = fig3a(cells, []).axes[0].containers[1]
    horizontal, vertical = (bar.get_segments()[0] for bar in bars.lines[2])
    assert horizontal[:, 0] == pytest.approx([0.11 - 0.25, 0.11 + 0.25])
    assert vertical[:, 1] == pytest.approx([-0.25, 0.25])


def test_models_with_auto_pe_are_hollow_and_linked_to_the_plain_ones():
    models = ["APE", "Auto-APE", "RoPE", "Auto-RoPE"]
    rows = rows_of(models, lambda _, index: 80.0 + index)
    ax = fig8(tidy(rows), []).axes[0]
    links = [
        {
            tuple(np.round(point, 9))
            for point in zip(line.get_xdata(), line.get_ydata(), strict=True)
        }
        for line in ax.lines
        if line.get_linestyle() == ":"
    ]
    for start in P_SHAP.values():
        for index in (0, 2):
            ends = [(round(start + 0.01 * own, 9), float(own)) for own in (index, index + 1)]
            assert set(ends) in links
    assert len(links) == 4
    assert lines(ax, "--") == {}
    faces = {
        line.get_label(): same_color(line.get_markerfacecolor(), "white")
        for line in ax.lines
        if ", " in str(line.get_label())
    }
    assert faces == {row: "Auto" in row for row in rows}


def test_figure_7_marks_the_checkpoint_s_own_p_shap():
    rows = rows_of(["scratch", "pre-trained"], lambda _, index: 60.0 + 20 * index)
    rows["checkpoint"] = (0.2, np.nan)
    ax = fig7(tidy(rows), []).axes[0]
    assert drawn(ax)["SVHN, pre-trained"] == pytest.approx((0.51, 20))
    (line,) = [line for line in ax.lines if line.get_linestyle() == "-."]
    assert list(line.get_xdata()) == [0.2, 0.2]
    assert [text.get_text() for text in ax.texts] == ["checkpoint"]
    del rows["checkpoint"]
    without = fig7(tidy(rows), []).axes[0]
    assert lines(without, "-.") == {}


def test_figure_9a_draws_factors_beside_one_and_where_they_began():
    rows = rows_of(["Auto-APE", "Auto-RoPE"], lambda _, index: 0.3 + index)
    ax = fig9a(tidy(rows, "|γ|"), []).axes[0]
    assert drawn(ax) == {row: pytest.approx(numbers) for row, numbers in rows.items()}
    heights = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"]
    assert heights == [1, 0.5]


def test_figure_9b_links_angles_with_and_without_factors():
    rows = rows_of(["RoPE", "Auto-RoPE"], lambda _, index: 0.3 + index)
    ax = fig9b(tidy(rows, "Angle"), []).axes[0]
    assert drawn(ax) == {row: pytest.approx(numbers) for row, numbers in rows.items()}
    ends = np.array(lines(ax, ":")[style.colour(1)])
    assert ends == pytest.approx(np.array([(0.51, 1.3), (0.5, 0.3)]))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"SVHN, APE": (0.5, 90), "SVHN, RopE": (0.5, 90)}, "'SVHN, RopE' is not .*mean 'RoPE'"),
        ({"SVHN, SIN": (0.5, 90)}, "'SVHN, SIN' has nothing.* add 'SVHN, APE'"),
    ],
)
def test_a_row_that_cannot_be_drawn_is_named(rows, words):
    with pytest.raises(VitrailError, match=words):
        fig4a(tidy(rows), [])


def test_a_missing_column_is_named():
    with pytest.raises(VitrailError, match="'SVHN, RoPE' has no column 'Angle'"):
        fig9b(tidy({"SVHN, RoPE": (0.5, 90)}), [])


def groups(**sizes):
    """What `controlled_test` returns, of groups with all of their samples in one bin."""
    values = {"edges": [0.0, 0.25, 0.5, 0.75, 1.0]}
    for place, outcome in enumerate(("correct", "incorrect")):
        for index, kind in enumerate(("dependent", "independent")):
            count = sizes.get(f"{outcome}_{kind}", 4)
            histogram = [0, 0, 0, 0]
            histogram[place + index] = count
            values |= {
                f"{outcome}/{kind}/images": count,
                f"{outcome}/{kind}/mean": (place + index) / 4 + 0.125 if count else None,
                f"{outcome}/{kind}/histogram": histogram,
            }
    return values


def shares(ax):
    """The bins of each histogram that are not empty, and their heights."""
    outlines = [collection.get_paths()[0].vertices for collection in ax.collections]
    tops = [outline[outline[:, 1] > 0] for outline in outlines]
    return [{(top[:, 0].min(), top[:, 0].max()): top[:, 1].max()} for top in tops]


def test_figure_5_shows_the_share_of_each_group_in_its_bins_over_all_seeds():
    seeds = {"0": groups(), "1": groups(correct_dependent=8, incorrect_independent=0)}
    fig = fig5(pd.DataFrame(), [{"values": seeds}])
    correct, incorrect = fig.axes
    assert shares(correct) == [{(0.0, 0.25): 100}, {(0.25, 0.5): 100}]
    assert [line.get_xdata()[0] for line in correct.lines] == [0.125, 0.375]
    assert correct.get_title() == "correct: 12 dependent, 8 independent"
    assert incorrect.get_title() == "incorrect: 8 dependent, 4 independent"
    assert legends(fig) == [["position-dependent", "position-independent"]]


def test_figure_5_draws_a_group_that_is_empty_as_nothing():
    seeds = {"0": groups(incorrect_dependent=0)}
    incorrect = fig5(pd.DataFrame(), [{"values": seeds}]).axes[1]
    assert shares(incorrect) == [{(0.5, 0.75): 100}]
    assert len(incorrect.lines) == 1


def test_figure_1_shows_each_dataset_beside_its_name():
    generator = np.random.default_rng(0)
    pixels = generator.integers(256, size=(2, 3, 4, 4, 3))
    values = {f"{place}/pixels": pixels[place].tolist() for place in range(2)}
    cells = pd.DataFrame({"row": ["SVHN", "SVHN", "EuroSAT"], "column": ["a", "b", "a"]})
    fig = fig1(cells, [{"values": {"0": values}}])
    for place, name in enumerate(("SVHN", "EuroSAT")):
        row = fig.axes[3 * place : 3 * place + 3]
        assert [text.get_text() for text in row[0].texts] == [name]
        for ax, shown in zip(row, pixels[place], strict=True):
            assert (np.asarray(ax.images[0].get_array()) == shown).all()


def test_figure_2_shows_every_class_under_its_original(root):
    info = load_registry(root / "configs" / "datasets.yaml")["pieces-in-corners"]
    values = position_samples(Described("cpu", Path(), 0, recipe=None, info=info), samples=2)
    fig = fig2(pd.DataFrame(), [{"values": {"0": values}}])
    titles = [ax.get_title() for ax in fig.axes if ax.get_title()]
    assert titles == [str(values[f"{label}/original"]) for label in (0, 4, *range(8, 16))]
    grid = fig.axes[: 4 * 16]
    for label in range(16):
        shown = [np.asarray(grid[16 * row + label].images[0].get_array()) for row in (1, 2, 3)]
        assert shown[0] == pytest.approx(np.array(values[f"{label}/share"]))
        for picture, pixels in zip(shown[1:], values[f"{label}/pixels"], strict=True):
            assert (picture == np.array(pixels)).all()
        percents = [
            text.get_text() for text in grid[16 + label].texts if "\n" not in text.get_text()
        ]
        assert percents == (["100"] if label < 8 else [f"{p:.0f}" for p in shown[0].flat])
        assert str(label) in [text.get_text() for text in grid[48 + label].texts]
