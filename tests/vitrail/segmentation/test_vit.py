import pytest
import torch

import vitrail.segmentation  # noqa: F401  # isort: skip
import timm
from huggingface_hub.errors import LocalEntryNotFoundError
from mmseg.models.backbones import VisionTransformer
from mmseg.models.necks import MultiLevelNeck
from timm.models import _builder

from tests.vitrail.segmentation.segmenters import noise
from vitrail.errors import VitrailError
from vitrail.segmentation.vit import TimmViT
from vitrail.variance.rescaling import rescale_pos_embed
from vitrail.variance.upsampling import axis_variance_ratio

# Grids of 4 x 4 patches.
MICRO = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 4, "num_heads": 2}
OUT = (0, 1, 2, 3)
K1D = axis_variance_ratio(224, 448)


def micro(**options):
    torch.manual_seed(0)
    model = TimmViT(**MICRO, out_indices=OUT, **options)
    torch.nn.init.normal_(model.model.pos_embed)
    return model.eval()


def positions(model, height, width):
    """The table that an image of so many pixels gets, prefix and all."""
    torch.nn.init.zeros_(model.model.patch_embed.proj.weight)
    torch.nn.init.zeros_(model.model.patch_embed.proj.bias)
    torch.nn.init.zeros_(model.model.cls_token)
    with torch.no_grad():
        x = model.model.patch_embed(torch.zeros(1, 3, height, width))
        return model.model._pos_embed(x)


@pytest.mark.parametrize(
    ("size", "axes"), [((32, 32), 0), ((32, 64), 1), ((64, 32), 1), ((64, 48), 2), ((24, 64), 1)]
)
def test_the_papers_constant_is_that_of_the_axes_that_grow(size, axes):
    plain, calibrated = positions(micro(), *size), positions(micro(calibration="constant"), *size)
    assert torch.equal(calibrated[:, 0], plain[:, 0])  # the class token's
    torch.testing.assert_close(calibrated[:, 1:], plain[:, 1:] * K1D ** (-axes / 2))


@pytest.mark.parametrize("calibration", ["none", "constant", "empirical"])
def test_it_is_the_models_of_the_variance_paper_at_a_larger_size(calibration):
    model = micro(calibration=calibration)
    images = noise(2, 3, 64, 48, dtype=torch.float32)
    larger = rescale_pos_embed(model.model, (64, 48), antialias=False, calibration=calibration)
    table = positions(micro(calibration=calibration), 64, 48)
    torch.testing.assert_close(larger.pos_embed, table)
    features = model(images)
    assert [tuple(x.shape) for x in features] == [(2, 12, 8, 6)] * 4


def test_the_file_of_mmsegs_pretrained_is_refused_rather_than_taken_for_yes():
    """mmseg's segmenters hand `model.pretrained` on to their backbone."""
    with pytest.raises(VitrailError, match=r"init_cfg=.*checkpoint='mine\.pth'"):
        micro(pretrained="mine.pth")
    micro(pretrained=None)


def test_weights_that_cannot_be_fetched_are_told_in_a_sentence(monkeypatch):
    def unreachable(*_, **__):
        raise LocalEntryNotFoundError("cannot find the file on the Hub")

    monkeypatch.setattr(_builder, "load_pretrained", unreachable)
    with pytest.raises(VitrailError, match=r"'deit_small_patch16_224' .*network.*init_cfg"):
        micro(pretrained=True)


def test_positions_may_start_with_another_spread_or_be_left_out():
    torch.manual_seed(0)
    model = TimmViT(**MICRO, out_indices=OUT, pos_std=0.5)
    assert model.model.pos_embed.std().item() == pytest.approx(0.5, rel=0.2)
    model = micro()
    model.model.rescaling = {"scale": 0.0}
    table = positions(model, 64, 32)
    assert table[:, 0].any()  # the class token's
    assert not table[:, 1:].any()


def test_in_training_nothing_is_calibrated():
    model = micro(calibration="constant").train()
    torch.testing.assert_close(positions(model, 64, 64), positions(micro(), 64, 64))


def test_at_the_crops_size_it_is_timms_model():
    model = micro(calibration="empirical")
    images = noise(2, 3, 32, 32, dtype=torch.float32)
    theirs = timm.create_model("deit_small_patch16_224", **MICRO, num_classes=0).eval()
    weights = {**theirs.state_dict(), **model.model.state_dict()}
    theirs.load_state_dict(weights)
    expected = theirs.forward_intermediates(images, indices=list(OUT), intermediates_only=True)
    for features, x in zip(model(images), expected, strict=True):
        torch.testing.assert_close(features, x)


def mmseg_weights(weights):
    """timm's weights under the names of mmseg's VisionTransformer."""
    renamed = {
        "patch_embed.proj": "patch_embed.projection",
        "blocks.": "layers.",
        ".norm1.": ".ln1.",
        ".norm2.": ".ln2.",
        "attn.qkv.weight": "attn.attn.in_proj_weight",
        "attn.qkv.bias": "attn.attn.in_proj_bias",
        "attn.proj.": "attn.attn.out_proj.",
        "mlp.fc1.": "ffn.layers.0.0.",
        "mlp.fc2.": "ffn.layers.1.",
    }
    result = {}
    for name, value in weights.items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        result[name] = value
    return result


@pytest.mark.parametrize("size", [(32, 32), (48, 80), (30, 45)])
def test_uncalibrated_it_is_mmsegs_vision_transformer(size):
    """Of any size: the table is interpolated, and images padded to whole patches, as there."""
    model = micro()
    theirs = VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dims=12,
        num_layers=4,
        num_heads=2,
        out_indices=OUT,
        norm_cfg={"type": "LN", "eps": 1e-6},
        patch_bias=True,  # DeiT has it, though mmseg leaves it out
        interpolate_mode="bicubic",
    )
    theirs.eval()  # returns nothing
    theirs.load_state_dict(mmseg_weights(model.model.state_dict()))
    images = noise(2, 3, *size, dtype=torch.float32)
    for features, x in zip(model(images), theirs(images), strict=True):
        torch.testing.assert_close(features, x, rtol=1e-4, atol=1e-4)


def test_the_multi_level_neck_takes_its_features():
    neck = MultiLevelNeck([12] * 4, 8, scales=[4, 2, 1, 0.5])
    pyramid = neck(micro()(noise(1, 3, 32, 64, dtype=torch.float32)))
    assert [tuple(x.shape[2:]) for x in pyramid] == [(16, 32), (8, 16), (4, 8), (2, 4)]


def test_published_weights_fit_crops_of_another_size(tmp_path):
    published = timm.create_model("deit_small_patch16_224", **{**MICRO, "img_size": 16})
    torch.nn.init.normal_(published.pos_embed)
    torch.save({"model": published.state_dict()}, tmp_path / "deit.pth")
    weights = {"type": "Pretrained", "checkpoint": str(tmp_path / "deit.pth")}
    model = micro(init_cfg=weights)
    model.init_weights()
    grid = published.pos_embed[:, 1:].unflatten(1, (2, 2)).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(grid, (4, 4), mode="bicubic")
    torch.testing.assert_close(model.model.pos_embed[:, 1:], resized.flatten(2).mT)
    assert torch.equal(model.model.blocks[3].mlp.fc1.weight, published.blocks[3].mlp.fc1.weight)


def test_every_parameter_gets_a_gradient():
    model = micro().train()
    sum((x**3).sum() for x in model(noise(2, 3, 32, 32, dtype=torch.float32))).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_models_without_a_table_of_positions_are_refused():
    with pytest.raises(VitrailError, match=r"model_name 'swin_tiny_.*' is no Vision Transformer"):
        TimmViT("swin_tiny_patch4_window7_224", img_size=224)


def test_an_unknown_calibration_is_refused():
    with pytest.raises(VitrailError, match="'constan' is unknown; did you mean 'constant'"):
        micro(calibration="constan")
