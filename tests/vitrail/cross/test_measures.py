"""A row of the cross table is what each measure says, and what a measure refuses has its words."""

import copy

import pytest
import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.cross.measures import (
    CALIBRATIONS,
    CROP_PCT,
    NO_TABLE,
    PLAIN,
    RESCALED,
    crops_consistency,
    eight_views,
    invariances,
    right_at_size,
)
from vitrail.errors import REFUSED, VitrailError
from vitrail.measures.consistency import standard_consistency
from vitrail.measures.permutable import permutable
from vitrail.octic.group import ELEMENTS, transform
from vitrail.variance.rescaling import patch_positions, rescale_pos_embed

FEW = {"batch_size": 20, "images": 30}
SIDE = {"image_size": 16}


class Pixels(nn.Module):
    """Ten pixels of the image; keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def forward(self, x):
        self.shown.append(x)
        return x[:, 0, 1:3, 1:6].flatten(1)


def small(name, **args):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10, img_size=16, **args).eval()
    for parameter in model.parameters():  # timm's weights say hardly anything of so few pixels
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="module")
def vit():
    return small("vit_tiny_patch16_224", patch_size=4, embed_dim=24, depth=1, num_heads=2)


def test_views_are_judged_as_one_by_one(trained_on_digits):
    model = Pixels()
    views = eight_views(trained_on_digits(model), batch_size=30, images=30)
    images = model.shown[0]
    upright = images[:, 0, 1:3, 1:6].flatten(1)
    for element, kept in zip(ELEMENTS, views.kept, strict=True):
        turned = transform(images, element)[:, 0, 1:3, 1:6].flatten(1)
        torch.testing.assert_close(kept, turned.argmax(1) == upright.argmax(1))
    assert views.kept[0].all()
    assert 0 < views.kept[1:].double().mean() < 1
    assert not views.equal.any()


def test_crops_are_those_of_a_recipe_that_resizes_wider(trained_on_digits):
    wider = trained_on_digits(Pixels(), crop_pct=CROP_PCT)
    expected = standard_consistency(wider, ["crop"], **FEW)
    assert crops_consistency(trained_on_digits(Pixels(), crop_pct=1.0), **FEW) == expected


def test_a_table_is_judged_by_each_calibration(trained_on_digits, vit):
    trained = trained_on_digits(vit, **SIDE)
    right = right_at_size(trained, 24, **FEW)
    assert [*right] == [*CALIBRATIONS]
    for name, way in CALIBRATIONS.items():
        larger = rescale_pos_embed(vit, 24, antialias=False, calibration=way)
        expected = right_at_size(trained_on_digits(Dynamic(larger), **SIDE), 24, **FEW)
        torch.testing.assert_close(right[name], expected[NO_TABLE])
    own = right_at_size(trained, 16, **FEW)
    assert torch.equal(own[PLAIN], own[RESCALED])


class Dynamic(nn.Module):
    """A model behind which no table is seen."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def test_a_row_has_every_number_of_a_vit(trained_on_digits, vit):
    values = invariances(trained_on_digits(vit, **SIDE), **FEW)
    assert not [key for key in values if key.endswith(REFUSED)]
    assert values["images"] == 30
    assert 0 <= values["p_shap/low"] <= values["p_shap"] <= values["p_shap/high"] <= 1
    right = right_at_size(trained_on_digits(vit, **SIDE), 32, **FEW)
    assert values["size/2"] == pytest.approx(100 * right[PLAIN].double().mean().item())
    assert values["size/2/rescaled"] == pytest.approx(100 * right[RESCALED].double().mean().item())


def test_a_row_keeps_the_sentence_of_what_is_refused(trained_on_digits):
    model = timm.create_model("test_resnet", num_classes=10).eval()
    values = invariances(trained_on_digits(model, image_size=32), **FEW, factors=[1.5])
    for key, refuse in (("p_shap", permutable), ("size/1.5/rescaled", patch_positions)):
        with pytest.raises(VitrailError) as refused:
            refuse(model)
        assert values[key] is None
        assert values[key + REFUSED] == str(refused.value)
    assert values["size/1.5"] is not None
    assert values["circular"] is not None


def test_a_size_that_a_model_does_not_take_is_refused_in_both_columns(trained_on_digits, vit):
    trained = trained_on_digits(vit, **SIDE)
    values = invariances(trained, **FEW, factors=[17 / 16, 1.5])
    with pytest.raises(VitrailError) as refused:
        rescale_pos_embed(vit, 17)
    for key in ("size/1.0625", "size/1.0625/rescaled"):
        assert values[key] is None
        assert values[key + REFUSED] == str(refused.value)
    assert values["size/1.5/rescaled"] is not None


def test_d8_keeps_every_view_and_a_model_of_some_pixels_does_not(trained_on_digits):
    """What D8 keeps by construction, a model of ten fixed pixels does not."""
    args = {"patch_size": 4, "depth": 1, "init_values": 1, "embed_dim": 64, "num_heads": 1}
    d8 = small("octic_d8_vit_small_patch16_224", **args)
    views = eight_views(trained_on_digits(d8, **SIDE), **FEW)
    assert views.equal.all()
    assert views.kept.all()
    assert not eight_views(trained_on_digits(Pixels(), **SIDE), **FEW).kept.all()


@pytest.mark.parametrize("factors", [[], [1.5, 2.0]])
def test_a_row_takes_the_passes_that_it_is_priced_by(trained_on_digits, vit, factors):
    pixels = []

    def tally(_, args):
        pixels.append(args[0][:, 0].numel())

    model = copy.deepcopy(vit)
    model.patch_embed.register_forward_pre_hook(tally)
    invariances(trained_on_digits(model, **SIDE), **FEW, factors=factors)
    priced = invariances.passes({"images": 30, "factors": factors})
    assert sum(pixels) / (30 * 16**2) == pytest.approx(priced)


class OfOneSize(nn.Module):
    """A ViT that reports a table of positions, and fails at any other size."""

    def __init__(self, vit):
        super().__init__()
        self.vit, self.pos_embed, self.patch_embed = vit, vit.pos_embed, vit.patch_embed

    def set_input_size(self, img_size):
        self.patch_embed.set_input_size(img_size=img_size)

    def forward(self, x):
        if x.shape[-1] != SIDE["image_size"]:
            raise RuntimeError("The size of tensor a (65) must match the size of tensor b (50)")
        return self.vit(x)


def test_a_model_with_a_table_that_fails_at_a_size_is_refused_as_any_other(trained_on_digits, vit):
    with pytest.raises(VitrailError, match="takes no images of 24 pixels"):
        right_at_size(trained_on_digits(OfOneSize(vit), **SIDE), 24, **FEW)
