import pytest
import timm
import torch
from timm.optim import create_optimizer_v2

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.octic.group import ELEMENTS, act, from_channels, transform
from vitrail.octic.invariants import INVARIANTS
from vitrail.octic.vit import OcticVisionTransformer, checkpoint_filter_fn

MICRO = {
    "img_size": 16,
    "patch_size": 4,
    "embed_dim": 32,
    "depth": 2,
    "num_heads": 2,
    "num_classes": 5,
}
SIZES = [(16, 16), (24, 24), (8, 24)]


def images(height=16, width=16, batch=2):
    return torch.randn(batch, 3, height, width, dtype=torch.float64)


def largest_change(model, x):
    model.eval()
    with torch.no_grad():
        logits = model(x)
        assert logits.std() > 0.01
        turned = [transform(x, element) for element in ELEMENTS]
        upright = torch.cat([image for image in turned if image.shape == x.shape])
        lying = [image for image in turned if image.shape != x.shape]
        changes = [model(batch) for batch in (upright, *([torch.cat(lying)] if lying else []))]
        return (torch.cat(changes).unflatten(0, (8, -1)) - logits).abs().max().item()


@pytest.fixture
def micro(scrambled):
    """Build a tiny model in float64 with all its parameters random."""
    return lambda **kwargs: scrambled(OcticVisionTransformer(**{**MICRO, **kwargs}))


@pytest.mark.parametrize("family", ["d8", "i8"])
@pytest.mark.parametrize("invariant", INVARIANTS)
def test_d8_and_i8_are_invariant_with_every_invariant(micro, family, invariant):
    """octic, Sec. 3.2."""
    assert largest_change(micro(family=family, invariant=invariant), images()) < 1e-12


@pytest.mark.parametrize("family", ["d8", "i8"])
@pytest.mark.parametrize(
    "kwargs",
    [
        {"norm": "published"},
        {"reg_tokens": 3},
        {"global_pool": "avg"},
        {"global_pool": "avg", "class_token": False},
        {"global_pool": "avg", "class_token": False, "reg_tokens": 3},
        {"init_values": 0},
        {"qkv_bias": False},
    ],
    ids=str,
)
def test_d8_and_i8_are_invariant_in_all_variants(micro, family, kwargs):
    assert largest_change(micro(family=family, **kwargs), images()) < 1e-12


@pytest.mark.parametrize("family", ["d8", "i8"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_d8_and_i8_are_invariant_at_any_size(micro, family, size):
    model = micro(family=family, dynamic_img_size=True)
    assert largest_change(model, images(*size)) < 1e-12


def test_h8_is_not_invariant(micro):
    """octic, Sec. 3.2."""
    assert largest_change(micro(family="h8"), images()) > 0.1


@pytest.mark.parametrize("family", ["d8", "i8"])
def test_arbitrary_patches_break_the_invariance_and_nothing_else(micro, family):
    """octic, Sec. 4.3."""
    free, constrained = (micro(family=family, arbitrary_patches=free) for free in (True, False))
    assert largest_change(free, images()) > 0.1
    shapes = [
        {name: p.shape for name, p in model.named_parameters() if "patch_embed" not in name}
        for model in (free, constrained)
    ]
    assert shapes[0] == shapes[1]
    # With the filters that the constrained model expands to, they are one model.
    free.load_state_dict(constrained.state_dict(), strict=False)
    embed = constrained.patch_embed
    free.patch_embed.proj.weight.data = embed.filters().flatten(0, 1)
    free.patch_embed.proj.bias.data = torch.cat([embed.bias, torch.zeros(7 * len(embed.bias))])
    x = images()
    torch.testing.assert_close(free(x), constrained(x))


@pytest.mark.parametrize("family", ["h8", "i8"])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_any_number_of_blocks_may_be_octic(micro, family, k):
    model = micro(family=family, octic_depth=k)
    kinds = [type(block).__name__ for block in model.blocks]
    assert kinds == ["FastBlock"] * k + ["Block"] * (2 - k)
    assert model(images()).shape == (2, 5)
    assert (largest_change(model, images()) < 1e-12) == (family == "i8")


def test_half_of_the_blocks_are_octic_by_default():
    assert OcticVisionTransformer("d8", **MICRO).octic_depth == 2
    assert OcticVisionTransformer("h8", **MICRO).octic_depth == 1
    assert OcticVisionTransformer("i8", **MICRO).octic_depth == 1


def test_the_features_of_d8_turn_with_the_image(micro, element):
    model = micro(family="d8", reg_tokens=2, dynamic_img_size=True)
    x = images(16, 24)
    features = from_channels(model.forward_features(x))
    turned = from_channels(model.forward_features(transform(x, element)))
    torch.testing.assert_close(turned, act(features, element, (4, 6), prefix=3), rtol=0, atol=1e-12)


def test_the_patch_tokens_of_i8_are_permuted_with_the_image(micro, element):
    model = micro(family="i8", octic_depth=2)  # as DINOv2 trains what it calls D8
    x = images()
    ((patches, prefix),) = model.forward_intermediates(
        x, 1, return_prefix_tokens=True, norm=True, intermediates_only=True
    )
    ((turned, turned_prefix),) = model.forward_intermediates(
        transform(x, element), 1, return_prefix_tokens=True, norm=True, intermediates_only=True
    )
    torch.testing.assert_close(turned_prefix, prefix, rtol=0, atol=1e-12)
    torch.testing.assert_close(turned, transform(patches, element), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["d8", "h8", "i8"])
def test_the_last_normalised_intermediate_is_the_final_feature(micro, family):
    model = micro(family=family)
    x = images()
    final, (first, last) = model.forward_intermediates(x, norm=True, output_fmt="NLC")
    torch.testing.assert_close(final, model.forward_features(x))
    torch.testing.assert_close(last, final[:, 1:])
    assert first.shape == last.shape == (2, 16, 32)
    ((grid, prefix),) = model.forward_intermediates(
        x, [1], return_prefix_tokens=True, norm=True, intermediates_only=True
    )
    torch.testing.assert_close(grid.flatten(2).mT, last)
    torch.testing.assert_close(prefix, final[:, :1])


@pytest.mark.parametrize("family", ["d8", "i8"])
def test_masked_images_are_invariant_when_the_mask_turns_along(micro, family, element):
    model = micro(family=family, mask_token=True)
    x, mask = images(), torch.rand(2, 4, 4) < 0.5
    tokens = model.forward_features(x, mask.flatten(1))
    turned = model.forward_features(transform(x, element), transform(mask, element).flatten(1))
    torch.testing.assert_close(model.forward_head(turned), model.forward_head(tokens))


def test_a_masked_patch_does_not_matter(micro):
    model = micro(mask_token=True)
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[:, 0] = True
    x = images()
    other = x.clone()
    other[:, :, :4, :4] += 1
    torch.testing.assert_close(
        model.forward_features(other, mask), model.forward_features(x, mask), rtol=0, atol=1e-12
    )
    assert (model(other) - model(x)).abs().max() > 1e-3


def test_tokens_without_a_place_live_in_the_invariant_plane(micro):
    model = micro(reg_tokens=2)
    x = model.embed(images())
    assert x.shape == (8, 2, 3 + 16, 4)
    assert x.is_contiguous()
    assert (x[1:, :, :3] == 0).all()
    torch.testing.assert_close(x[0, 0, :3], torch.cat([model.cls_token, model.reg_token], 1)[0])


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_parameter_gets_a_gradient_from_the_start(invariant):
    model = OcticVisionTransformer("d8", invariant, **MICRO, reg_tokens=1)
    model(images().float()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["octic_d8_vit_small_patch16_224", "h2_vit_small_patch16_224"])
def test_only_the_weights_of_products_are_decayed(name):
    options = {"invariant": "max_filtering"} if "octic" in name else {}
    model = timm.create_model(name, reg_tokens=1, **MICRO, **options)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.02).param_groups
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    scales = ("norm", ".ls1.", ".ls2.", ".invariant.", "pos_embed", "_token")
    assert decayed == {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1 and not any(part in name for part in scales)
    }
    assert {"patch_embed.weight", "blocks.0.attn.qkv.weight", "head.weight"} <= decayed


def test_a_small_model_may_begin_with_larger_weights():
    model = OcticVisionTransformer("i8", **MICRO, init_std=0.2)
    for name in (
        "blocks.0.attn.qkv.weight",
        "blocks.0.mlp.fc1.weight_e",
        "blocks.1.mlp.fc1.weight",
    ):
        assert 0.1 < model.get_parameter(name).std() < 0.3
    assert (model.get_parameter("blocks.0.attn.qkv.bias") == 0).all()


def test_weights_of_a_plain_vit_are_refused_in_a_sentence():
    model = timm.create_model("octic_d8_vit_small_patch16_224", depth=1)
    plain = timm.create_model("vit_small_patch16_224", depth=1).state_dict()
    with pytest.raises(VitrailError, match="those of an octic or"):
        checkpoint_filter_fn(plain, model)


def test_published_checkpoints_norm_has_its_own_eps():
    model = OcticVisionTransformer("d8", norm="published", **MICRO)
    assert model.norm.eps == 1e-5
    assert model.blocks[0].norm1.convention == "published"


@pytest.mark.parametrize("family", ["d8", "h8", "i8"])
def test_without_a_class_token_there_are_only_patches(family):
    model = OcticVisionTransformer(family, global_pool="avg", class_token=False, **MICRO)
    assert model.forward_features(images().float()).shape == (2, 16, 32)
    assert "cls_token" not in model.state_dict()
    with pytest.raises(VitrailError, match="no token to classify"):
        model.reset_classifier(5, "token")


def test_without_pooling_every_token_gets_logits():
    model = OcticVisionTransformer("d8", global_pool="", **MICRO)
    assert model(images().float()).shape == (2, 17, 5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"family": "d4"}, "family 'd4' is unknown; known: d8, h8, i8"),
        (
            {"invariant": "powerspectrum"},
            "'powerspectrum' is unknown; did you mean 'power_spectrum'",
        ),
        ({"norm": "publish"}, "unknown norm convention 'publish'; did you mean 'published'"),
        ({"global_pool": "map"}, "global_pool 'map' is unknown"),
        ({"class_token": False}, "no token to classify at global_pool=.token.; give .*=.avg."),
        ({"octic_depth": 1}, "octic_depth 1 does not suit the family's depth; give 2"),
        ({"family": "h8", "octic_depth": 3}, "octic_depth 3 .*; give 0 to 2"),
        ({"img_size": (16, 24)}, "img_size .* is no square"),
        ({"img_size": 18}, "no square of 4-pixel patches; give one number, a multiple of 8"),
        ({"img_size": 12}, "3 x 3 patches has an odd side"),
        ({"patch_size": 2, "embed_dim": 36}, "multiple of 8"),
        ({"num_heads": 8}, "8 heads cannot share 32 channels of 8 planes"),
    ],
    ids=str,
)
def test_impossible_arguments_are_told_in_a_sentence(kwargs, message):
    with pytest.raises(VitrailError, match=message):
        OcticVisionTransformer(**{**MICRO, **kwargs})


@pytest.mark.parametrize(
    ("dynamic", "size", "message"),
    [
        (False, 24, "images of 16 x 16 pixels, not 24 x 24; build it with another img_size"),
        (True, 18, "no whole number of 4-pixel patches; give sides that are multiples of 8"),
        (True, 20, "a grid of 5 x 5 patches has an odd side"),
    ],
)
def test_images_that_do_not_fit_are_told_in_a_sentence(dynamic, size, message):
    model = OcticVisionTransformer(**MICRO, dynamic_img_size=dynamic)
    with pytest.raises(VitrailError, match=message):
        model(torch.zeros(1, 3, size, size))


def test_a_mask_without_a_mask_token_is_refused():
    model = OcticVisionTransformer(**MICRO)
    with pytest.raises(VitrailError, match="no mask token"):
        model.embed(torch.zeros(1, 3, 16, 16), torch.zeros(1, 16, dtype=torch.bool))
