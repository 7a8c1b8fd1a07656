"""A table's values on turned images are of the recipe's own images, and are packed by image."""

import pytest
import torch
from torch import nn

from replication.measures.packed_scores import BY_IMAGE, unpack
from replication.papers.octic.rotation import accuracy_of_views, rotated_accuracy
from vitrail.octic.group_averaging import WAYS, GroupAverage


class Half(nn.Module):
    """Logits from one half of the image: what a turn moves."""

    def forward(self, x):
        return x[:, 0, :4].flatten(1)[:, :10]


class Symmetric(nn.Module):
    """Logits from means over the image: what no turn changes."""

    def forward(self, x):
        mean = x.double().mean((1, 2, 3))
        return torch.stack([mean.pow(k) for k in range(1, 11)], dim=1)


def test_a_symmetric_model_is_as_accurate_on_turned_images(trained_on_digits):
    """octic, Sec. 4.1."""
    values = rotated_accuracy(trained_on_digits(Symmetric()), images=50)
    assert values["rotated/top1"] == values["top1"]
    assert values["rotated/top5"] == values["top5"] > 0
    assert (values["change"], values["equal"], values["images"]) == (0, 100, 50)
    assert values["max_logit_difference"] < 1e-6


def test_a_model_of_one_corner_sees_the_turns(trained_on_digits):
    values = rotated_accuracy(trained_on_digits(Half()), images=200)
    assert 15 < values["equal"] < 40  # those that were not turned
    assert values["change"] == values["rotated/top1"] - values["top1"]
    assert values["max_logit_difference"] > 0.1
    for key in ("top1", "change"):
        assert 100 * unpack(values[key + BY_IMAGE]).mean() == pytest.approx(values[key], abs=1e-4)


def test_batches_and_workers_do_not_change_the_turns(trained_on_digits):
    trained = trained_on_digits(Half())
    assert rotated_accuracy(trained, 7, 50) == rotated_accuracy(trained, 50, 50)


class Corner(nn.Module):
    """Logits from one half of the image: what a turn moves."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 10, bias=False)

    def forward(self, x):
        return self.linear(x[:, 0, :4].flatten(1))


def test_a_trained_model_is_measured_in_each_way(trained_on_digits):
    trained = trained_on_digits(Corner())
    values = accuracy_of_views(trained, images=60)
    plain = rotated_accuracy(trained, images=60)
    assert plain["equal"] < 50
    for way, combine in WAYS.items():
        keys = {key.removeprefix(f"{way}/") for key in values if key.startswith(f"{way}/")}
        assert keys == plain.keys() | {"gmacs"}
        assert (values[f"{way}/change"], values[f"{way}/equal"]) == (0, 100)
        by_image = unpack(values[f"{way}/top1{BY_IMAGE}"])
        assert 100 * by_image.mean() == pytest.approx(values[f"{way}/top1"], abs=1e-4)
        viewed = trained_on_digits(GroupAverage(trained.model, combine))
        assert values[f"{way}/top1"] == rotated_accuracy(viewed, images=60)["top1"]
    # Eight times the 320 multiply-adds of the model, and the mean of 80 logits.
    assert values["mean/gmacs"] == pytest.approx((8 * 320 + 80) / 1e9)


def test_as_many_images_pass_as_the_rule_says(trained_on_digits):
    model = Corner()
    passed = []
    model.register_forward_pre_hook(lambda _, given: passed.append(given[0]))
    accuracy_of_views(trained_on_digits(model), images=20)
    images = [batch for batch in passed if batch.device.type != "meta"]
    assert sum(map(len, images)) == 20 * accuracy_of_views.passes
