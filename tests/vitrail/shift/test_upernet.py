"""UperNet on models of timm's; what it shares with MMSegmentation is tested beside its heads."""

import pytest
import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.extensions.fourier_upernet import HarmonicUPerNet
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift
from vitrail.shift.geometry import roll_image
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
HARMONIC = "harmonic_swin_tiny_patch4_window7_224"
CLASSES = 3


def segmenter(name, decoder=None, **options):
    torch.manual_seed(0)
    backbone = timm.create_model(name, **options)
    segmenter_type = HarmonicUPerNet if name == HARMONIC else UPerNet
    model = segmenter_type(backbone, CLASSES, channels=8, **(decoder or {})).double().eval()
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


@pytest.mark.parametrize("upsampling", ["bilinear", "zero_insert"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_adaptive_models_shift_with_the_image(name, upsampling):
    """shift, Eq. 2, Sec. 4, Sec. A2.2."""
    model = segmenter(name, {"upsampling": upsampling}, **MODELS[name])
    assert equivariance_error(model) <= 1e-11


@torch.inference_mode()
def test_zeros_are_inserted_between_features_and_not_between_logits():
    name = "a_swin_tiny_patch4_window7_224"
    image = torch.randn(1, 3, 48, 96, dtype=torch.float64, generator=torch.manual_seed(1))
    zeros, bilinear = (
        segmenter(name, {"upsampling": upsampling}, **SWIN)
        for upsampling in ("zero_insert", "bilinear")
    )
    coarse, fine = zeros.backbone["model"].forward_stages(image)[:2][::-1]
    kept = zeros.decode_head.upsample(coarse, fine)
    assert (kept != 0).double().mean() == 0.25
    assert kept.sum().isclose(coarse.tokens.sum())
    assert (zeros(image) != 0).all()
    assert (zeros(image) - bilinear(image)).abs().max() > 1e-3


def test_an_unknown_upsampling_is_refused():
    with pytest.raises(VitrailError, match="upsampling 'zeros' is unknown"):
        segmenter("a_swin_tiny_patch4_window7_224", {"upsampling": "zeros"}, **SWIN)


@pytest.mark.parametrize("name", ["a_swin_tiny_patch4_window7_224", "vit_tiny_patch16_224"])
def test_a_model_of_features_only_is_refused_in_a_sentence(name):
    backbone = timm.create_model(name, features_only=True, **MODELS.get(name, {}))
    with pytest.raises(VitrailError, match=r"without features_only"):
        UPerNet(backbone, CLASSES)


def test_those_of_a_plain_model_do_not():
    assert equivariance_error(segmenter("swin_tiny_patch4_window7_224", **SWIN)) > 1e-3


FRACTIONS = [(0.03, 0.03), (-0.5, 7.25), (17.6, 95.1), (5.0, 2.0)]


@torch.inference_mode()
def test_the_map_of_recentred_images_moves_back_by_fractions_of_a_pixel():
    model = segmenter(HARMONIC, **SWIN)
    images = band_limited(torch.randn(4, 3, 48, 96, dtype=torch.float64))
    offsets = torch.tensor(FRACTIONS, dtype=torch.float64)
    logits, shifted = model(images), model(fourier_shift(images, offsets))
    assert logits.std() > 0.05
    torch.testing.assert_close(shifted, fourier_shift(logits, offsets), rtol=0, atol=1e-9)


@torch.inference_mode()
def test_the_map_of_recentred_images_keeps_every_bit_under_whole_shifts():
    model = segmenter(HARMONIC, **SWIN).float()
    images, offsets = torch.randn(4, 3, 48, 96), torch.tensor([[1, 0], [5, 2], [17, 95], [24, 48]])
    logits = model(images)
    assert torch.equal(model(roll_image(images, offsets)), roll_image(logits, offsets))


@torch.inference_mode()
def test_the_map_of_recentred_images_lies_on_them():
    """A decoder that only shows the finest tokens shows them where they came from."""
    model = segmenter(HARMONIC, **SWIN)
    images = band_limited(torch.randn(2, 3, 48, 96, dtype=torch.float64))
    model.decode_head.forward = lambda stages, size: seen.pop()
    move = model.backbone["model"].recentred.move(images)
    seen = [move.there(images)]
    torch.testing.assert_close(model(images), images, rtol=0, atol=1e-10)


@torch.inference_mode()
def test_the_map_of_a_plain_swin_does_not_follow_fractions():
    model = segmenter("swin_tiny_patch4_window7_224", **SWIN)
    images = band_limited(torch.randn(4, 3, 48, 96, dtype=torch.float64))
    offsets = torch.tensor(FRACTIONS, dtype=torch.float64)
    error = model(fourier_shift(images, offsets)) - fourier_shift(model(images), offsets)
    assert error.abs().max() > 1e-2


def test_with_jitter_the_map_moves_back_by_what_was_drawn():
    model = segmenter(HARMONIC, **SWIN, jitter=1.0)
    images = band_limited(torch.randn(2, 3, 48, 96, dtype=torch.float64))
    recentring = model.backbone["model"].recentred.train()
    moves = [recentring.move(images) for _ in range(2)]
    assert (moves[0].rest - moves[1].rest).abs().max() > 0.1
    for move in moves:
        back = move.back(move.there(images))
        torch.testing.assert_close(back, images, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", HARMONIC, *MODELS])
def test_training_gives_every_parameter_a_gradient(name):
    model = segmenter(name, **MODELS.get(name, SWIN)).float().train()
    model(torch.randn(2, 3, 48, 96)).square().mean().backward()
    lacking = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert lacking == []


def test_images_that_the_windows_do_not_divide_are_refused():
    model = segmenter("a_swin_tiny_patch4_window7_224", **SWIN)
    with pytest.raises(VitrailError, match="pixels do not fit windows of"):
        model(torch.randn(1, 3, 48, 60, dtype=torch.float64))


@torch.inference_mode()
@pytest.mark.parametrize("name", ["a_swin_tiny_patch4_window7_224", "a_swinv2_tiny_window8_256"])
def test_a_backbone_that_pads_gives_logits_of_the_image_alone(name):
    model = segmenter(name, **SWIN, dynamic_img_pad=True)
    image = torch.randn(1, 3, 40, 61, dtype=torch.float64)
    larger = nn.functional.pad(image, (0, 96 - 61, 0, 8))
    assert torch.equal(model(image), segmenter(name, **SWIN)(larger)[:, :, :40, :61])
