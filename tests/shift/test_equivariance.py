import pytest
import timm
import torch
from torch import nn

import vitrine.models  # noqa: F401
from vitrine.errors import VitrineError
from vitrine.shift.equivariance import FAMILIES, invariance_error, make_shift_equivariant

SWIN = {"img_size": 24, "patch_size": 2, "embed_dim": 12, "depths": (2, 2), "num_heads": (1, 2)}
MODELS = {
    "swin_tiny_patch4_window7_224": {**SWIN, "window_size": 3},
    "swinv2_tiny_window8_256": {**SWIN, "window_size": 3},
    "cvt_13": {
        "img_size": 32,
        "embed_dims": (8, 8, 16),
        "depths": (1, 1, 1),
        "num_heads": (1, 1, 2),
    },
    "mvitv2_tiny_zeros": {"img_size": 32, "embed_dim": 8, "depths": (1, 1, 1, 1)},
}


@pytest.fixture(params=MODELS)
def plain(request):
    torch.manual_seed(0)
    model = timm.create_model(request.param, num_classes=5, **MODELS[request.param]).double().eval()
    for parameter in model.parameters():  # some begin at zero, which would hide them
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("selection", ["paper", "fast"])
def test_a_plain_model_of_any_configuration_becomes_invariant(plain, selection):
    side = 24 if "swin" in type(plain).__name__.lower() else 32
    images = torch.randn(2, 3, side, side, dtype=torch.float64)
    before = plain(images)
    adaptive = make_shift_equivariant(plain, selection)
    assert adaptive(images).shape == before.shape
    assert invariance_error(adaptive, images) <= 1e-12 * max(1, before.abs().max().item())
    assert invariance_error(plain, images) > 1e-3
    assert torch.equal(plain(images), before)  # it is left as it is


def test_weights_are_kept(plain):
    adaptive = make_shift_equivariant(plain)
    kept = adaptive.state_dict()
    for name, weight in plain.state_dict().items():
        assert "rel_pos_" in name or torch.equal(weight, kept[name])
    assert adaptive.selection == "paper"


def test_every_family_is_tested():
    made = {type(timm.create_model(name, **MODELS[name])) for name in MODELS}
    assert made == set(FAMILIES)


def test_another_family_is_refused():
    with pytest.raises(VitrineError, match="a VisionTransformer cannot be made shift-equivariant"):
        make_shift_equivariant(timm.create_model("vit_tiny_patch16_224"))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=(2, 3))


class Corner(nn.Module):
    def forward(self, x):
        return x[:, :, 0, 0]


def images():
    return torch.randn(4, 3, 8, 12, dtype=torch.float64)


def test_a_mean_over_the_image_is_invariant():
    assert invariance_error(Mean(), images()) < 1e-15


def test_a_pixel_is_not():
    assert invariance_error(Corner(), images()) > 0.1


def test_the_model_is_judged_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Dropout(0.5), Mean())
    assert invariance_error(model, images()) < 1e-15
    assert model.training
