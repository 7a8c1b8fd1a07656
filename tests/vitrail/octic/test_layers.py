from functools import partial

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from vitrail.errors import VitrailError
from vitrail.octic.group import (
    ELEMENTS,
    FOURIER,
    INVERSE_FOURIER,
    act,
    isotypic,
    to_channels,
)
from vitrail.octic.layers import (
    OcticAttention,
    OcticBlock,
    OcticDropout,
    OcticGELU,
    OcticLayerNorm,
    OcticLayerScale,
    OcticLinear,
    OcticMlp,
    SteerableDropPath,
)

GRID = (2, 3)
published = partial(OcticLayerNorm, convention="published")
LAYERS = {
    "linear": lambda: OcticLinear(32, 24),
    "norm": lambda: OcticLayerNorm(32),
    "published norm": lambda: published(32),
    "scale": lambda: OcticLayerScale(32),
    "GELU": OcticGELU,
    "attention": lambda: OcticAttention(32, 2),
    "MLP": lambda: OcticMlp(32, 48),
    "block": lambda: OcticBlock(32, 2, init_values=0.1),
    "block of published norms": lambda: OcticBlock(32, 2, init_values=0.1, norm_layer=published),
}


def features(channels=4):
    return 3 + 2 * torch.randn(8, 2, 7, channels, dtype=torch.float64)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_commutes_with_the_group(scrambled, element, name):
    """octic, Sec. 3.3, Eq. 7-9."""
    layer, x = scrambled(LAYERS[name]()), features()
    difference = layer(act(x, element, GRID, 1)) - act(layer(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-11


@pytest.mark.parametrize(
    "build",
    [
        lambda: OcticLinear(12, 16),
        lambda: OcticLinear(16, 12),
        lambda: OcticLayerNorm(12),
        lambda: OcticLayerScale(12),
    ],
)
def test_channels_that_are_no_multiple_of_eight_are_refused(build):
    with pytest.raises(VitrailError, match="cannot share 12 channels; give a multiple of 8"):
        build()


@pytest.fixture
def layer(scrambled):
    return scrambled(OcticLinear(32, 24))


def test_no_other_linear_map_commutes():
    """The dense maps that commute with the group have as many dimensions as the layer's weights.

    Source: octic, Sec. 3.3.2, Eq. 8.
    """
    eye = torch.eye(8, dtype=torch.float64)
    constraints = [
        torch.kron(isotypic(g), eye) - torch.kron(eye, isotypic(g).T.contiguous()) for g in ELEMENTS
    ]
    dimensions = 64 - torch.linalg.matrix_rank(torch.cat(constraints))
    assert dimensions == sum(p.numel() for p in OcticLinear(8, 8, bias=False).parameters())


def test_each_irrep_has_its_own_matrix(layer):
    x = features()
    y = layer(x)
    for plane in range(4):
        expected = x[plane] @ layer.weight[plane].mT + (layer.bias if plane == 0 else 0)
        torch.testing.assert_close(y[plane], expected)
    for row in range(2):
        columns = torch.cat([x[4 + row], x[6 + row]], dim=-1)  # copy 1, copy 2
        expected = columns @ layer.weight_e.mT
        torch.testing.assert_close(torch.cat([y[4 + row], y[6 + row]], dim=-1), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_the_gradients_of_a_linear_layer_are_those_of_its_products(bias):
    layer = OcticLinear(16, 24, bias).double()
    x = torch.randn(8, 1, 3, 2, dtype=torch.float64, requires_grad=True)
    names, weights = zip(*layer.named_parameters(), strict=True)
    assert torch.autograd.gradcheck(
        lambda x, *weights: functional_call(layer, dict(zip(names, weights, strict=True)), x),
        (x, *weights),
        check_forward_ad=True,
    )


def test_a_linear_layer_costs_a_fraction_of_a_dense_one():
    """octic, Sec. 3.3.2."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        layer = OcticLinear(1024, 4096)
        layer(torch.empty(8, 1, 10, 128))
    dense = 10 * 1024 * 4096
    assert counter.get_total_flops() / 2 == dense * 12 / 64
    assert sum(p.numel() for p in layer.parameters()) == 1024 * 4096 / 8 + 4096 / 8


def test_autocast_lowers_the_precision_of_a_linear_layer():
    layer = OcticLinear(16, 24)
    x = torch.randn(8, 2, 7, 2)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=2e-2, atol=2e-3)
    y.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


def test_weights_begin_small_and_the_bias_at_zero():
    layer = OcticLinear(256, 256)
    assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.weight_e.std().item() == pytest.approx(0.02, rel=0.05)
    assert not layer.bias.any()


@pytest.mark.parametrize(("convention", "weight_of_e"), [("total", 2), ("published", 1 / 2)])
def test_layer_norm_divides_by_its_conventions_norm(scrambled, convention, weight_of_e):
    """octic, Sec. 3.3.3."""
    norm, x = scrambled(OcticLayerNorm(32, eps=0.1, convention=convention)), features()
    rows = torch.stack([torch.cat([x[4], x[6]], -1), torch.cat([x[5], x[7]], -1)])  # of 2c columns
    variance = x[:4].var(-1, correction=0).sum(0)
    variance = variance + weight_of_e * rows.var(-1, correction=0).sum(0)
    scale = (8 / (variance + 0.1)).sqrt()[..., None]

    y = norm(x)
    for plane in range(4):
        expected = (x[plane] - x[plane].mean(-1, keepdim=True)) * scale * norm.weight[plane]
        torch.testing.assert_close(y[plane], expected + (norm.bias if plane == 0 else 0))
    expected = (rows - rows.mean(-1, keepdim=True)) * scale * norm.weight[4:].flatten()
    torch.testing.assert_close(torch.cat([y[4], y[6]], -1), expected[0])
    torch.testing.assert_close(torch.cat([y[5], y[7]], -1), expected[1])


def test_layer_norm_makes_the_variance_of_all_channels_one():
    y = OcticLayerNorm(32).double()(features())
    torch.testing.assert_close(y.square().mean((0, 3)), torch.ones(2, 7, dtype=torch.float64))


def test_layer_norm_has_statistics_of_full_precision():
    x = (100 + torch.randn(8, 2, 7, 64)).bfloat16()
    norm = OcticLayerNorm(512)
    y = norm(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), norm(x.float()), rtol=1e-2, atol=1e-3)


def test_layer_scale_begins_at_its_initial_value():
    x = features()
    torch.testing.assert_close(OcticLayerScale(32, 1e-4).double()(x), 1e-4 * x)


def test_the_activation_is_a_gelu_between_the_transforms():
    """octic, Sec. 3.3.3."""
    x = torch.randn(8, 2, 7, 4, dtype=torch.float64)
    y = functional.gelu(torch.einsum("gi,ibnc->gbnc", INVERSE_FOURIER, x))
    expected = torch.einsum("ig,gbnc->ibnc", FOURIER, y)
    torch.testing.assert_close(OcticGELU()(x), expected, rtol=0, atol=1e-13)


def test_under_autocast_the_activation_keeps_the_inputs_precision():
    x = torch.randn(8, 2, 3, 5)
    with torch.autocast("cpu", torch.bfloat16):
        y = OcticGELU()(x)
    torch.testing.assert_close(y, OcticGELU()(x.double()).float())


DROPS = pytest.mark.parametrize("layer", [OcticDropout(0.5), SteerableDropPath(0.5)])


def after(layer, x):
    torch.manual_seed(1)  # the same mask
    return layer(x)


@DROPS
def test_masks_commute_with_the_group(layer, element):
    x = torch.randn(8, 6, 5, 4, dtype=torch.float64)
    matrix = isotypic(element)
    moved, dropped = (torch.einsum("ij,jbnc->ibnc", matrix, y) for y in (x, after(layer, x)))
    torch.testing.assert_close(after(layer, moved), dropped, rtol=0, atol=1e-12)


@DROPS
def test_what_is_kept_is_scaled_up(layer):
    y = after(layer, torch.ones(8, 40, 5, 4))
    assert set(y.unique().tolist()) == {0, 2}
    assert y.mean().item() == pytest.approx(1, abs=0.4)


@DROPS
def test_nothing_is_dropped_in_evaluation(layer):
    x = torch.randn(8, 6, 5, 4)
    assert torch.equal(layer.eval()(x), x)
    layer.train()


def test_a_sample_keeps_all_of_its_branch_or_none():
    y = after(SteerableDropPath(0.5), torch.ones(8, 40, 5, 4))
    kept = y.amax((0, 2, 3))
    assert torch.equal(y, kept[None, :, None, None].expand_as(y))
    assert set(kept.tolist()) == {0, 2}


def test_a_head_attends_with_its_share_of_every_plane(scrambled):
    """octic, Sec. 3.3.3."""
    attention, x = scrambled(OcticAttention(32, 2)), features()
    qkv = attention.qkv(x).unflatten(3, (3, 2, 2))
    heads = []
    for head in range(2):
        q, k, v = (to_channels(qkv[:, :, :, part, head]) for part in range(3))
        heads.append((q @ k.mT / 4).softmax(-1) @ v)  # of 16 channels
    y = torch.stack(heads, -2).unflatten(3, (8, 2)).permute(3, 0, 1, 2, 4).flatten(3)
    torch.testing.assert_close(attention(x), attention.proj(y.contiguous()))


def test_heads_are_split_and_merged_back():
    attention = OcticAttention(48, 2)
    x = torch.randn(8, 2, 5, 18)
    heads = attention.split_heads(x)
    assert heads.shape == (3, 2, 2, 5, 24)
    assert torch.equal(attention.merge_heads(heads[1]), x[..., 6:12])


@pytest.fixture
def block(scrambled):
    return scrambled(OcticBlock(32, 2, init_values=0.1))


def test_the_dropout_of_a_block_does_not_break_the_group(scrambled):
    """Tokens stay in place, so that they meet the same masks; only channels are moved."""
    block = scrambled(OcticBlock(32, 2, init_values=0.1, proj_drop=0.3, drop_path=0.3)).train()
    x, grid = features()[:, :, :1], (0, 0)
    torch.manual_seed(1)
    expected = act(block(x), "mr", grid, 1)
    torch.manual_seed(1)
    difference = block(act(x, "mr", grid, 1)) - expected
    assert difference.abs().max() <= 1e-12


def test_a_block_computes_in_evaluation_what_it_does_in_training(block):
    x = features()
    with torch.inference_mode():
        y = block(x)
    torch.testing.assert_close(y, block(x), rtol=0, atol=1e-12)


def test_all_parameters_of_a_block_learn(block):
    block(features()).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in block.parameters())


def test_a_block_without_layer_scale_has_no_parameters_of_one():
    assert not [name for name in OcticBlock(32, 2).state_dict() if name.startswith("ls")]
