"""What A-Swin and A-SwinV2 have in common, on both; what differs is in test_swinv2.py."""

import copy

import pytest
import timm
import torch
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import nn
from torch.nn import functional

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.shift import selection as grids
from vitrail.shift import swin
from vitrail.shift.conversion import invariance_error
from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import window_offsets

NAMES = {"swin": "swin_tiny_patch4_window7_224", "swinv2": "swinv2_tiny_window8_256"}
ADAPT = {SwinTransformer: swin.AdaptiveSwin.of, SwinTransformerV2: swin.AdaptiveSwinV2.of}
SIDE = {"swin": 224, "swinv2": 256}
NARROW = {"embed_dim": 16, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 2, 4), "num_classes": 10}
# Grids of 12, 6 and 3 tokens in windows of 3; of 16, 8 and 4 in windows of 4.
MICRO = {"patch_size": 2, "embed_dim": 12, "depths": (2, 2, 2), "num_heads": (1, 2, 4)}
MICRO_SIDE = {"swin": 24, "swinv2": 32}
MICRO_WINDOW = {"swin": 3, "swinv2": 4}
both_families = pytest.mark.parametrize("family", NAMES)
both_selections = pytest.mark.parametrize("selection", ["per_layer", "per_stage"])


def spread_norms(model: nn.Module) -> nn.Module:
    """Draw the norms' weights: SwinV2 begins with blocks that are the identity (norms of zero)."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    return model.eval()


def build(name: str, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return spread_norms(timm.create_model(name, **options))


def plain(family: str, **options: object) -> nn.Module:
    return build(NAMES[family], **{**NARROW, **options})


def adaptive(family: str, **options: object) -> nn.Module:
    return build(f"a_{NAMES[family]}", **{**NARROW, **options})


def micro(family: str, **options: object) -> nn.Module:
    size = {"img_size": MICRO_SIDE[family], "window_size": MICRO_WINDOW[family]}
    return adaptive(family, **{**MICRO, **size, **options})


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def micro_noise(family: str, count: int = 8, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return noise(count, 3, MICRO_SIDE[family], MICRO_SIDE[family], dtype=dtype)


@pytest.fixture
def not_anchored(monkeypatch):
    """Leave tokens in the order of their image: beyond their modules, all models depend on it."""
    monkeypatch.setattr(grids, "window_offsets", lambda x, sizes, *_: window_offsets(x, sizes))


@both_selections
@both_families
def test_the_modules_alone_make_it_invariant(family, selection, not_anchored):
    """shift, Sec. 4."""
    size = (SIDE[family], 2 * SIDE[family])
    model = adaptive(family, selection=selection, img_size=size).double()
    assert invariance_error(model, noise(2, 3, *size), shifts=1) <= 1e-12


@pytest.mark.slow
@both_families
def test_logits_of_the_papers_models_do_not_change_either(family):
    model = build(f"a_{NAMES[family]}", selection="per_stage").double()
    assert invariance_error(model, noise(2, 3, SIDE[family], SIDE[family]), shifts=1) <= 1e-12


def views(model: nn.Module, family: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float32 logits of images and of their random shifts, without a common mean."""
    images = micro_noise(family, count, torch.float32)
    side, generator = MICRO_SIDE[family], torch.Generator().manual_seed(2)
    offset = torch.randint(side, (count, 2), generator=generator)
    with torch.inference_mode():
        logits, shifted = model(images), model(roll_image(images, offset))
    mean = logits.mean(dim=0)  # with which one class would win everywhere
    logits, shifted = logits - mean, shifted - mean
    assert len(logits.argmax(1).unique()) == 10
    return logits, shifted


@both_selections
@both_families
def test_float32_logits_of_500_images_keep_every_bit(family, selection):
    assert torch.equal(*views(micro(family, selection=selection), family, 500))


@pytest.mark.parametrize(
    "off", [{"adaptive_tokens": False}, {"adaptive_windows": False}, {"attention_mask": True}]
)
@both_families
def test_predictions_change_without_a_module_or_with_the_mask(family, off):
    """shift, Sec. 5.7."""
    logits, shifted = views(micro(family, **off), family, 300)
    assert not torch.equal(logits.argmax(1), shifted.argmax(1))


@both_selections
@both_families
@pytest.mark.parametrize("background", [3.0, 0.0])
def test_a_uniform_background_does_not_decide_where_windows_go(family, selection, background):
    """Its windows tie, and so do those that a small object lies inside."""
    side = MICRO_SIDE[family]
    images = torch.full((60, 3, side, side), background, dtype=torch.float64)
    for index, size in enumerate([2, 3, 4, 6, 8]):
        images[index::5, :, 8 : 8 + size, 8 : 8 + size] = noise(12, 3, size, size)
    model = micro(family, selection=selection).double()
    assert invariance_error(model, images, shifts=2) <= 1e-12


@both_selections
@pytest.mark.parametrize("module", ["tokens", "windows", "merging"])
def test_every_module_of_a_swin_is_needed(module, selection):
    """Table 6. For SwinV2 see test_swinv2.py: one of its modules is not."""
    model = micro("swin", selection=selection, **{f"adaptive_{module}": False}).double()
    assert invariance_error(model, micro_noise("swin")) > 1e-4


@both_families
def test_without_a_rule_for_ties_a_single_window_breaks_invariance(
    family, monkeypatch, not_anchored
):
    """All places of the one window hold the same tokens, yet their relative positions differ."""
    images, model = micro_noise(family), micro(family).double()
    monkeypatch.setattr(grids, "break_ties", lambda scores, ties: scores)
    assert invariance_error(model, images) > 1e-6


@both_families
def test_windows_are_chosen_by_tokens_that_no_norm_has_made_alike(family, monkeypatch):
    spreads = []

    def spy(tokens, sizes, *options):
        norms = tokens.norm(dim=-1)
        spreads.append((norms.std() / norms.mean()).item())
        return window_offsets(tokens, sizes, *options)

    torch.manual_seed(0)
    size = {"img_size": MICRO_SIDE[family], "window_size": MICRO_WINDOW[family]}
    model = timm.create_model(f"a_{NAMES[family]}", **{**NARROW, **MICRO, **size})
    monkeypatch.setattr(grids, "window_offsets", spy)
    model(micro_noise(family, dtype=torch.float32))
    assert len(spreads) == 3
    assert min(spreads) > 0.02


@both_families
def test_without_its_modules_and_with_the_mask_it_is_timms_model(family):
    """shift, Eq. 9; in float64, as processors differ in the order of their sums."""
    off = {f"adaptive_{module}": False for module in ("tokens", "windows", "merging")}
    images = noise(2, 3, SIDE[family], SIDE[family])
    for selection in ("per_layer", "per_stage"):
        model = adaptive(family, selection=selection, attention_mask=True, **off).double()
        expected = plain(family).double()(images)
        torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-12)


@both_selections
@both_families
def test_features_sit_where_they_say(family, selection, not_anchored):
    """Rolled by the difference of their places, a shifted image's tokens are the image's."""
    side = MICRO_SIDE[family]
    model = micro(family, selection=selection, img_size=(side, 2 * side)).double()
    images = noise(6, 3, side, 2 * side)
    shift = torch.randint(2 * side, (6, 2), generator=torch.Generator().manual_seed(3))
    stages = zip(
        model.forward_stages(images), model.forward_stages(roll_image(images, shift)), strict=True
    )
    for level, (here, there) in enumerate(stages):
        assert here.stride == there.stride == 2 * 2**level
        # Token n of `there` sits at pixel offset + stride n of the shifted image, which is pixel
        # offset + shift + stride n of the image.
        distance = there.offset + shift - here.offset
        assert not (distance % here.stride).any()
        tokens = roll(here.tokens.permute(0, 2, 3, 1), distance // here.stride)
        torch.testing.assert_close(tokens.permute(0, 3, 1, 2), there.tokens, rtol=0, atol=1e-12)


class Nothing(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


@both_selections
@both_families
def test_the_places_of_features_are_pixels_of_the_image(family, selection):
    """Without what its blocks add, a stage is what timm's is on the image rolled by the offset."""
    side = MICRO_SIDE[family]
    size = {"img_size": (side, 2 * side), "window_size": MICRO_WINDOW[family]}
    models = micro(family, selection=selection, **size), plain(family, **{**MICRO, **size})
    for block in (block for model in models for stage in model.layers for block in stage.blocks):
        block.drop_path1, block.drop_path2 = Nothing(), Nothing()
    images = noise(6, 3, side, 2 * side)
    for level, features in enumerate(models[0].double().forward_stages(images)):
        rolled = roll_image(images, features.offset)
        expected = models[1].double().forward_intermediates(rolled, intermediates_only=True)[level]
        torch.testing.assert_close(features.tokens, expected)


@both_families
def test_parameters_are_timms_in_number_and_name(family):
    with torch.device("meta"):
        ours = timm.create_model(f"a_{NAMES[family]}")
        theirs = timm.create_model(NAMES[family])
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == {"swin": 28_288_354, "swinv2": 28_347_154}[family]
    shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (ours, theirs)]
    del shapes[0]["_extra_state"]  # the selection
    assert shapes[0] == shapes[1]


@both_families
def test_pretrained_weights_are_those_of_the_plain_model(family, tmp_path):
    published = plain(family, num_classes=1000)
    torch.save(published.state_dict(), tmp_path / "weights.pth")
    model = adaptive(
        family,
        num_classes=1000,
        pretrained=True,
        pretrained_cfg_overlay={"file": str(tmp_path / "weights.pth")},
    )
    assert model.pretrained_cfg["hf_hub_id"].startswith(f"timm/{NAMES[family]}.")
    # `build` draws the norms after the weights are loaded.
    assert torch.equal(model.patch_embed.proj.weight, published.patch_embed.proj.weight)
    assert torch.equal(model.head.fc.weight, published.head.fc.weight)


@both_selections
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("swin", {"window_size": (3, 6), "img_size": (24, 48), "head_dim": 8}),
        ("swin", {"window_size": 3, "img_size": 24, "dynamic_img_size": True, "norm_layer": "rms"}),
        ("swinv2", {"window_size": (4, 2), "img_size": (32, 16), "qkv_bias": False}),
        ("swinv2", {"window_size": (4, 4, 2), "img_size": 32, "always_partition": True}),
    ],
)
def test_any_configuration_of_timms_can_be_adapted(family, options, selection):
    if options.get("norm_layer") == "rms":
        options = {**options, "norm_layer": timm.layers.RmsNorm}
    model = plain(family, **{**MICRO, **options}).double()
    weights = copy.deepcopy(model.state_dict())
    adapted = ADAPT[type(model)](model, selection)
    rows, columns = model.patch_embed.img_size
    images = noise(4, 3, rows, columns)
    assert invariance_error(adapted, images, shifts=2) <= 1e-12
    assert adapted.grid.name == selection
    adapted_weights = adapted.state_dict()
    del adapted_weights["_extra_state"]
    torch.testing.assert_close(adapted_weights, weights, rtol=0, atol=0)
    assert invariance_error(model, images, shifts=2) > 1e-4  # it is still the plain one


@both_families
def test_images_that_the_windows_do_not_divide_are_refused(family):
    side = SIDE[family]
    size = side + side // 4, side
    sentence = rf"{size[0]}x{size[1]} pixels do not fit .* multiples of {side}x{side} pixels"
    with pytest.raises(VitrailError, match=sentence):
        adaptive(family, img_size=size)
    unfit = plain(family, img_size=size)
    with pytest.raises(VitrailError, match=sentence):
        ADAPT[type(unfit)](unfit)
    model = micro(family, dynamic_img_size=True)
    with pytest.raises(VitrailError, match="do not fit windows"):
        model(noise(1, 3, MICRO_SIDE[family], MICRO_SIDE[family] + 4, dtype=torch.float32))
    with pytest.raises(VitrailError, match="do not fit windows"):
        model.set_input_size(window_size=5)


@both_families
def test_other_images_than_the_model_is_built_for_are_refused(family):
    side = MICRO_SIDE[family]
    with pytest.raises(VitrailError, match=rf"built for {side}x{side}: give it this img_size"):
        micro(family)(noise(1, 3, side, 2 * side, dtype=torch.float32))


@both_selections
@both_families
def test_a_model_of_any_size_does_not_change_its_logits_at_another(family, selection):
    model = micro(family, selection=selection, dynamic_img_size=True).double()
    side = MICRO_SIDE[family]
    assert invariance_error(model, noise(4, 3, 2 * side, side)) <= 1e-12
    model.set_input_size(2 * side)
    assert invariance_error(model, noise(4, 3, 2 * side, 2 * side)) <= 1e-12


def test_an_unknown_selection_is_refused():
    with pytest.raises(
        VitrailError, match="selection 'per_layers' is unknown; did you mean 'per_layer'"
    ):
        micro("swin", selection="per_layers")


@both_families
def test_intermediates_are_the_stages(family):
    model, images = micro(family), micro_noise(family, 2, torch.float32)
    final, intermediates = model.forward_intermediates(images, indices=2, norm=True)
    assert torch.equal(final, model.forward_features(images))
    stages = model.forward_stages(images)
    last = stages[2]._replace(tokens=final.permute(0, 3, 1, 2))
    assert torch.equal(intermediates[0], stages[1].aligned().tokens)
    assert torch.equal(intermediates[1], last.aligned().tokens)


def gradients(model: nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    functional.cross_entropy(model(images), torch.arange(len(images))).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@both_selections
@both_families
def test_every_parameter_gets_a_gradient_with_checkpointing_the_same(family, selection):
    model, images = micro(family, selection=selection), micro_noise(family, 4, torch.float32)
    expected = gradients(model, images)
    assert all(gradient is not None and gradient.any() for gradient in expected.values())
    model.set_grad_checkpointing()
    torch.testing.assert_close(gradients(model, images), expected)


@both_selections
@both_families
def test_gradients_do_not_change_under_circular_shifts(family, selection):
    model, images = micro(family, selection=selection).double(), micro_noise(family, 4)
    shift = torch.tensor([[1, 2], [5, 0], [3, 3], [7, 4]])
    torch.testing.assert_close(
        gradients(model, roll_image(images, shift)), gradients(model, images)
    )


@pytest.mark.slow
@both_selections
@both_families
def test_it_compiles_to_one_graph(family, selection):
    """So nothing in it waits for a value on the device."""
    model = micro(family, selection=selection, depths=(1, 2))
    images = micro_noise(family, 2, torch.float32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images))


@both_selections
@both_families
def test_half_precision_keeps_predictions_and_their_invariance(family, selection):
    model, images = micro(family, selection=selection), micro_noise(family, 32, torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        logits, shifted = model(images), model(images.roll((5, 9), (2, 3)))
    assert logits.dtype == torch.bfloat16
    # A close choice of a grid may fall otherwise than in float32, so of most images.
    assert (logits - model(images)).abs().amax(dim=1).median() < 0.02
    assert (logits - shifted).abs().amax(dim=1).median() < 0.02


PADDED = {"dynamic_img_size": True, "dynamic_img_pad": True}


@both_families
def test_images_of_any_size_are_padded_if_asked_for(family):
    """Below and to the right, and maps are cropped to the image; others stay as they are."""
    model = micro(family, **PADDED).double()
    plain = micro(family, dynamic_img_size=True).double()
    rows, columns = model.size_multiples
    x = noise(2, 3, 2 * rows - 7, columns + 1)
    larger = torch.nn.functional.pad(x, (0, columns - 1, 0, 7))
    with pytest.raises(VitrailError, match="do not fit"):
        plain(x)
    assert torch.equal(model(x), plain(larger))
    assert torch.equal(model(larger), plain(larger))
    expected = plain.forward_intermediates(larger, intermediates_only=True)
    maps = model.forward_intermediates(x, intermediates_only=True)
    for info, grid, whole in zip(model.feature_info, maps, expected, strict=True):
        height, width = (-(-side // info["reduction"]) for side in x.shape[2:])
        assert grid.shape[2:] == (height, width)
        assert torch.equal(grid, whole[:, :, :height, :width])
    assert maps[0].shape != expected[0].shape


@both_families
def test_a_model_that_pads_may_be_built_for_a_size_that_does_not_fit(family):
    side = MICRO_SIDE[family] + 2
    with pytest.raises(VitrailError, match="do not fit"):
        micro(family, img_size=side)
    logits = micro(family, img_size=side, **PADDED).double()(noise(1, 3, side, side))
    assert logits.isfinite().all()
