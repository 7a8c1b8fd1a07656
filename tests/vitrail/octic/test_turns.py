"""Turned images are drawn from their index, and a model that sees no turn loses nothing."""

import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.turns import accuracy_under_turns as of_model
from vitrail.octic.turns import eight_views, quarter_turns, turned


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


class Pixels(nn.Module):
    """Ten pixels of the image as logits."""

    def forward(self, x):
        return x[:, 0, 1:3, 1:6].flatten(1)


def batches():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 15, 3, 8, 8, generator=generator)
    return list(zip(images, torch.arange(30).view(2, 15) % 10, strict=True))


def test_views_are_judged_as_one_by_one():
    views = eight_views(Pixels(), batches())
    images, labels = (torch.cat(part) for part in zip(*batches(), strict=True))
    upright = Pixels()(images)
    for element, kept, right in zip(ELEMENTS, views.kept, views.right, strict=True):
        turned_logits = Pixels()(transform(images, element))
        assert torch.equal(kept, turned_logits.argmax(1) == upright.argmax(1))
        assert torch.equal(right, turned_logits.argmax(1) == labels)
    assert views.kept[0].all()
    assert 0 < views.kept[1:].double().mean() < 1
    assert not views.equal.any()


def test_d8_keeps_every_view_and_every_turn():
    """What D8 keeps by construction."""
    torch.manual_seed(0)
    args = {"img_size": 16, "patch_size": 4, "depth": 1, "init_values": 1, "embed_dim": 64}
    d8 = timm.create_model("octic_d8_vit_small_patch16_224", num_heads=1, num_classes=10, **args)
    for parameter in d8.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    images = torch.randn(30, 3, 16, 16)
    views = eight_views(d8.eval(), [(images, torch.zeros(30))])
    assert views.equal.all()
    assert views.kept.all()
    turned_too = of_model(d8, [(images, torch.zeros(30))])
    assert turned_too.equal.all()
    assert turned_too.top1 == turned_too.rotated_top1


def test_turns_of_a_model_follow_from_the_seed_and_the_images_numbers():
    """The second half alone, with its numbers, is turned as it is among all."""
    every = of_model(Pixels(), batches(), seed=3)
    half = of_model(Pixels(), batches()[1:], seed=3, indices=range(15, 30))
    assert torch.equal(half.equal, every.equal[15:])
    assert torch.equal(half.right_rotated, every.right_rotated[15:])
