"""Turned images are drawn from their index, and a model that sees no turn loses nothing."""

import pytest
import torch
from torch import nn

from vitrail.octic.rotation import quarter_turns, rotated_accuracy, turned
from vitrail.scores import BY_IMAGE, unpack


class Corner(nn.Module):
    """Logits from one half of the image: what a turn moves."""

    def forward(self, x):
        return x[:, 0, :4].flatten(1)[:, :10]


class Symmetric(nn.Module):
    """Logits from means over the image: what no turn changes."""

    def forward(self, x):
        mean = x.double().mean((1, 2, 3))
        return torch.stack([mean.pow(k) for k in range(1, 11)], dim=1)


def test_turns_are_anticlockwise_quarters_of_each_image():
    images = torch.arange(3 * 4.0).view(3, 1, 2, 2)
    first, second, third = turned(images, [0, 1, 2])[:, 0].tolist()
    assert first == [[0, 1], [2, 3]]
    assert second == [[5, 7], [4, 6]]
    assert third == [[11, 10], [9, 8]]


def test_the_four_turns_are_equally_likely_and_differ_by_seed():
    turns = [[quarter_turns(seed, index) for index in range(2000)] for seed in (0, 1)]
    for drawn in turns:
        assert all(440 < drawn.count(k) < 560 for k in range(4))
    assert turns[0] != turns[1]


def test_a_symmetric_model_is_as_accurate_on_turned_images(trained_on_digits):
    """octic, Sec. 4.1."""
    values = rotated_accuracy(trained_on_digits(Symmetric()), images=50)
    assert values["rotated/top1"] == values["top1"]
    assert values["rotated/top5"] == values["top5"] > 0
    assert (values["change"], values["equal"], values["images"]) == (0, 100, 50)
    assert values["max_logit_difference"] < 1e-6


def test_a_model_of_one_corner_sees_the_turns(trained_on_digits):
    values = rotated_accuracy(trained_on_digits(Corner()), images=200)
    assert 15 < values["equal"] < 40  # those that were not turned
    assert values["change"] == values["rotated/top1"] - values["top1"]
    assert values["max_logit_difference"] > 0.1
    for key in ("top1", "change"):
        assert 100 * unpack(values[key + BY_IMAGE]).mean() == pytest.approx(values[key], abs=1e-4)


def test_batches_and_workers_do_not_change_the_turns(trained_on_digits):
    trained = trained_on_digits(Corner())
    assert rotated_accuracy(trained, 7, 50) == rotated_accuracy(trained, 50, 50)
