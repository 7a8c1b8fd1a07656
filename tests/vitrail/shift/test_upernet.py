"""UperNet on models of timm's; what it shares with MMSegmentation is tested beside its heads."""

import pytest
import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.shift.torus import roll_image
from vitrail.shift.upernet import UPerNet

SWIN = {
    "img_size": 48,
    "patch_size": 2,
    "window_size": 3,
    "embed_dim": 8,
    "depths": (1, 1, 1, 1),
    "num_heads": (1, 1, 2, 2),
    "dynamic_img_size": True,
}
MODELS = {
    "a_swin_tiny_patch4_window7_224": SWIN,
    "a_swinv2_tiny_window8_256": SWIN,
    "a_cvt_13": {
        "img_size": 48,
        "embed_dims": (8, 8, 8),
        "depths": (1, 1, 1),
        "num_heads": (1, 1, 1),
        "kernels": (3, 3, 3),
        "strides": (2, 2, 2),
    },
    "a_mvitv2_tiny": {"img_size": (48, 96), "embed_dim": 8, "depths": (1, 1)},
}
CLASSES = 3


def segmenter(name, **options):
    torch.manual_seed(0)
    model = UPerNet(timm.create_model(name, **options), CLASSES, channels=8).double().eval()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    return model


@torch.inference_mode()
def equivariance_error(model):
    torch.manual_seed(1)
    images = torch.randn(4, 3, 48, 96, dtype=torch.float64)
    shift = torch.tensor([[1, 0], [5, 2], [17, 95], [24, 48]])
    logits, shifted = model(images), model(roll_image(images, shift))
    assert logits.shape == (4, CLASSES, 48, 96)
    assert logits.std() > 0.05
    return (shifted - roll_image(logits, shift)).abs().max().item()


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_adaptive_models_shift_with_the_image(name):
    """shift, Eq. 2, Sec. 4."""
    assert equivariance_error(segmenter(name, **MODELS[name])) <= 1e-11


def test_those_of_a_plain_model_do_not():
    assert equivariance_error(segmenter("swin_tiny_patch4_window7_224", **SWIN)) > 1e-3


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", *MODELS])
def test_training_gives_every_parameter_a_gradient(name):
    model = segmenter(name, **MODELS.get(name, SWIN)).float().train()
    model(torch.randn(2, 3, 48, 96)).square().mean().backward()
    lacking = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert lacking == []


def test_images_that_the_windows_do_not_divide_are_refused():
    model = segmenter("a_swin_tiny_patch4_window7_224", **SWIN)
    with pytest.raises(VitrailError, match="pixels do not fit windows of"):
        model(torch.randn(1, 3, 48, 60, dtype=torch.float64))
