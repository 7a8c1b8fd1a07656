import pytest
import torch
from torch import nn

import vitrail.segmentation  # noqa: F401  # isort: skip
import timm
from mmcv.cnn import ConvModule
from mmseg.models.backbones import SwinTransformer

from tests.vitrail.segmentation import segmenters
from tests.vitrail.segmentation.segmenters import SIDE, WIDTHS, WINDOW, noise, offsets, spread
from vitrail.errors import VitrailError
from vitrail.segmentation.adaptive_backbones import AdaptiveSwinBackbone, AdaptiveSwinV2Backbone
from vitrail.segmentation.backbones import Pyramid, TimmSwinV2
from vitrail.shift.geometry import roll_image

NAMES = {
    AdaptiveSwinBackbone: "swin_tiny_patch4_window7_224",
    AdaptiveSwinV2Backbone: "swinv2_tiny_window8_256",
    TimmSwinV2: "swinv2_tiny_window8_256",
}
FAMILY = {AdaptiveSwinBackbone: "swin", AdaptiveSwinV2Backbone: "swinv2", TimmSwinV2: "swinv2"}
backbones = pytest.mark.parametrize("backbone", NAMES)
adaptive = pytest.mark.parametrize("backbone", [AdaptiveSwinBackbone, AdaptiveSwinV2Backbone])


def sizes(backbone):
    return segmenters.sizes(FAMILY[backbone])


def micro(backbone, **options):
    torch.manual_seed(0)
    return spread(backbone(**sizes(backbone), **options))


def maps(output):
    return (
        [features.tokens for features in output.features] if isinstance(output, Pyramid) else output
    )


@adaptive
def test_features_of_a_shifted_image_are_the_images_at_other_places(backbone):
    side = SIDE[FAMILY[backbone]]
    model = micro(backbone).double()
    images = noise(4, 3, side, 2 * side)
    shift = offsets(4, side, 2 * side)
    before, after = model(images).features, model(roll_image(images, shift)).features
    stages = zip(before, after, strict=True)
    for level, (here, there) in enumerate(stages):
        assert here.stride == 2 * 2**level
        assert here.tokens.shape == (4, WIDTHS[level], side // here.stride, 2 * side // here.stride)
        distance = (there.offset + shift - here.offset) // here.stride
        expected = roll_image(here.tokens, distance)
        torch.testing.assert_close(there.tokens, expected, rtol=0, atol=1e-12)


@adaptive
def test_selection_and_other_arguments_go_to_our_model(backbone):
    assert micro(backbone).model.grid.name == "per_layer"
    assert micro(backbone, selection="fast").model.grid.name == "per_stage"
    with pytest.raises(VitrailError, match="did you mean 'per_stage'"):
        micro(backbone, selection="per_stge")


def test_the_plain_features_are_timms_normalised():
    model = micro(TimmSwinV2)
    images = noise(2, 3, 64, 128, dtype=torch.float32)
    expected = model.model.forward_intermediates(images, intermediates_only=True)
    for index, (features, x) in enumerate(zip(model(images), expected, strict=True)):
        norm = getattr(model, f"norm{index}")
        normalised = nn.functional.layer_norm(
            x.permute(0, 2, 3, 1), norm.normalized_shape, norm.weight, norm.bias, 1e-5
        )
        torch.testing.assert_close(features, normalised.permute(0, 3, 1, 2))


@backbones
def test_it_takes_images_of_several_sizes(backbone):
    side = SIDE[FAMILY[backbone]]
    model = micro(backbone)
    for rows, columns in [(1, 1), (1, 2), (3, 1)]:
        images = noise(1, 3, rows * side, columns * side, dtype=torch.float32)
        tokens = maps(model(images))[3]
        assert tokens.shape[2:] == (rows * side // 16, columns * side // 16)


def test_the_parameters_of_a_swin_are_as_many_as_mmsegs():
    theirs = SwinTransformer(
        embed_dims=WIDTHS[0],
        patch_size=2,
        strides=(2, 2, 2, 2),
        window_size=WINDOW["swin"],
        depths=(2, 2, 2, 2),
        num_heads=(1, 2, 2, 4),
    )
    ours = AdaptiveSwinBackbone(**sizes(AdaptiveSwinBackbone))
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert counts[0] == counts[1]


@backbones
def test_only_what_is_needed_is_kept_and_all_of_it_gets_a_gradient(backbone):
    model = micro(backbone, out_indices=(0, 2)).train()
    images = noise(2, 3, SIDE[FAMILY[backbone]], SIDE[FAMILY[backbone]], dtype=torch.float32)
    tokens = maps(model(images))
    assert len(tokens) == 2
    sum((x**3).sum() for x in tokens).backward()
    lacking = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert lacking == []


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@backbones
def test_published_weights_of_timms_classifier_are_loaded(backbone, suffix, tmp_path):
    published = timm.create_model(NAMES[backbone], **sizes(backbone))
    file = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save({"model": published.state_dict()}, file)
    else:
        import safetensors.torch

        safetensors.torch.save_file(published.state_dict(), file)
    model = backbone(**sizes(backbone), init_cfg={"type": "Pretrained", "checkpoint": str(file)})
    model.init_weights()
    weights = published.state_dict()
    loaded = model.model.state_dict()
    loaded.pop("_extra_state", None)  # by which an adaptive model records its selection
    for name, value in loaded.items():
        assert torch.equal(value, weights[name]), name


@backbones
def test_weights_of_another_model_are_refused(backbone, tmp_path):
    file = tmp_path / "weights.pth"
    other = {**sizes(backbone), "embed_dim": 16}
    torch.save(timm.create_model(NAMES[backbone], **other).state_dict(), file)
    model = backbone(**sizes(backbone), init_cfg={"type": "Pretrained", "checkpoint": str(file)})
    with pytest.raises(VitrailError, match=r"\(16, 3, 2, 2\) in .*weights.pth and \(12, 3, 2, 2\)"):
        model.init_weights()
    torch.save({"fc.weight": torch.ones(1)}, file)
    with pytest.raises(VitrailError, match=r"lacks .* of the .* weights of the backbone"):
        model.init_weights()


def test_another_kind_of_initialisation_is_refused():
    model = AdaptiveSwinBackbone(**sizes(AdaptiveSwinBackbone), init_cfg={"type": "Xavier"})
    with pytest.raises(VitrailError, match=r"init_cfg.type 'Xavier' is unknown; use 'Pretrained'"):
        model.init_weights()


def test_without_weights_to_load_the_random_ones_stay():
    model = micro(AdaptiveSwinBackbone)
    before = model.state_dict()
    model.init_weights()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_mmsegs_convolutions_become_circular_by_their_config():
    conv = ConvModule(2, 3, 3, padding=1, conv_cfg={"type": "CircularConv2d"}).double()
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(conv(x.roll((2, 3), (2, 3))), conv(x).roll((2, 3), (2, 3)))
    assert [name for name, _ in conv.named_parameters()] == ["conv.weight", "conv.bias"]


@pytest.mark.parametrize("option", ["with_cp", "frozen_stages"])
def test_options_of_mmsegs_swin_are_refused(option):
    with pytest.raises(VitrailError, match=rf"{option}.*: give it timm's arguments; mmseg's own"):
        AdaptiveSwinBackbone(**sizes(AdaptiveSwinBackbone), **{option: 1})
