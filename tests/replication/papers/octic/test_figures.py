"""The figures show what the cells and the illustrations say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from replication.context import Context
from replication.papers.octic.figure_data import BANKS, STAGES, cayley, intertwiner
from replication.papers.octic.figures import (
    MIRRORS,
    fig1,
    fig2,
    fig3,
    fig4a,
    fig4b,
    fig5,
    fig6,
    fig7,
    figb1,
    ring,
)
from vitrail.octic.group import ELEMENTS, transform

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)


def measured(values):
    return [{"values": {"0": values}}]


def tidy(rows, columns, value):
    return pd.DataFrame(
        {
            "row": row,
            "column": column,
            "measured": value(row, column),
            "ci_low": np.nan,
            "ci_high": np.nan,
        }
        for row in rows
        for column in columns
    )


def points(line):
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def pictures(ax):
    """The pictures of a diagram, in the order in which they were placed."""
    return [np.asarray(image.get_array()) for image in ax.images]


PRINTED = {
    "ViT, ViT-H/14": (84.6, 167.8, 569),
    "ViT, ViT-L/16": (84.2, 61.9, 1421),
    "D8, ViT-H/14": (82.0, 36.6, 836),
    "D8, ViT-L/16": (79.5, 13.5, 1877),
}


def cells_of_figure_1(measurement):
    """Printed numbers, and two points less and half the costs measured."""
    names = ("Top-1 Acc.", "GMACs", "Throughput (im/s)")

    def value(row, column):
        number = PRINTED[row][names.index(column)]
        return number - 2 if column == names[0] else number / 2

    cells = tidy(PRINTED, names, value)
    printed = [
        PRINTED[row][names.index(column)]
        for row, column in zip(cells["row"], cells["column"], strict=True)
    ]
    accuracies = cells["column"] == names[0]
    return cells.assign(
        paper_value=printed,
        measurement=[measurement(row) for row in cells["row"]],
        ci_low=cells["measured"].where(accuracies) - 1,
        ci_high=cells["measured"].where(accuracies) + 1,
    )


def test_figure_1_draws_every_family_at_its_cost_as_printed_and_as_measured():
    fig = fig1(cells_of_figure_1(lambda row: row), [])
    panels = [(1, 0, 1), (2, 0, 1), (1, 2, 0.5), (2, 2, 0.5)]  # which cost; less, times
    for ax, (cost, less, times) in zip(fig.axes, panels, strict=True):
        lines = {line.get_label(): points(line) for line in ax.lines}
        for family in ("ViT", "D8"):
            own = [PRINTED[f"{family}, {size}"] for size in ("ViT-H/14", "ViT-L/16")]
            assert lines[family] == [(times * cell[cost], cell[0] - less) for cell in own]
        assert lines["H8"] == []
    assert [ax.get_title() for ax in fig.axes] == ["as printed", "as printed", "here", "here"]
    assert [text.get_text() for text in fig.legends[0].texts][-2:] == ["ViT-H/14", "ViT-L/16"]
    ticks = [[tick.get_text() for tick in ax.get_xticklabels()] for ax in fig.axes[:2]]
    assert ticks == [["15", "20", "30", "50", "70", "100", "150"], ["700", "1000", "1500"]]
    bounds = [segment[:, 1] for bars in fig.axes[2].collections for segment in bars.get_segments()]
    assert np.allclose(
        sorted(bounds, key=min), [[76.5, 78.5], [79, 81], [81.2, 83.2], [81.6, 83.6]]
    )


def test_figure_1_draws_a_model_that_stands_for_both_sizes_once_and_without_throughput():
    fig = fig1(cells_of_figure_1(lambda row: row.split(",")[0]), [])
    assert [ax.get_title() for ax in fig.axes] == ["as printed", "as printed", "here"]
    lines = {line.get_label(): points(line) for line in fig.axes[2].lines}
    assert lines["ViT"] == [(83.9, 82.6)]
    assert lines["D8"] == [(18.3, 80.0)]


def test_figure_1_draws_models_of_one_size_alone_without_the_throughput_of_both():
    cells = cells_of_figure_1(lambda row: row)
    larger = cells["row"].str.endswith("ViT-H/14") & (cells["column"] != "Throughput (im/s)")
    fig = fig1(cells.assign(measured=cells["measured"].mask(larger)), [])
    assert [ax.get_title() for ax in fig.axes] == ["as printed", "as printed", "here"]


def test_figure_2_leaves_zeros_white():
    values = intertwiner(CONTEXT, channels=16)
    regular, isotypic = (
        ax.collections[0].get_array() for ax in fig2(pd.DataFrame(), measured(values)).axes
    )
    assert np.ma.count_masked(regular) == 0
    assert isotypic.count() == 12 * 2 * 2
    assert (isotypic.filled(0) == np.array(values["isotypic/matrix"])).all()


def shapes(channels):
    """What `block_planes` returns of models whose planes have so many channels."""
    factors = {"qkv": 3, "fc1": 4, "GELU": 4}
    values = {f"{stage}/shape": [8, 1, 5, channels * factors.get(stage, 1)] for stage in STAGES}
    for family, octic, standard, invariants in (("d8", 4, 0, 6), ("i8", 2, 2, 6), ("h8", 2, 2, 0)):
        values |= {
            f"{family}/octic blocks": octic,
            f"{family}/standard blocks": standard,
            f"{family}/tokens": 5,
            f"{family}/channels": 8 * channels,
            f"{family}/invariants": invariants * channels,
        }
    return values


def test_figure_3_writes_the_blocks_of_each_family_and_the_shapes_between():
    families, _ = fig3(pd.DataFrame(), measured(shapes(channels=3))).axes
    boxes = [text.get_text().replace("\n", ", ") for text in families.texts if text.get_text()]
    start, end = ["PatchEmbed"], ["head"]
    octic, standard = "2 octic blocks, 8 × 5 × 3", "2 standard blocks, 5 × 24"
    assert boxes == [
        *["D8", *start, "4 octic blocks, 8 × 5 × 3", "18 invariants", *end],
        *["I8", *start, octic, "18 invariants", standard, *end],
        *["H8", *start, octic, "concatenate", standard, *end],
    ]
    assert sum(isinstance(patch, FancyBboxPatch) for patch in families.patches) == 4 + 5 + 5


def test_figure_3_draws_a_bar_for_each_plane_as_long_as_its_channels():
    block = fig3(pd.DataFrame(), measured(shapes(channels=3))).axes[1]
    lengths = [bar.get_width() for bar in block.patches]
    stages = [lengths[start : start + 8] for start in range(0, len(lengths), 8)]
    relative = [round(bars[0] / lengths[0], 9) for bars in stages]
    assert all(len(set(bars)) == 1 for bars in stages)
    assert relative == [1, 1, 3, 1, 1, 4, 4, 1]


def test_figure_4a_marks_the_limit_of_wide_blocks():
    widths = {"64": 2.2, "1024": 4.7}
    ax = fig4a(tidy(["block"], widths, lambda _, column: widths[column]), []).axes[0]
    assert points(ax.lines[0]) == [(64, 2.2), (1024, 4.7)]
    assert ax.lines[1].get_ydata()[0] == pytest.approx(16 / 3)
    assert "5.33" in ax.texts[0].get_text()
    assert ax.get_ylim()[1] > 16 / 3
    assert ax.get_legend() is None


def test_figure_4b_draws_accuracy_by_octic_blocks():
    cells = tidy(["H8", "I8"], ["0", "12", "24"], lambda row, column: float(column) + len(row))
    runs = {"measurement": [*"aabcde"], "std": [np.nan, np.nan, 1.0, *[np.nan] * 3], "n_seeds": 3}
    fig = fig4b(cells.assign(**runs), [])
    (ax,) = fig.axes
    assert [line.get_label() for line in ax.lines[:2]] == ["H8", "I8"]
    assert points(ax.lines[0]) == [(0, 2), (12, 14), (24, 26)]
    assert points(ax.lines[2]) == [(12, 14)]  # the run of k = 0 once more
    assert list(ax.get_xticks()) == [0, 12, 24]
    words = [text.get_text() for text in fig.legends[0].texts]
    assert words[2:] == ["same model as the point before", "3 seeds (95 %), else 1"]


def test_the_ring_is_walked_by_mirroring_left_to_right_and_along_the_diagonal():
    image = torch.arange(9).view(3, 3)
    walk = [transform(image, element) for element in ring()]
    for step, (here, there) in enumerate(zip(walk, [*walk[1:], walk[0]], strict=True)):
        mirrored = here.flip(-1) if step % 2 == 0 else here.rot90(2).T
        assert torch.equal(mirrored, there)
    assert sorted(ring()) == sorted(ELEMENTS)


def test_figure_5_places_the_transformed_pictures_around_the_ring():
    values = cayley(CONTEXT, image_size=16, patch_size=4)
    left, right = fig5(pd.DataFrame(), measured(values)).axes
    for element, picture in zip(ring(), pictures(left), strict=True):
        patches = np.delete(picture, [4, 9, 14], axis=0)
        pixels = np.delete(patches, [4, 9, 14], axis=1)
        assert pixels == pytest.approx(np.array(values[f"{element}/pixels"]) / 255)
    *features, filters = pictures(right)
    assert len(features) == 8
    assert (features[0] != features[1]).any()
    assert filters.shape == (2 * 4 + 1, 4 * 4 + 3, 3)
    for ax in (left, right):
        arrows = [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None)]
        assert [to_hex(arrow.get_edgecolor()).upper() for arrow in arrows] == [
            colour for colour, _ in MIRRORS.values()
        ] * 4


def test_figure_5_colours_a_plane_by_its_sign_on_one_scale():
    values = cayley(CONTEXT, image_size=16, patch_size=4)
    right = fig5(pd.DataFrame(), measured(values)).axes[1]
    for element, picture in zip(ring(), pictures(right), strict=False):
        for plane in range(8):
            top, left = 5 * (plane // 4), 5 * (plane % 4)
            red, _, blue = np.moveaxis(picture[top : top + 4, left : left + 4], -1, 0)
            plane_values = np.array(values[f"{element}/features"][plane])
            strong = np.abs(plane_values) > 0.2 * np.abs(plane_values).max()
            assert ((red > blue) == (plane_values > 0))[strong].all()


def test_figure_6_shows_the_components_of_each_bank():
    random = np.random.default_rng(0)
    values = {}
    for index, bank in enumerate(BANKS):
        values[f"{bank}/components"] = random.uniform(-1, 1, (5, 4, 4, 3)).tolist()
        values[f"{bank}/explained"] = 90.0 + index
    trainings = ["DeiT III, D8", "DINOv2, D8"]
    rows = [f"{training}: {bank}" for training in trainings for bank in BANKS]
    cells = tidy(rows, ["In 16 components"], lambda row, column: 90.0)
    axes = fig6(cells, 2 * measured(values)).axes
    assert [ax.get_title() for ax in axes] == 2 * list(BANKS)
    assert [axes[0].get_ylabel(), axes[6].get_ylabel()] == trainings
    axes = axes[6:]
    assert axes[1].get_xlabel().startswith("91.0 %")
    for ax, bank in zip(axes, BANKS, strict=True):
        (mosaic,) = pictures(ax)
        components = np.array(values[f"{bank}/components"]) / 2 + 0.5
        assert mosaic[:4, 5:9] == pytest.approx(components[1])
        assert mosaic[5:, :4] == pytest.approx(components[4])
        assert (mosaic[5:, 5:] == 1).all()


def test_the_intensities_are_drawn_with_the_width_at_which_octic_layers_overtake():
    cells = tidy(["dense", "octic"], ["256", "4096"], lambda row, column: float(len(row + column)))
    ax = figb1(cells, measured({"crossing": 3185.0})).axes[0]
    assert [line.get_label() for line in ax.lines[:2]] == ["dense", "octic"]
    assert ax.lines[2].get_xdata()[0] == 3185
    assert ax.texts[0].get_text() == "d = 3185"
    assert ax.get_legend() is not None


def test_figure_7_names_its_families_above_the_lines():
    rows, shares = ("ViT", "H2", "I8", "H8", "D8"), ("0", "50", "100")
    fig = fig7(tidy(rows, shares, lambda row, share: float(share)), [])
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == list(rows)
    fig.draw_without_rendering()
    assert legend.get_window_extent().y0 >= fig.axes[0].get_window_extent().y1
