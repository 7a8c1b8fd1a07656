"""A row of the cross table is what each measure says, and what a measure refuses has its words."""

import copy

import pytest
import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from replication.measures.consistency import standard_consistency
from replication.measures.validation_split import validation
from replication.papers.cross.measures import invariances
from vitrail.errors import REFUSED, VitrailError
from vitrail.measures.accuracy import accuracy
from vitrail.measures.consistency import CROP_PCT
from vitrail.measures.permutable import permutable
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


def test_crops_are_those_of_a_recipe_that_resizes_wider(trained_on_digits):
    wider = trained_on_digits(Pixels(), crop_pct=CROP_PCT)
    expected = standard_consistency(wider, ["crop"], **FEW)["crop/consistency"]
    found = invariances(trained_on_digits(Pixels(), crop_pct=1.0), **FEW, factors=[])
    assert found["standard"] == expected


def test_a_row_has_every_number_of_a_vit(trained_on_digits, vit):
    values = invariances(trained_on_digits(vit, **SIDE), **FEW)
    assert not [key for key in values if key.endswith(REFUSED)]
    assert values["images"] == 30
    assert 0 <= values["p_shap/low"] <= values["p_shap"] <= values["p_shap/high"] <= 1
    for key, way in (("size/2", "none"), ("size/2/rescaled", "constant")):
        larger = rescale_pos_embed(vit, 32, antialias=False, calibration=way)
        batches = validation(trained_on_digits(larger, image_size=32), **FEW).batches
        assert values[key] == pytest.approx(accuracy(larger, batches).top1)


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
