"""Boxes lie around what a shift changes, the largest regions first."""

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest
import torch

from replication.context import Trained
from replication.papers.shift.segmentation_figure_data import (
    UNSEEN,
    changed_boxes,
    shift_illustration,
)
from replication.training.segmentation import config

IMAGES = 5  # more than the split has
SMALL = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": [128, 32], "keep_ratio": True},
    {"type": "LoadAnnotations", "reduce_zero_label": True},
    {"type": "PackSegInputs"},
]


def test_boxes_surround_the_largest_regions():
    changed = torch.zeros(10, 12, dtype=torch.bool)
    changed[1, 1] = True
    changed[3:5, 4:9] = True
    changed[7, 2] = changed[8, 3] = changed[9, 4] = True  # they touch at their corners
    assert changed_boxes(changed, 5) == [(3, 4, 2, 5), (7, 2, 3, 3), (1, 1, 1, 1)]
    assert changed_boxes(changed, 1) == [(3, 4, 2, 5)]
    assert changed_boxes(torch.zeros(4, 4, dtype=torch.bool), 3) == []


@pytest.fixture(scope="module")
def values(make_recipe, info, data_root):
    recipe = make_recipe({"options": {"test_dataloader": {"dataset": {"pipeline": SMALL}}}})
    torch.manual_seed(0)
    model = config.build_model(recipe, info.classes).eval()
    trained = Trained("cpu", data_root, 0, recipe=recipe, info=info, model=model)
    return shift_illustration(trained, images=IMAGES, max_shift=128, boxes=2, largest=30)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, IMAGES + 1))
def test_pictures_have_one_size_and_the_shift_leaves_a_border_unseen(values, number):
    before, after = (torch.tensor(values[f"{number}/{which}"]) for which in ("before", "after"))
    assert before.shape == after.shape == torch.tensor(values[f"{number}/pixels"]).shape[:2]
    assert max(before.shape) <= 30
    assert values[f"{number}/offset"] != [0, 0]
    assert UNSEEN in after
    assert UNSEEN not in before
    assert after.max() < len(values["classes"])


@pytest.mark.parametrize("number", range(1, IMAGES + 1))
def test_labels_have_the_size_of_the_predictions(values, number):
    truth = torch.tensor(values[f"{number}/truth"])
    assert truth.shape == torch.tensor(values[f"{number}/before"]).shape
    assert UNSEEN <= truth.min() <= truth.max() < len(values["classes"])


@pytest.mark.parametrize("number", range(1, IMAGES + 1))
def test_every_box_holds_a_change(values, number):
    """shift, Sec. A4."""
    before, after = (torch.tensor(values[f"{number}/{which}"]) for which in ("before", "after"))
    changed = (before != after) & (after != UNSEEN)
    for top, left, height, width in values[f"{number}/boxes"]:
        assert changed[top : top + height, left : left + width].any()
    assert bool(values[f"{number}/boxes"]) == bool(changed.any())
