"""What is made of eight views in any order is invariant, whatever the model."""

import pytest
import timm
import torch
from torch import nn

from replication.measures.scores import BY_IMAGE, unpack
from replication.papers.octic.rotation import accuracy_of_views, rotated_accuracy
from vitrail.errors import VitrailError
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.views import (
    WAYS,
    GroupAverage,
    mean_of_views,
    most_confident_view,
)


@pytest.fixture
def vit(scrambled):
    """A plain ViT whose logits every turn and mirroring changes."""
    options = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
    return scrambled(timm.create_model("vit_tiny_patch16_224", num_classes=5, **options)).eval()


@pytest.fixture
def images():
    return torch.randn(6, 3, 8, 8, dtype=torch.float64)


@pytest.mark.parametrize("combine", WAYS.values())
def test_logits_of_eight_views_are_those_of_the_turned_image(vit, images, element, combine):
    model = GroupAverage(vit, combine)
    with torch.inference_mode():
        expected, found = model(images), model(transform(images, element))
        alone = (vit(transform(images, element)) - vit(images)).abs().amax(1)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert (alone > 1e-3).all() or element == "e"


def test_the_mean_of_views_is_that_of_each_image_by_itself(vit, images):
    with torch.inference_mode():
        found = GroupAverage(vit, mean_of_views)(images)
        for image, logits in zip(images, found, strict=True):
            views = [image.rot90(k, (1, 2)) for k in range(4)]
            views += [view.flip(2) for view in views]
            expected = sum(vit(view[None])[0] for view in views) / 8
            assert torch.allclose(logits, expected, rtol=0, atol=1e-12)


def test_the_most_confident_view_has_the_largest_of_all_probabilities(vit, images):
    with torch.inference_mode():
        found = GroupAverage(vit, most_confident_view)(images)
        chosen = set()
        for image, logits in zip(images, found, strict=True):
            views = [vit(transform(image, element)[None])[0] for element in ELEMENTS]
            surest = max(range(8), key=lambda view: views[view].softmax(0).max().item())
            assert torch.allclose(logits, views[surest], rtol=0, atol=1e-12)
            chosen.add(surest)
    assert len(chosen) > 1


def test_probabilities_that_round_to_one_are_told_apart():
    logits = torch.zeros(8, 1, 3)
    logits[:, 0, 0] = torch.tensor([40.0, 44.0, 60.0, 41.0, 50.0, 50.0, 42.0, 43.0])
    logits[2, 0, 1] = 30.0  # sure by 30, where view 4 is sure by 50
    assert (logits.softmax(-1).amax(-1) == 1).all()
    assert torch.equal(most_confident_view(logits), logits[4])


def test_one_logit_has_no_most_confident_view():
    """Its softmax is 1 in every view, so the first would count, which a turn changes."""
    with pytest.raises(VitrailError, match="one logit"):
        most_confident_view(torch.randn(8, 6, 1))


def test_of_equally_sure_views_the_first_counts():
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 0.0]]).unsqueeze(1)
    assert torch.equal(most_confident_view(logits), logits[1])


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
