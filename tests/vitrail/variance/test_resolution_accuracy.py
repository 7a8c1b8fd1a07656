"""At another size a model is judged by each calibration of its table, or as it is."""

import pytest
import timm
import torch
from torch import nn

from vitrail.errors import VitrailError
from vitrail.variance.rescaling import rescale_pos_embed
from vitrail.variance.resolution_accuracy import CALIBRATIONS, NO_TABLE, right_at_size

OWN = 16  # pixels a side


@pytest.fixture(scope="module")
def vit():
    torch.manual_seed(0)
    options = {"img_size": OWN, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **options).eval()
    for parameter in model.parameters():  # timm's weights say hardly anything of so few pixels
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


def batches(side):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 15, 3, side, side, generator=generator)
    return list(zip(images, torch.arange(30).view(2, 15) % 3, strict=True))


def test_a_table_is_judged_by_each_calibration(vit):
    right = right_at_size(vit, batches(24), 24, OWN)
    assert [*right] == [*CALIBRATIONS]
    for name, way in CALIBRATIONS.items():
        larger = rescale_pos_embed(vit, 24, antialias=False, calibration=way)
        with torch.inference_mode():
            expected = [larger(images).argmax(1) == labels for images, labels in batches(24)]
        assert torch.equal(right[name], torch.cat(expected))
    first, *others = right_at_size(vit, batches(OWN), OWN, OWN).values()
    assert all(torch.equal(first, other) for other in others)


def test_a_model_without_a_table_is_shown_larger_images_as_it_is(vit):
    larger = Dynamic(rescale_pos_embed(vit, 24, antialias=False))
    right = right_at_size(larger, batches(24), 24, OWN)
    assert [*right] == [NO_TABLE]
    with torch.inference_mode():
        expected = [larger(images).argmax(1) == labels for images, labels in batches(24)]
    assert torch.equal(right[NO_TABLE], torch.cat(expected))


class Dynamic(nn.Module):
    """A model behind which no table is seen."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


class OfOneSize(nn.Module):
    """A ViT that reports a table of positions, and fails at any other size."""

    def __init__(self, vit):
        super().__init__()
        self.vit, self.pos_embed, self.patch_embed = vit, vit.pos_embed, vit.patch_embed

    def set_input_size(self, img_size):
        self.patch_embed.set_input_size(img_size=img_size)

    def forward(self, x):
        if x.shape[-1] != OWN:
            raise RuntimeError("The size of tensor a (65) must match the size of tensor b (50)")
        return self.vit(x)


def test_a_model_with_a_table_that_fails_at_a_size_is_refused_as_any_other(vit):
    with pytest.raises(VitrailError, match="takes no images of 24 pixels"):
        right_at_size(OfOneSize(vit), batches(24), 24, OWN)
