"""What is made of eight views in any order is invariant, whatever the model."""

import pytest
import timm
import torch

from vitrail.errors import VitrailError
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.group_averaging import (
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
