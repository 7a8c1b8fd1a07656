"""Figures look alike, say their words as text, and are the same bytes for the same numbers."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vitrail import style
from vitrail.errors import VitrailError


@pytest.fixture
def cells():
    """Two rows over three sizes, the sizes out of order."""
    return pd.DataFrame(
        {"row": row, "column": size, "measured": value, "std": 0.5}
        | {"ci_low": value - 1, "ci_high": value + 1}
        for row in ("ours", "theirs")
        for size, value in (("448", 3.0), ("224", 1.0), ("1024", 2.0))
    )


def draw(cells):
    fig, axes = style.figure()
    style.lines(axes, cells)
    axes.set(xlabel="Test size", ylabel="Accuracy")
    axes.legend()
    return fig


def test_the_same_numbers_give_the_same_bytes(cells, tmp_path):
    for name in ("first", "second"):
        style.save(draw(cells), tmp_path / name)
    for suffix in (".svg", ".png"):
        first, second = (
            (tmp_path / f"{name}{suffix}").read_bytes() for name in ("first", "second")
        )
        assert first == second


def test_an_svg_keeps_its_words_and_carries_no_date(cells, tmp_path):
    style.save(draw(cells), tmp_path / "fig")
    text = (tmp_path / "fig.svg").read_text()
    assert ">Test size</text>" in text
    assert "<dc:date>" not in text


def test_no_text_is_smaller_than_seven_points_at_the_width_of_a_column(cells):
    fig = draw(cells)
    assert fig.get_size_inches()[0] == 3.3
    assert min(text.get_fontsize() for text in fig.findobj(mpl.text.Text)) >= 7


def test_lines_follow_the_size_and_carry_the_seeds_intervals(cells):
    axes = draw(cells).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[224, 1], [448, 3], [1024, 2]]
    bars = [path.vertices.tolist() for path in axes.collections[0].get_paths()]
    assert [[448, 2.0], [448, 4.0]] in bars


def test_a_stamp_stands_below_the_figure_whose_picture_grows_by_it(cells, tmp_path):
    plain, fig = draw(cells), draw(cells)
    words = ["small models on digits · 3 seeds", "scale laptop · device cpu: a processor, 1 thread"]
    style.stamp(fig, words)
    for drawn, name in ((plain, "plain"), (fig, "stamped")):
        style.save(drawn, tmp_path / name)
    (stamped,) = fig.texts
    assert stamped.get_text().replace("\n", " ") == " ".join(words)
    assert stamped.get_window_extent().y1 <= fig.bbox.y0
    without, shown = (Image.open(tmp_path / f"{name}.png") for name in ("plain", "stamped"))
    assert shown.width == without.width
    assert shown.height > without.height
    for axes, same in zip(plain.axes, fig.axes, strict=True):
        assert np.allclose(axes.get_position(), same.get_position())


def test_a_row_names_the_stand_in_beside_the_dataset():
    cells = pd.DataFrame({"row": ["SVHN, APE", "CIFAR-10, APE", "CIFAR-100", "CIFAR-10-Position"]})
    names = {"digits-in-a-row": "SVHN", "pieces": "CIFAR-10"}
    assert style.with_stand_ins_named(cells, names)["row"].tolist() == [
        "SVHN (here: digits-in-a-row), APE",
        "CIFAR-10 (here: pieces), APE",
        "CIFAR-100",
        "CIFAR-10-Position",
    ]


def test_a_picture_shows_nothing_but_its_pixels_on_the_limits_given():
    fig, axes = style.figure()
    shown = style.picture(axes, [[0.0, 5.0]], vmin=0, vmax=9)
    fig.draw_without_rendering()
    assert (shown.get_array().tolist(), shown.get_clim()) == ([[0.0, 5.0]], (0, 9))
    assert not [*axes.get_xticks(), *axes.get_yticks()]
    assert not any(spine.get_visible() for spine in axes.spines.values())


def test_colours_are_told_apart():
    assert len({style.colour(index) for index in range(8)}) == 8


def test_a_folder_that_cannot_be_made_is_a_users_error(cells, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VitrailError, match="cannot write"):
        style.save(draw(cells), tmp_path / "file" / "fig")
