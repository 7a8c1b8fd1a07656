"""The figures show what the illustrations measured."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from vitrine.segmentation.figures import fig5, figA1, figA2
from vitrine.segmentation.illustrations import UNSEEN

MODELS = ("SwinV2", "A-SwinV2")
PALETTE = [[10, 20, 30], [40, 50, 60]]


def measurement(boxes):
    before, after = np.zeros((6, 8), dtype=int), np.ones((6, 8), dtype=int)
    after[0] = UNSEEN
    values = {"palette": PALETTE}
    for number in (3, 4):
        values |= {
            f"{number}/changed": 12.5,
            f"{number}/pixels": np.full((6, 8, 3), number).tolist(),
            f"{number}/before": before.tolist(),
            f"{number}/after": after.tolist(),
            f"{number}/boxes": boxes,
        }
    return {"values": {"0": values}}


@pytest.mark.parametrize(
    ("draw", "colour"), [(fig5, "#ff0000"), (figA1, "#ffff00"), (figA2, "#ffff00")]
)
def test_a_row_has_the_image_and_each_models_predictions_with_their_boxes(draw, colour):
    cells = pd.DataFrame(
        {"row": model, "column": f"Image {number}"} for model in MODELS for number in (3, 4)
    )
    fig = draw(cells, [measurement([[1, 2, 3, 4]]), measurement([])])
    rows = np.reshape(fig.axes, (2, 5))
    for number, row in zip((3, 4), rows, strict=True):
        image, *predictions = (ax.images[0].get_array() for ax in row)
        assert (image == number).all()
        for before, after in (predictions[:2], predictions[2:]):
            assert (before == PALETTE[0]).all()
            assert (after[0] == 255).all()  # what is unseen is white
            assert (after[1:] == PALETTE[1]).all()
        assert [len(ax.patches) for ax in row] == [0, 1, 1, 0, 0]
        (box,) = row[1].patches
        assert to_hex(box.get_edgecolor()) == colour
        assert box.get_bbox().bounds == (0.5, -0.5, 6, 5)  # a pixel's width around the region
