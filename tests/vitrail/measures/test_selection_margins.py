import pytest
import torch
from torch import nn

from vitrail.errors import VitrailError
from vitrail.measures.selection_margins import selection_margins


class Choice(nn.Module):
    """Chooses the largest pixel, whose lead over the second is its margin."""

    def __init__(self, anchors):
        super().__init__()
        self.anchors = anchors

    def forward(self, x):
        return x

    def margin(self, x):
        first, second = x.flatten(1).topk(2, dim=1).values.unbind(dim=1)
        return first - second, self.anchors


IMAGES = torch.tensor([[5.0, 2.0], [7.0, 6.5], [1.0, 9.0]])


def margins_of(*anchors):
    model = nn.Sequential(*(Choice(anchor) for anchor in anchors), nn.Identity())
    with selection_margins(model) as margins:
        model(IMAGES)
    return margins


def test_the_smallest_margin_of_each_image_is_recorded():
    model = nn.Sequential(Choice(True))
    with selection_margins(model) as margins:
        with pytest.raises(VitrailError, match="run the model inside"):
            margins.smallest()
        model(IMAGES)
        model(IMAGES.flip(0))
        assert margins.smallest().tolist() == [3.0, 0.5, 3.0]
        assert margins.summary().certified == pytest.approx(100 * 4 / 6)
        margins.clear()
        model(IMAGES)
    model(IMAGES)  # not recorded any more
    assert margins.summary() == (0.5, 3.0, pytest.approx(100 * 2 / 3))


def test_choices_behind_an_anchor_do_not_count():
    tied = Choice(False)
    tied.margin = lambda x: (torch.zeros(len(x)), False)
    model = nn.Sequential(Choice(True), tied)
    with selection_margins(model) as margins:
        model(IMAGES)
    assert margins.smallest().tolist() == [3.0, 0.5, 8.0]


def test_without_an_anchor_nothing_is_certain():
    assert margins_of(False, True).smallest().tolist() == [3.0, 0.5, 8.0]
    assert margins_of(False, False).smallest().tolist() == [0.0] * 3


def test_a_model_that_chooses_nothing_has_no_margin():
    margins = margins_of()
    assert margins.smallest().isinf().all()
    assert margins.summary() == (None, None, None)
