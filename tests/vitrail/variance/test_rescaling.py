import copy
from functools import partial

import pytest
import timm
import torch
from timm.layers import HybridEmbed, to_2tuple
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.variance.rescaling import (
    at_image_size,
    constant_scale,
    empirical_scale,
    patch_positions,
    rescale_pos_embed,
    rescaled_table,
)

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 1, "num_heads": 2}
KINDS = {
    "class token": {},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "registers": {"reg_tokens": 3},
    "registers, no embedding for them": {"reg_tokens": 3, "no_embed_class": True},
    "any size": {"dynamic_img_size": True},
    "any size, registers": {"dynamic_img_size": True, "reg_tokens": 2, "no_embed_class": True},
}


def vit(**options: object) -> nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=5, **{**SMALL, "weight_init": "jax", **options}
    )
    nn.init.normal_(model.pos_embed)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(48, 72), (16, 40), 32])
def test_without_calibration_it_is_timms_own_resampling(kind, size):
    model = vit(**KINDS[kind])
    reference = vit(**KINDS[kind])
    reference.set_input_size(size)
    ours = rescale_pos_embed(model, size, calibration="none", antialias=True)
    pixels = (size, size) if isinstance(size, int) else size
    images = torch.randn(2, 3, *pixels)
    torch.testing.assert_close(ours.pos_embed, reference.pos_embed)
    torch.testing.assert_close(ours(images), reference(images))


@pytest.mark.parametrize("kind", KINDS)
def test_the_rescaled_model_computes_with_the_rescaled_table(kind):
    """Also where timm resamples in `forward`: it must not resample our table once more."""
    options = {**KINDS[kind], "dynamic_img_size": False}
    fixed = vit(**options)
    for size in (56, (40, 24)):
        pixels = (size, size) if isinstance(size, int) else size
        images = torch.randn(2, 3, *pixels)
        ours = rescale_pos_embed(vit(**KINDS[kind]), size, calibration="constant", antialias=False)
        fixed_at_size = vit(**{**options, "img_size": pixels})
        fixed_at_size.load_state_dict({**fixed.state_dict(), "pos_embed": ours.pos_embed})
        torch.testing.assert_close(ours(images), fixed_at_size(images))


def test_the_given_model_is_not_changed_and_its_weights_are_shared():
    model = vit()
    images, before = torch.randn(1, 3, 32, 32), model.pos_embed.clone()
    logits = model(images)
    larger = rescale_pos_embed(model, 64, calibration="constant")
    assert larger.blocks[0].attn.qkv.weight is model.blocks[0].attn.qkv.weight
    assert torch.equal(model.pos_embed, before)
    assert torch.equal(model(images), logits)
    assert larger.pos_embed.shape == (1, 65, 24)


@pytest.mark.parametrize("kind", ["class token", "registers", "registers, no embedding for them"])
def test_prefix_embeddings_are_neither_resized_nor_rescaled(kind):
    model = vit(**KINDS[kind])
    larger = rescale_pos_embed(model, 64, calibration="constant")
    prefix = model.pos_embed.shape[1] - 16
    assert larger.pos_embed.shape[1] == prefix + 64
    assert torch.equal(larger.pos_embed[:, :prefix], model.pos_embed[:, :prefix])


@pytest.mark.parametrize(
    ("mode", "two_axes", "one_axis"),
    [("bicubic", 1.1708, 1.0820), ("bilinear", 1.5957, 1.2632), ("nearest", 1.0, 1.0)],
)
def test_iid_multiplies_by_the_printed_constant_of_the_axes_that_grow(mode, two_axes, one_axis):
    """variance, Sec. "Variance Shift Due to Upsampling"."""
    assert constant_scale((14, 14), (28, 28), mode) == pytest.approx(two_axes, abs=5e-5)
    assert constant_scale((14, 14), (54, 15), mode) == pytest.approx(two_axes, abs=5e-5)
    assert constant_scale((14, 14), (14, 28), mode) == pytest.approx(one_axis, abs=5e-5)
    assert constant_scale((14, 14), (7, 28), mode) == pytest.approx(one_axis, abs=5e-5)
    assert constant_scale((14, 14), (14, 14), mode) == 1
    assert constant_scale((14, 14), (14, 14), mode, also_at_train_size=True) == pytest.approx(
        two_axes, abs=5e-5
    )


def test_the_constant_calibration_is_the_uncalibrated_table_times_the_constant():
    model = vit()
    plain, ours = (
        patch_positions(rescale_pos_embed(model, 64, antialias=False, calibration=calibration))
        for calibration in ("none", "constant")
    )
    torch.testing.assert_close(ours, 1.1707977 * plain)


def test_a_calibration_that_is_no_text_is_refused():
    with pytest.raises(VitrailError, match="calibration 'None' is unknown"):
        rescale_pos_embed(vit(), 64, calibration=None)


def test_the_constant_restores_the_variance_of_white_noise_and_overshoots_for_a_smooth_table():
    rows = torch.linspace(0, 3, 14)
    smooth = (rows[:, None] + rows[None, :]).sin().reshape(1, 196, 1).expand(1, 196, 64)
    noise = torch.randn(1, 196, 512)
    ratios = [
        rescaled_table(table, (14, 14), (28, 28), antialias=False, calibration="constant").var()
        / table.var()
        for table in (noise, smooth)
    ]
    assert ratios[0].item() == pytest.approx(1, abs=0.05)
    assert ratios[1].item() > 1.3


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "nearest"])
def test_empirical_restores_the_variance_of_the_table(mode):
    model = vit()
    before = patch_positions(model)
    after = patch_positions(rescale_pos_embed(model, 88, mode, calibration="empirical"))
    assert after.var(correction=0).item() == pytest.approx(
        before.var(correction=0).item(), rel=1e-5
    )


def test_empirical_and_constant_are_the_identity_at_the_training_size():
    model = vit()
    for calibration in ("empirical", "constant"):
        same = rescale_pos_embed(model, 32, calibration=calibration)
        assert torch.equal(same.pos_embed, model.pos_embed)
    always = rescale_pos_embed(model, 32, calibration="constant", also_at_train_size=True)
    torch.testing.assert_close(patch_positions(always), 1.1707977 * patch_positions(model))


def test_an_explicit_scale_takes_the_place_of_the_calibration():
    model = vit()
    plain = patch_positions(rescale_pos_embed(model, 64))
    torch.testing.assert_close(
        patch_positions(rescale_pos_embed(model, 64, scale=1.3)), 1.3 * plain
    )


def test_half_precision_is_interpolated_in_single():
    table = torch.randn(1, 17, 8)
    half = rescaled_table(table.half(), (4, 4), (9, 9), calibration="empirical")
    full = rescaled_table(table.half().float(), (4, 4), (9, 9), calibration="empirical")
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), full, atol=2e-3, rtol=1e-3)


def test_double_precision_stays_double():
    table = torch.randn(1, 17, 8, dtype=torch.float64)
    for calibration in ("none", "constant", "exact", "empirical"):
        resized = rescaled_table(table, (4, 4), (9, 9), calibration=calibration)
        single = rescaled_table(table.float(), (4, 4), (9, 9), calibration=calibration)
        assert resized.dtype == torch.float64
        assert 0 < (resized - single).abs().max() < 1e-5
        assert torch.equal(rescaled_table(table, (4, 4), (4, 4)), table)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("new", [(28, 28), (54, 14), (40, 19)])
def test_exact_restores_the_variance_of_white_noise_at_any_size(mode, new, antialias):
    noise = torch.randn(1, 196, 3000, generator=torch.Generator().manual_seed(0))
    options = {"interpolation": mode, "antialias": antialias, "calibration": "exact"}
    assert rescaled_table(noise, (14, 14), new, **options).var().item() == pytest.approx(
        1, abs=0.01
    )
    assert rescaled_table(noise, (14, 14), (14, 14), **options).equal(noise)


def test_the_papers_constant_is_not_that_of_an_antialiased_resize():
    noise = torch.randn(1, 196, 3000)
    paper = rescaled_table(noise, (14, 14), (28, 28), antialias=True, calibration="constant")
    assert paper.var().item() < 0.97


def test_the_empirical_scale_is_a_ratio_of_deviations():
    grid = torch.randn(1, 50, 4)
    assert empirical_scale(grid, grid / 2).item() == pytest.approx(2)
    constant = torch.full((1, 50, 4), 0.7)
    assert empirical_scale(constant, constant / 2).item() == 1


STEERABLE = {
    "D8": "octic_d8_vit_small_patch16_224",
    "H8": "octic_h8_vit_small_patch16_224",
    "D2": "d2_vit_small_patch16_224",
    "H2": "h2_vit_small_patch16_224",
}


def steerable(family: str, **options: object) -> nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(
        STEERABLE[family], num_classes=5, **{**SMALL, "embed_dim": 48, "depth": 2, **options}
    )
    return model.double().eval()


@pytest.mark.parametrize("calibration", ["none", "constant", "exact", "empirical"])
@pytest.mark.parametrize("family", STEERABLE)
def test_the_table_of_a_steerable_model_is_rescaled_as_the_dense_one(family, calibration):
    """Interpolation commutes with the group: the free weights make the rescaled dense table."""
    model = steerable(family)
    dense = model.pos_embed().movedim(0, 2).flatten(2)  # (1, 16, 48)
    expected = rescaled_table(dense, (4, 4), (6, 6), calibration=calibration)
    ours = rescale_pos_embed(model, 48, calibration=calibration)
    torch.testing.assert_close(ours.pos_embed().movedim(0, 2).flatten(2), expected)
    by_hand = steerable(family, img_size=48)
    weights = {**model.state_dict(), "pos_embed.weight": ours.pos_embed.weight}
    by_hand.load_state_dict(weights)
    images = torch.randn(2, 3, 48, 48).double()
    torch.testing.assert_close(ours(images), by_hand(images))
    assert model.grid_size == (4, 4)
    assert ours.blocks[0].attn.qkv.weight is model.blocks[0].attn.qkv.weight


@pytest.mark.parametrize("family", STEERABLE)
def test_without_antialiasing_a_steerable_models_table_is_its_own_resampling(family):
    model, resized = steerable(family), steerable(family)
    resized.set_input_size(48)
    ours = rescale_pos_embed(model, 48, antialias=False)
    torch.testing.assert_close(ours.pos_embed.weight, resized.pos_embed.weight)
    torch.testing.assert_close(
        patch_positions(ours)[0].unflatten(0, (model.planes, -1)),
        resized.pos_embed()[:, 0].mT.unflatten(2, (6, 6)),
    )


def test_a_steerable_model_keeps_its_squares_of_an_even_number_of_patches():
    with pytest.raises(VitrailError, match=r"img_size \(48, 64\) is no square"):
        rescale_pos_embed(steerable("D8"), (48, 64))
    with pytest.raises(VitrailError, match="patches has an odd side"):
        rescale_pos_embed(steerable("D2"), 40)


def naflex(grid: tuple[int, int], **options: object) -> nn.Module:
    torch.manual_seed(0)
    small = {name: value for name, value in SMALL.items() if name != "img_size"}
    options = {**small, "pos_embed_grid_size": grid, "num_classes": 5, **options}
    return timm.create_model("naflexvit_base_patch16_gap", **options).eval()


@pytest.mark.parametrize("size", [56, (48, 72)])
def test_a_learned_table_of_naflex_is_rescaled_as_timm_does(size):
    model = naflex((4, 4))
    pixels = (size, size) if isinstance(size, int) else size
    images = torch.randn(2, 3, *pixels)
    torch.testing.assert_close(rescale_pos_embed(model, size)(images), model(images))
    ours = rescale_pos_embed(model, size, antialias=False, calibration="constant")
    grid = (pixels[0] // 8, pixels[1] // 8)
    by_hand = naflex(grid)
    by_hand.load_state_dict({**model.state_dict(), "embeds.pos_embed": ours.embeds.pos_embed})
    torch.testing.assert_close(ours(images), by_hand(images))
    plain = patch_positions(rescale_pos_embed(model, size, antialias=False))
    torch.testing.assert_close(patch_positions(ours), 1.1707977 * plain)
    assert model.embeds.pos_embed.shape == (1, 4, 4, 24)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        (
            "swin_tiny_patch4_window7_224",
            {"embed_dim": 12, "depths": (1,), "num_heads": (1,)},
            "has no table",
        ),
        (
            "vit_base_patch16_rope_224",
            {"embed_dim": 24, "depth": 1, "num_heads": 2},
            "has no table",
        ),
        ("beit_base_patch16_224", {"embed_dim": 24, "depth": 1, "num_heads": 2}, "has no table"),
        (
            "vit_relpos_small_patch16_224",
            {"embed_dim": 24, "depth": 1, "num_heads": 2},
            "has no table",
        ),
        ("naflexvit_base_patch16_parfac_gap", {"depth": 1}, "has no table"),
        ("position_vit", {"embedding": "auto-ape", "depth": 1}, "has no table"),
        ("pit_ti_224", {}, "has shape"),
        ("cait_xxs24_224", {"depth": 1}, "cannot change its image size"),
    ],
)
def test_a_model_without_an_absolute_table_is_refused_by_name(name, options, reason):
    model = timm.create_model(name, **options)
    with pytest.raises(VitrailError, match=f"{name}.*{reason}") as error:
        rescale_pos_embed(model, 448)
    assert ("call its own set_input_size" in str(error.value)) == hasattr(model, "set_input_size")
    if hasattr(model, "set_input_size") and reason == "has no table":
        model.set_input_size(img_size=64)
        assert model.eval()(torch.rand(1, 3, 64, 64)).isfinite().all()


@pytest.mark.parametrize(("size", "remedy"), [(60, "use 56 or 64"), ((64, 3), "use 8 or 16")])
def test_a_size_that_is_no_multiple_of_the_patch_is_refused_with_its_neighbours(size, remedy):
    with pytest.raises(VitrailError, match=remedy):
        rescale_pos_embed(vit(), size)


def test_an_unknown_calibration_or_mode_gets_a_suggestion():
    with pytest.raises(VitrailError, match="'emprical' is unknown; did you mean 'empirical'"):
        rescale_pos_embed(vit(), 56, calibration="emprical")
    with pytest.raises(VitrailError, match="'bicubik' is unknown; did you mean 'bicubic'"):
        rescale_pos_embed(vit(), 56, interpolation="bicubik")


@pytest.mark.parametrize("name", ["rope_mixed_224", "rope_224", "dinov3"])
def test_a_model_of_rotations_at_another_size_is_that_built_for_it_and_shares_its_weights(name):
    def built(side):
        torch.manual_seed(0)
        small = {**SMALL, "img_size": side, "num_classes": 5}
        return timm.create_model(f"vit_small_patch16_{name}", **small).eval()

    model = built(32)
    larger, images = at_image_size(model, 56), torch.randn(2, 3, 56, 56)
    torch.testing.assert_close(larger(images), built(56)(images))
    for own, shared in zip(model.parameters(), larger.parameters(), strict=True):
        assert own is shared
    assert torch.isfinite(model(torch.randn(1, 3, 32, 32))).all()


def test_sizes_that_no_patch_divides_and_models_of_one_size_are_refused():
    rotated = timm.create_model("vit_small_patch16_rope_224", **SMALL)
    with pytest.raises(VitrailError, match="img_size 60 is not a multiple of the patch size 8"):
        at_image_size(rotated, 60)
    with pytest.raises(VitrailError, match="a ResNet cannot change its image size"):
        at_image_size(timm.create_model("resnet10t"), 56)


class Stem(nn.Module):
    """Features at a quarter of the image's side, rounded up."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, kernel_size=3, stride=4, padding=1)

    def forward(self, images):
        return self.convolution(images)


@pytest.mark.parametrize("size", [33, 48, (33, 40)])
def test_the_stem_of_a_hybrid_decides_how_many_positions_there_are(size):
    """33 pixels are 9 positions, as many as the stem returns and not 33 // 4."""
    options = {"img_size": 32, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 5}
    embed = partial(HybridEmbed, backbone=Stem())
    model = VisionTransformer(patch_size=1, embed_layer=embed, **options).eval()
    expected = copy.deepcopy(model)
    expected.set_input_size(img_size=size)
    images = torch.randn(2, 3, *to_2tuple(size))
    assert torch.equal(rescale_pos_embed(model, size)(images), expected(images))
    rescaled = rescale_pos_embed(model, size, calibration="constant")
    assert rescaled(images).shape == (2, 5)


def test_each_option_of_a_model_is_that_of_its_table():
    model = vit()
    table = model.pos_embed.detach()
    for options in (
        {"interpolation": "bilinear", "antialias": False, "calibration": "exact"},
        {"calibration": "empirical"},
        {"scale": 0.5},
    ):
        expected = rescaled_table(table, (4, 4), (7, 7), **options)
        assert torch.equal(rescale_pos_embed(model, 56, **options).pos_embed, expected)
    with pytest.raises(TypeError, match=r"rescale_pos_embed.*'calib'"):
        rescale_pos_embed(model, 56, calib="constant")
