"""The figures show what the illustrations measured."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb

from replication.papers.shift.segmentation_figure_data import UNSEEN
from replication.papers.shift.segmentation_figures import NAMED, fig5, figA1, figA2, palette_of
from vitrail import style

MODELS = ("SwinV2", "A-SwinV2")
CLASSES = ["sky", "trees", "roof"]
SKY, TREES, WHITE = to_rgb(style.PALETTE[0]), to_rgb(style.PALETTE[1]), (1, 1, 1)


def measurement(boxes):
    before, after = np.zeros((6, 8), dtype=int), np.ones((6, 8), dtype=int)
    after[0] = UNSEEN
    truth = np.where(np.arange(8) < 4, 0, UNSEEN) + np.zeros((6, 1), dtype=int)
    values = {"classes": CLASSES}
    for number in (3, 4):
        values |= {
            f"{number}/changed": 12.5,
            f"{number}/pixels": np.full((6, 8, 3), number).tolist(),
            f"{number}/offset": [5, -3],
            f"{number}/truth": truth.tolist(),
            f"{number}/before": before.tolist(),
            f"{number}/after": after.tolist(),
            f"{number}/boxes": boxes,
        }
    return {"values": {"0": values}}


@pytest.mark.parametrize(
    ("draw", "colour"), [(fig5, "#ff0000"), (figA1, "#ffff00"), (figA2, "#ffff00")]
)
def test_a_row_has_image_labels_and_each_models_predictions_with_their_boxes(draw, colour):
    cells = pd.DataFrame(
        {"row": model, "column": f"Image {number}"} for model in MODELS for number in (3, 4)
    )
    fig = draw(cells, [measurement([[1, 2, 3, 4]]), measurement([])])
    rows = np.reshape(fig.axes, (2, 6))
    for number, row in zip((3, 4), rows, strict=True):
        image, labels, *predictions = (ax.images[0].get_array() for ax in row)
        assert (image == number).all()
        assert np.allclose(labels[:, :4], SKY)
        assert np.allclose(labels[:, 4:], WHITE)  # not labelled
        for before, after in (predictions[:2], predictions[2:]):
            assert np.allclose(before, SKY)
            assert np.allclose(after[0], WHITE)  # not seen
            assert np.allclose(after[1:], TREES)
        assert [len(ax.patches) for ax in row] == [0, 0, 1, 1, 0, 0]
        (box,) = row[2].patches
        assert to_hex(box.get_edgecolor()) == colour
        assert box.get_bbox().bounds == (0.5, -0.5, 6, 5)  # a pixel's width around the region
        assert row[3].get_xlabel() == "by (5, -3) pixels\n12.5 % changed"


def test_the_legend_names_the_classes_that_are_shown():
    cells = pd.DataFrame({"row": model, "column": "Image 3"} for model in MODELS)
    (legend,) = fig5(cells, [measurement([]), measurement([])]).legends
    assert [text.get_text() for text in legend.texts] == ["sky", "trees"]


def test_a_class_has_the_same_colour_in_all_figures():
    cells = pd.DataFrame([{"row": "Swin", "column": "Image 3"}])

    def colours(large, small):
        """The colours of two classes, and the names in the legend."""
        values = measurement([])["values"]["0"]
        shown = [[large, large, small]]
        values |= {f"3/{which}": shown for which in ("truth", "before", "after")}
        fig = fig5(cells, [{"values": {"0": values}}])
        (pixels,) = fig.axes[1].images[0].get_array()
        names = [text.get_text() for text in fig.legends[0].texts]
        return {large: tuple(pixels[0]), small: tuple(pixels[2])}, names

    (first, in_order), (second, reversed_) = colours(1, 2), colours(2, 1)
    assert first == second
    assert in_order == reversed_[::-1] == ["trees", "roof"]


@pytest.mark.parametrize("classes", [5, 16, 20, 150])
def test_no_two_classes_share_a_colour(classes):
    colours = palette_of(classes)
    assert len(colours) == len(set(colours)) == classes


def test_the_legend_of_many_classes_names_the_largest():
    values = measurement([])["values"]["0"]
    many = np.repeat(np.arange(30), np.arange(60, 30, -1))  # class 0 is the largest
    values |= {"classes": [f"class {n}" for n in range(30)]}
    values |= {f"3/{which}": [many.tolist()] for which in ("truth", "before", "after")}
    cells = pd.DataFrame([{"row": "Swin", "column": "Image 3"}])
    (legend,) = fig5(cells, [{"values": {"0": values}}]).legends
    assert [text.get_text() for text in legend.texts] == [f"class {n}" for n in range(NAMED)]
