"""Accuracy counts what a loop over the logits counts."""

import pytest
import torch
from torch import nn

from replication.images.opening import build
from replication.measures.accuracy import accuracy
from replication.measures.packed_scores import unpack


class Constant(nn.Module):
    """Always prefers one class."""

    def __init__(self, favourite):
        super().__init__()
        self.favourite = favourite

    def forward(self, images):
        return torch.eye(10)[self.favourite].expand(len(images), 10)


@pytest.fixture
def trained(trained_on_digits):
    return trained_on_digits(Constant(3))


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_a_model_that_always_says_three_is_right_as_often_as_it_is_three(trained, batch_size):
    labels = [label for _, label in build(trained.info, "val", trained.data_root)]
    measured = accuracy(trained, batch_size=batch_size)
    assert measured["images"] == len(labels)
    assert measured["top1"] == pytest.approx(100 * labels.count(3) / len(labels), rel=1e-12)
    assert measured["top5"] > measured["top1"]
    assert unpack(measured["top1 by image"]).tolist() == [[label == 3 for label in labels]]


def test_the_test_size_can_differ_from_the_recipes(trained):
    seen = []
    trained.model.register_forward_hook(lambda _m, images, _l: seen.append(images[0].shape[-1]))
    accuracy(trained, image_size=12)
    assert set(seen) == {12}
