"""An octic block is a dense transformer block on the regular representation, found by brute force.

There the group permutes eight copies of each channel. A dense matrix that commutes with that is a
group convolution: its entry from h to g depends on g and h through g^-1 h alone. GELU is pointwise,
attention an ordinary one of heads with all copies of their channels, and a layer norm takes from
each token its projection to the means of irreps, whose channels it scales.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from vitrail.measures.equivariance import Group, equivariance_error
from vitrail.octic.embeddings import OcticPatchEmbed
from vitrail.octic.fast_block import FastBlock
from vitrail.octic.group import (
    ELEMENTS,
    FOURIER,
    INVERSE_FOURIER,
    act,
    isotypic,
    on_planes,
    regular,
    to_channels,
    transform,
)
from vitrail.octic.layers import (
    OcticBlock,
    OcticGELU,
    OcticLayerNorm,
    OcticLayerScale,
    OcticLinear,
)

C, HEADS, GRID = 4, 2, (2, 3)  # channels of a plane


def dense(layer, channels):
    """The matrix and the vector of an affine layer of tokens, in the regular basis."""
    inputs = torch.eye(8 * channels, dtype=torch.float64).view(-1, 8, channels)  # regular
    x = torch.einsum("ig,tgc->itc", FOURIER, inputs).unsqueeze(1)
    zero = torch.zeros(8, 1, 1, channels, dtype=torch.float64)
    with torch.no_grad():
        shift = to_channels(on_planes(INVERSE_FOURIER, layer(zero))).flatten()
        rows = to_channels(on_planes(INVERSE_FOURIER, layer(x))).squeeze(0)
    return (rows - shift).T, shift


def test_a_linear_layer_is_a_group_convolution(scrambled):
    """octic, Eq. 8, Sec. 3.3.2."""
    matrix, shift = dense(scrambled(OcticLinear(8 * C, 24)), C)
    kernel = matrix.view(8, 3, 8, C)  # (g, out, h, in)
    for element in ELEMENTS:
        p = regular(element)
        moved = torch.einsum("gk,kolc,hl->gohc", p, kernel, p)
        torch.testing.assert_close(moved, kernel, rtol=0, atol=1e-13)
    torch.testing.assert_close(shift.view(8, 3), shift.view(8, 3)[:1].expand(8, -1))


class DenseBlock:
    """A block of tokens (B, N, 8c) in the regular basis, with dense matrices all through."""

    def __init__(self, block):
        self.block = block
        self.layers = {
            name: dense(layer, layer.in_features // 8)
            for name, layer in block.named_modules()
            if isinstance(layer, OcticLinear)
        }

    def __call__(self, x):
        x = x + self.scale(self.block.ls1, self.attention(self.norm(self.block.norm1, x)))
        hidden = functional.gelu(self.linear("mlp.fc1", self.norm(self.block.norm2, x)))
        return x + self.scale(self.block.ls2, self.linear("mlp.fc2", hidden))

    def linear(self, name, x):
        return functional.linear(x, *self.layers[name])

    def attention(self, x):
        qkv = self.linear("attn.qkv", x).unflatten(-1, (8, 3, HEADS, -1))
        q, k, v = qkv.permute(3, 0, 4, 1, 2, 5).flatten(4)  # (B, H, N, 8 d)
        y = ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).unflatten(-1, (8, -1))
        return self.linear("attn.proj", y.permute(0, 2, 3, 1, 4).flatten(2))

    def scale(self, layer, x):
        return x @ dense(layer, C)[0].T

    def norm(self, norm, x):
        rows = [[0], [1], [2], [3], [4, 6], [5, 7]]  # planes that have a mean in common
        means = torch.zeros(8, C, 8, C, dtype=torch.float64)
        for planes in rows:
            for i in planes:
                for j in planes:
                    means[i, :, j] = 1 / (C * len(planes))
        to_isotypic = torch.kron(FOURIER, torch.eye(C, dtype=torch.float64))
        x = x - x @ (to_isotypic.T @ means.view(8 * C, -1) @ to_isotypic).T
        x = x / (x.square().mean(-1, keepdim=True) + norm.eps / 8).sqrt()
        weight = norm.weight[[0, 1, 2, 3, 4, 4, 5, 5]].flatten()
        shift = torch.cat([norm.bias, torch.zeros(7 * C, dtype=torch.float64)])
        return (x @ to_isotypic.T * weight + shift) @ to_isotypic


def features(tokens=7):
    return 1 + 2 * torch.randn(8, 2, tokens, C, dtype=torch.float64)


def test_a_block_is_a_dense_one_on_the_regular_representation(scrambled):
    """octic, Sec. 3.3, Eq. 9."""
    block, x = scrambled(FastBlock(8 * C, HEADS, init_values=0.1)), features()
    expected = DenseBlock(block)(to_channels(on_planes(INVERSE_FOURIER, x)))
    plain = OcticBlock(8 * C, HEADS, init_values=0.1).double()
    plain.load_state_dict(block.state_dict())
    for way in (block, plain):
        y = to_channels(on_planes(INVERSE_FOURIER, way(x)))
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)


LAYERS = {
    "linear": lambda: OcticLinear(8 * C, 24),
    "norm": lambda: OcticLayerNorm(8 * C),
    "scale": lambda: OcticLayerScale(8 * C),
    "GELU": OcticGELU,
    "block": lambda: FastBlock(8 * C, HEADS, init_values=0.1),
}
ON_FEATURES = partial(act, grid=GRID, prefix=1)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_no_equivariance_error(scrambled, name):
    """octic, Eq. 7-8."""
    group = Group(ELEMENTS, ON_FEATURES, ON_FEATURES)
    assert equivariance_error(scrambled(LAYERS[name]()), features(), group).absolute < 1e-11


def test_patches_have_no_equivariance_error(scrambled):
    embed = scrambled(OcticPatchEmbed(12, 2, embed_dim=16))
    group = Group(ELEMENTS, transform, partial(act, grid=(6, 6)))
    assert equivariance_error(embed, torch.randn(2, 3, 12, 12).double(), group).absolute < 1e-12


class Biased(nn.Module):
    """It adds one to every plane, where the group acts trivially on the first alone."""

    def forward(self, x):
        return x + 1


@pytest.mark.parametrize("module", [Biased(), nn.GELU()])
def test_a_layer_that_does_not_commute_errs_by_brute_force(module):
    """The group as dense matrices: of planes (octic, Eq. 2) and of the tokens' places."""
    x, errors = features(), []
    places = torch.arange(6).view(GRID)
    for element in ELEMENTS:
        order = torch.cat([torch.zeros(1).long(), 1 + transform(places, element).flatten()])
        move = partial(torch.einsum, "ij,jbnc->ibnc", isotypic(element))
        change = module(move(x)[:, :, order]) - move(module(x))[:, :, order]
        errors.append(change.abs().max().item())
    assert max(errors) > 0.5
    error = equivariance_error(module, x, Group(ELEMENTS, ON_FEATURES, ON_FEATURES)).absolute
    assert error == pytest.approx(max(errors), rel=1e-12)
