"""The figures show what the illustrations measured."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from replication.context import Context
from replication.papers.shift.figure_data import (
    relative_distances,
    tokenization_illustration,
    window_illustration,
)
from replication.papers.shift.figures import fig1, fig2, fig3, fig4

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)
MODEL = "swin_tiny_patch4_window7_224"


def measured(values):
    return [{"values": {"0": values}}]


def boxed(ax):
    """What the picture shows inside the box."""
    column, row = (round(float(edge) + 0.5) for edge in ax.patches[0].get_xy())
    side = int(ax.patches[0].get_width())
    return np.asarray(ax.images[0].get_array())[row : row + side, column : column + side]


@pytest.mark.parametrize(("figure", "shift"), [(1, 3), (2, 1)])
def test_figures_1_and_2_box_what_a_fixed_cell_loses_and_a_chosen_one_keeps(figure, shift):
    if figure == 1:
        draw, values = fig1, tokenization_illustration(CONTEXT, MODEL, size=28, shift=shift)
    else:
        draw, values = fig2, window_illustration(CONTEXT, MODEL, size=64, window=4, shift=shift)
    axes = draw(pd.DataFrame(), measured(values)).axes[:4]
    before, after, chosen, chosen_after = (boxed(ax) for ax in axes)
    assert not np.array_equal(before, after)
    assert chosen.size == before.size
    assert np.array_equal(chosen, chosen_after)
    assert f"shifted by ({shift}, {shift})" in axes[1].get_xlabel()
    for ax, which in zip(axes[2:], ("image", "shifted"), strict=True):
        cell = ax.patches[0].get_width()
        corner = [round(edge + 0.5) % cell for edge in ax.patches[0].get_xy()]
        assert corner[::-1] == values[f"{which}/phase"]


def test_figure_3_marks_the_distances_that_a_shift_changes():
    values = relative_distances(CONTEXT, tokens=4)
    axes = fig3(pd.DataFrame(), measured(values)).axes
    bold = [sum(text.get_weight() == "bold" for text in ax.texts) for ax in axes]
    assert bold == [0, 6, 0, 0]
    assert [text.get_text() for text in axes[2].texts[:4]] == ["0", "3", "2", "1"]


def test_figure_4_maps_all_models_on_one_scale():
    cells = pd.DataFrame(
        {"row": row, "column": f"Block {block}"}
        for row in ("CvT-13", "A-CvT-13")
        for block in (1, 2)
    )
    maps = {"CvT-13": np.full((2, 2), 0.5), "A-CvT-13": np.zeros((2, 2))}
    measurements = [
        {"values": {"0": {f"block {block}/map": change.tolist() for block in (1, 2)}}}
        for change in maps.values()
    ]
    axes = fig4(cells, measurements).axes
    assert [ax.images[0].get_clim() for ax in axes[:4]] == [(0, 0.5)] * 4
    assert [ax.get_xlabel() for ax in axes[:4]] == ["max 0.5", "max 0.5", "max 0", "max 0"]
    assert [axes[0].get_ylabel(), axes[2].get_ylabel()] == ["CvT-13", "A-CvT-13"]
