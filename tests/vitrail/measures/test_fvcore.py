"""Our counts are those of fvcore, by which the octic paper counted (octic, App. E.4)."""

import logging
import math

import pytest
import timm
import torch
from fvcore.nn import FlopCountAnalysis
from fvcore.nn.jit_handles import bmm_flop_jit, get_shape
from torch import nn
from torch.nn import functional

import vitrail.models  # noqa: F401
from vitrail.measures.flops import count
from vitrail.octic.flip import FlipLayerNorm
from vitrail.octic.group import SCALE, fourier, inverse_fourier
from vitrail.octic.layers import OcticGELU, OcticLayerNorm


def entries(value):
    return math.prod(get_shape(value))


def attention(inputs, outputs):
    """Two products of matrices, ``2 T^2 C``."""
    queries, keys = (get_shape(value) for value in inputs[:2])
    return (math.prod(queries) + entries(outputs[0])) * keys[-2]


# The prices that the authors' code adds to fvcore's. Two are left out: an operation for each entry
# of a filter that is turned, which is free here, and two for each channel of a variance.
PUBLISHED = {
    **{name: lambda _, y: entries(y[0]) for name in ("add", "sub", "mul", "div", "neg")},
    "sqrt": lambda _, y: 4 * entries(y[0]),
    "pow": lambda _, y: 5 * entries(y[0]),
    "gelu": lambda _, y: 8 * entries(y[0]),
    "mean": lambda x, _: entries(x[0]),
    "scaled_dot_product_attention": attention,
}
# What our layers call instead of functions that have a price.
OURS = {"add_": PUBLISHED["add"], "baddbmm": lambda x, y: bmm_flop_jit(x[1:3], y)}


@pytest.fixture(autouse=True)
def _without_warnings(caplog):
    """Fvcore warns of every function without a price and of modules that are not called."""
    with caplog.at_level(logging.ERROR):
        yield


def by_fvcore(model, *inputs):
    analysis = FlopCountAnalysis(model, inputs)
    for name, price in {**PUBLISHED, **OURS}.items():
        analysis.set_op_handle(f"aten::{name}", price)
    return analysis


H, L, WIDEST = "huge_patch14_224", "large_patch16_224", ("gigantic", "e", "22b")
FAMILIES = ["deit3", "h2_vit", "octic_i8_vit", "octic_h8_vit", "d2_vit", "octic_d8_vit"]
MODELS = [
    # Table 2: one block of each kind, at the size of the paper's images
    *((f"{family}_{size}", {"depth": 2}) for size in (H, L) for family in FAMILIES),
    *((f"octic_i8_vit_{size}", {"depth": 2, "invariant": "polynomial"}) for size in (H, L)),
    *((f"octic_d8_vit_{size}", {"depth": 1, "invariant": "linear"}) for size in (H, L)),
    # Table 1: a block of few tokens, as ViT-22B's would take seconds
    *(
        (f"{family}_{size}_patch16_224", {"depth": 1, "img_size": 32})
        for size in WIDEST
        for family in ("vit", "octic_d8_vit")
    ),
]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_all_but_layers_that_price_themselves_counts_as_by_fvcore(name, arguments):
    with torch.device("meta"):
        model = timm.create_model(name, **arguments).eval()
    side = arguments.get("img_size", 224)
    images = torch.zeros(1, 3, side, side, dtype=torch.bfloat16)
    analysis = by_fvcore(model.bfloat16().to_empty(device="cpu"), images)
    own = [label for label, module in model.named_modules() if hasattr(module, "operations")]
    assert bool(own) == (not name.startswith(("deit3", "vit")))
    expected = analysis.total() - sum(analysis.by_module()[label] for label in own)
    for label in own:
        model.get_submodule(label).operations = lambda x: 0
    assert count(model.to("meta"), images.to("meta")).macs == expected


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_the_octic_gelu_counts_as_the_published_one():
    def published(x):
        regular = [functional.gelu(SCALE * y) for y in inverse_fourier(x)]
        return [SCALE * y for y in fourier(regular)]

    x = torch.randn(8, 2, 5, 3)
    assert by_fvcore(Function(published), x).total() == OcticGELU().operations(x)


def of_irreps(x):
    """The published norm of A1, A2, B1, B2 ``(B, N, c)`` and E ``(B, N, 2, 2c)``."""
    xs = [*x[:4], torch.stack([torch.cat([*x[[4, 6]]], -1), torch.cat([*x[[5, 7]]], -1)], -2)]
    variances = [x.var(-1, unbiased=False, keepdim=True) for x in xs]
    std = SCALE * torch.sqrt(sum(variances[:4], 1e-5) + variances[4].mean(-2))
    ys = [(x - x.mean(-1, keepdim=True)) / std for x in xs[:4]]
    ys.append((xs[4] - xs[4].mean(-1, keepdim=True)) / std.unsqueeze(-1))
    ys = [torch.ones(y.shape[-1]) * y for y in ys]
    return [ys[0] + torch.zeros(ys[0].shape[-1]), *ys[1:]]


def of_planes(x):
    """The flip-equivariant norm of an even and an odd plane."""
    mean, c = x.mean(-1, keepdim=True), x.shape[-1]
    variance = x.var(-1, unbiased=False, keepdim=True).mean(0)
    even, odd = (x - mean) / torch.sqrt(variance + 1e-6) * torch.ones(2, 1, 1, c)
    return even + torch.zeros(c), odd


@pytest.mark.parametrize(
    ("layer", "planes", "written"), [(OcticLayerNorm, 8, of_irreps), (FlipLayerNorm, 2, of_planes)]
)
def test_a_norm_leaves_out_only_what_does_not_grow_with_the_width(layer, planes, written):
    """Of a token's variance fvcore prices a few operations, whatever the channels."""
    left = []
    for c in (8, 16):
        x = torch.randn(planes, 2, 5, c)
        analysis = by_fvcore(Function(written), x)
        left.append(analysis.total() - layer(planes * c).operations(x))
    assert 0 < left[0] == left[1] <= 20 * 2 * 5
