"""The octic layers (octic, Sec. 3.3), on features ``(8, B, N, c)``, see `features`.

By Schur's lemma a linear map that commutes with the group is block diagonal: a plane of an irrep of
one dimension only sees itself, and E's 2c columns [copy 1 | copy 2] are mixed by one matrix that
both rows share. Layers with weights therefore keep them as four blocks, or vectors, of A1, A2, B1
and B2 and those of E. A bias may only go where the group acts trivially, to A1.

`Steerable*` are what an octic layer has in common with a flip-equivariant one (`flip`): features
``(planes, B, N, c)`` of a group, whose own layers the subclass names. Initial values and names of
parameters are those of timm's ViT, where it has them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from timm.layers import DropPath, PatchEmbed
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

from vitrine.errors import VitrineError, did_you_mean
from vitrine.octic.group import (
    FOURIER,
    INVERSE_FOURIER,
    SCALE,
    fourier,
    from_channels,
    inverse_fourier,
    per_plane,
)

TOKEN_STD = 8 * 0.02
"""Of the CLS token, as published: an A1 plane alone carries what all channels would."""


def channels_of_plane(features: int, planes: int = 8) -> int:
    """Return how many channels a plane has.

    Raises:
        VitrineError: the planes cannot share them equally.
    """
    if features % planes:
        raise VitrineError(
            f"{planes} planes cannot share {features} channels; give a multiple of {planes}"
        )
    return features // planes


def taken_apart() -> bool:
    """Say whether an exporter, a transform of `torch.func` or forward-mode AD is at work.

    None of them can look into an operator of ours, and forward-mode AD would take its tangents for
    zero; so layers are made of torch's own operations then.
    """
    return (
        forward_ad._current_level >= 0
        or torch._C._functorch.maybe_current_level() is not None
        or torch.compiler.is_exporting()
    )


def octic_linear(x: Tensor, weight: Tensor, weight_e: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply ``(8, M, c)`` by ``(4, c', c)`` and ``(2c', 2c)``, see `OcticLinear`.

    It needs 12 c c' multiply-adds where a dense layer needs 64.
    """
    if not taken_apart():
        return _octic_linear(x, weight, weight_e, bias)
    lines = x[:4] @ weight.mT
    if bias is not None:
        lines = lines + functional.pad(bias[None], (0, 0, 0, 3)).unsqueeze(1)
    pairs = (_pairs(x) @ weight_e.T).unflatten(0, (2, -1)).unflatten(2, (2, -1))
    return torch.cat([lines, pairs.permute(2, 0, 1, 3).flatten(0, 1)])


@torch.library.custom_op("vitrine::octic_linear", mutates_args=())
def _octic_linear(x: Tensor, weight: Tensor, weight_e: Tensor, bias: Tensor | None) -> Tensor:
    """Let each product write its planes into the one output, under autograd and compilers too.

    Concatenating them would cost a fifth more.
    """
    c_out = weight.shape[1]
    y = x.new_empty(8, x.shape[1], c_out)
    torch.bmm(x[1:4], weight[1:].mT, out=y[1:4])
    if bias is None:
        torch.mm(x[0], weight[0].mT, out=y[0])
    else:
        torch.addmm(bias, x[0], weight[0].mT, out=y[0])
    pairs = _pairs(x)
    for out, block in zip(y[4:].view(2, -1, c_out), weight_e.split(c_out), strict=True):
        torch.mm(pairs, block.mT, out=out)
    return y


def _pairs(x: Tensor) -> Tensor:
    """Take E of ``(8, M, c)`` as its rows of 2c columns, ``(2M, 2c)``."""
    return x[4:].unflatten(0, (2, 2)).permute(1, 2, 0, 3).flatten(2).flatten(0, 1)


@_octic_linear.register_fake
def _(x: Tensor, weight: Tensor, weight_e: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(8, x.shape[1], weight.shape[1])


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.has_bias = inputs[3] is not None


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, weight_e = ctx.saved_tensors
    needs_x, needs_weight, needs_weight_e, _ = ctx.needs_input_grad
    grad = grad.contiguous()
    grad_x = octic_linear(grad, weight.mT, weight_e.T, None) if needs_x else None
    grad_weight = grad[:4].mT @ x[:4] if needs_weight else None
    grad_weight_e = _pairs(grad).mT @ _pairs(x) if needs_weight_e else None
    return grad_x, grad_weight, grad_weight_e, grad[0].sum(0) if ctx.has_bias else None


_octic_linear.register_autograd(_backward, setup_context=_save_for_backward)


@register_flop_formula(torch.ops.vitrine.octic_linear)
def _flops(x: torch.Size, weight: torch.Size, *_: Any, **__: Any) -> int:
    """Two for each multiply-add: four planes, and two rows of a matrix of 2c x 2c'."""
    return 2 * 12 * x[1] * weight[1] * weight[2]


class OcticLinear(nn.Module):
    """Equivariant linear layer, ``(8, B, N, c)`` to ``(8, B, N, c')`` (octic, Eq. 8, Sec. 3.3.2).

    Its initial weights are truncated normal ones (std 0.02), as the paper's, its bias is zero.

    Attributes:
        weight: ``(4, c', c)`` of A1, A2, B1, B2.
        weight_e: ``(2c', 2c)`` of E; rows and columns are [copy 1 | copy 2].
        bias: ``(c')`` of A1, or None.

    Raises:
        VitrineError: `in_features` or `out_features`, C and C', is no multiple of 8.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        c, c_out = channels_of_plane(in_features), channels_of_plane(out_features)
        self.weight = nn.Parameter(torch.empty(4, c_out, c))
        self.weight_e = nn.Parameter(torch.empty(2 * c_out, 2 * c))
        self.bias = nn.Parameter(torch.zeros(c_out)) if bias else None
        nn.init.trunc_normal_(self.weight, std=0.02)
        nn.init.trunc_normal_(self.weight_e, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        tensors: list[Any] = [x.flatten(1, 2), self.weight, self.weight_e, self.bias]
        device = x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]
        return octic_linear(*tensors).unflatten(1, x.shape[1:3])

    def extra_repr(self) -> str:
        """Show the sizes, as `nn.Linear` does."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


NormConvention = Literal["total", "published"]


class OcticLayerNorm(nn.Module):
    """Equivariant layer norm of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    A mean may only be removed within an irrep: over the channels of A1, A2, B1 and B2, and over the
    2c columns of each row of E. One scalar divides all, the norm over all irreps, which the group
    does not change.

    Args:
        dim: C, channels of all planes together.
        eps: added to the sum of the planes' variances.
        convention: "total" divides by the norm over all irreps, as the paper's text does;
            "published" counts E a quarter of that, as the published code does.

    Attributes:
        weight: ``(6, c)`` of A1, A2, B1, B2 and E's two copies.
        bias: ``(c)`` of A1.

    Raises:
        VitrineError: `dim` is no multiple of 8, or the convention is unknown.
    """

    def __init__(self, dim: int, eps: float = 1e-6, convention: NormConvention = "total") -> None:
        super().__init__()
        if convention not in get_args(NormConvention):
            known = did_you_mean(convention, get_args(NormConvention))
            raise VitrineError(f"unknown norm convention '{convention}'{known}")
        c = channels_of_plane(dim)
        self.eps, self.convention = eps, convention
        self.weight = nn.Parameter(torch.ones(6, c))
        self.bias = nn.Parameter(torch.zeros(c))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``(8, B, N, c)``, each token by itself."""
        dtype = x.dtype
        if dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        mean = x.mean(-1, keepdim=True)
        rows = (mean[4:6] + mean[6:8]) / 2
        x = x - torch.cat([mean[:4], rows, rows])
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
        lines, pairs = squares[:4].sum(0), squares[4:].sum(0)
        if self.convention == "published":
            pairs = pairs / 4
        variance = (lines + pairs) / x.shape[-1]
        # An eighth of it, so that a channel's variance becomes one, as in a dense layer norm.
        x = x * ((variance + self.eps) / 8).rsqrt()
        shift = functional.pad(self.bias[None], (0, 0, 0, 7))[:, None, None]
        x = torch.addcmul(shift, x, per_plane(self.weight)[:, None, None])
        return x.to(dtype)

    def operations(self, x: Tensor) -> int:
        """Count a mean, a difference, a quotient and a scale, and A1's shift."""
        return 33 * x.numel() // 8

    def extra_repr(self) -> str:
        """Show what the constructor was given."""
        return f"{8 * self.bias.numel()}, eps={self.eps}, convention={self.convention!r}"


class OcticLayerScale(nn.Module):
    """Equivariant layer scale of ``(8, B, N, c)``.

    Attributes:
        gamma: ``(6, c)`` of A1, A2, B1, B2 and E's two copies.

    Raises:
        VitrineError: `dim`, C, is no multiple of 8.
    """

    def __init__(self, dim: int, init_values: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((6, channels_of_plane(dim)), float(init_values)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale ``(8, B, N, c)``."""
        return x * per_plane(self.gamma)[:, None, None]


GELU_CHUNK = 1 << 14
"""Columns of ``(8, M)`` that fit into a core's cache during both transforms."""


def octic_gelu(x: Tensor) -> Tensor:
    """Apply the exact GELU to ``(8, ...)`` in the regular representation (octic, Sec. 3.3.3).

    There the group permutes the eight planes, which commutes with any pointwise function; so the
    features are transformed there and back.
    """
    if torch.compiler.is_compiling():  # additions, which become one loop
        regular = [functional.gelu(SCALE * plane) for plane in inverse_fourier(x.unbind())]
        return torch.stack([SCALE * plane for plane in fourier(regular)])
    whole = not taken_apart()
    if whole and x.is_cuda and x.dtype != torch.float64 and importlib.util.find_spec("triton"):
        from vitrine.octic import kernels

        return kernels.octic_gelu(x)
    planes = x.flatten(1)
    to_regular, to_isotypic = INVERSE_FOURIER.to(x), FOURIER.to(x)
    if torch.is_grad_enabled() or not (whole and x.is_cpu):
        return (to_isotypic @ functional.gelu(to_regular @ planes)).view_as(x)
    y = torch.empty_like(planes)
    with torch.autocast("cpu", enabled=False):  # it would not write into the dtype of the input
        for chunk, out in zip(planes.split(GELU_CHUNK, 1), y.split(GELU_CHUNK, 1), strict=True):
            torch.mm(to_isotypic, functional.gelu(to_regular @ chunk), out=out)
    return y.view_as(x)


class OcticGELU(nn.Module):
    """`octic_gelu` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        return octic_gelu(x)

    def operations(self, x: Tensor) -> int:
        """Count GELU as 8, and of either fast transform 24 additions and 8 products of 8 planes."""
        return (8 + 2 * 4) * x.numel()


class OcticDropout(nn.Dropout):
    """Dropout of ``(8, B, N, c)`` whose mask the two rows of E share."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training, scaling the others up."""
        if not self.training or self.p == 0:
            return x
        return x * per_plane(functional.dropout(torch.ones_like(x[:6]), self.p))


class SteerableDropPath(DropPath):
    """Stochastic depth of ``(planes, B, N, c)``: a sample keeps all of its planes or none."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop samples in training, scaling the others up."""
        if not self.training or self.drop_prob == 0:
            return x
        return x * functional.dropout(x.new_ones(x.shape[1], 1, 1), self.drop_prob)


def split_heads(x: Tensor, parts: int, num_heads: int) -> Tensor:
    """Split off heads: ``(planes, B, N, parts H d)`` to ``(parts, B, H, N, planes d)``."""
    if not taken_apart():
        return _split_heads(x, parts, num_heads)
    return x.unflatten(3, (parts, num_heads, -1)).permute(3, 1, 4, 2, 0, 5).flatten(4)


def merge_heads(y: Tensor, planes: int) -> Tensor:
    """Merge heads: ``(parts, B, H, N, planes d)`` to ``(planes, B, N, parts H d)``."""
    if not taken_apart():
        return _merge_heads(y, planes)
    return y.unflatten(4, (planes, -1)).permute(4, 1, 3, 0, 2, 5).flatten(3)


# Operators of torch's own kind, because `torch.compile` would copy element by element, on a CPU.
@torch.library.custom_op("vitrine::split_heads", mutates_args=())
def _split_heads(x: Tensor, parts: int, num_heads: int) -> Tensor:
    words = _words(x.unflatten(3, (parts, num_heads, -1)))
    return words.permute(3, 1, 4, 2, 0, 5).contiguous().view(x.dtype).flatten(4)


@torch.library.custom_op("vitrine::merge_heads", mutates_args=())
def _merge_heads(y: Tensor, planes: int) -> Tensor:
    words = _words(y.contiguous().unflatten(4, (planes, -1)))
    return words.permute(4, 1, 3, 0, 2, 5).contiguous().view(y.dtype).flatten(3)


def _words(x: Tensor) -> Tensor:
    """View the last axis as numbers of 16 bytes, which are copied faster than their parts."""
    return x.view(torch.complex128) if x.shape[-1] * x.element_size() % 16 == 0 else x


@_split_heads.register_fake
def _(x: Tensor, parts: int, num_heads: int) -> Tensor:
    planes, batch, tokens, channels = x.shape
    return x.new_empty(parts, batch, num_heads, tokens, planes * channels // (parts * num_heads))


@_merge_heads.register_fake
def _(y: Tensor, planes: int) -> Tensor:
    parts, batch, num_heads, tokens, channels = y.shape
    return y.new_empty(planes, batch, tokens, parts * num_heads * channels // planes)


def _note_planes(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.planes = inputs[0].shape[0]


def _note_heads(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.parts, ctx.num_heads = inputs[0].shape[0], inputs[0].shape[2]


# Each only moves numbers, so the other is its gradient.
_split_heads.register_autograd(
    lambda ctx, grad: (merge_heads(grad, ctx.planes), None, None), setup_context=_note_planes
)
_merge_heads.register_autograd(
    lambda ctx, grad: (split_heads(grad.contiguous(), ctx.parts, ctx.num_heads), None),
    setup_context=_note_heads,
)


class SteerableAttention(nn.Module):
    """Multi-head self-attention of ``(planes, B, N, c)`` (octic, Eq. 7).

    Queries and keys of one orthogonal representation have invariant inner products, so the
    attention is an ordinary one: a head takes its share of every plane, side by side as one vector.
    A plane's 3c outputs of `qkv` are queries, keys and values, each of H heads of ``d = c / H``
    channels.

    Args:
        dim: C, channels of all planes together.
        num_heads: H; a head has C / H channels, a multiple of the planes.
        qkv_bias: whether the first plane's queries, keys and values have a bias.
        attn_drop: dropout of the attention.
        proj_drop: dropout of the output.

    Attributes:
        planes: of the features.
        linear_layer: class of the group's linear layer.
        drop_layer: of its dropout.

    Raises:
        VitrineError: the heads cannot share every plane equally.
    """

    planes: int
    linear_layer: type[Any]
    drop_layer: type[nn.Module]

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        if dim % (self.planes * num_heads):
            raise VitrineError(
                f"{num_heads} heads cannot share {dim} channels of {self.planes} planes; "
                f"give a multiple of {self.planes * num_heads} channels"
            )
        self.num_heads = num_heads
        self.qkv = self.linear_layer(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = self.linear_layer(dim, dim)
        self.proj_drop = self.drop_layer(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each image of ``(planes, B, N, c)``."""
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads).unbind()
        dropout = self.attn_drop.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        output: Tensor = self.proj_drop(self.proj(merge_heads(y[None], self.planes)))
        return output


class OcticAttention(SteerableAttention):
    """Equivariant self-attention of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    The published code gives head h the columns 2hd to 2(h+1)d of [copy 1 | copy 2], which is the
    same layer with E's columns in another order: its column (h, k, j) is (k, h, j) here.
    """

    planes = 8
    linear_layer = OcticLinear
    drop_layer = OcticDropout


class SteerableMlp(nn.Module):
    """MLP of ``(planes, B, N, c)``: two of the group's linear layers about its GELU.

    Dropout follows the activation and the output.

    Attributes:
        linear_layer: class of the group's linear layer.
        act_layer: of its GELU.
        drop_layer: of its dropout.

    Raises:
        VitrineError: the planes cannot share `in_features`, C, or `hidden_features`.
    """

    linear_layer: type[nn.Module]
    act_layer: type[nn.Module]
    drop_layer: type[nn.Module]

    def __init__(self, in_features: int, hidden_features: int, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = self.linear_layer(in_features, hidden_features)
        self.act = self.act_layer()
        self.drop1 = self.drop_layer(drop)
        self.fc2 = self.linear_layer(hidden_features, in_features)
        self.drop2 = self.drop_layer(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to every token."""
        output: Tensor = self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))
        return output


class OcticMlp(SteerableMlp):
    """Equivariant MLP of ``(8, B, N, c)``."""

    linear_layer = OcticLinear
    act_layer = OcticGELU
    drop_layer = OcticDropout


class SteerableBlock(nn.Module):
    """Pre-norm transformer block of ``(planes, B, N, c)`` (Fig. 3), its parts named as timm's.

    Source: octic, Eq. 9.

    Its arguments are those of timm's, too: `dim` is C, channels of all planes together,
    `proj_drop` acts in the MLP as well, and without `init_values` there is no layer scale.

    Attributes:
        attn_layer: class of the group's attention.
        mlp_layer: of its MLP.
        norm_layer: of its layer norm, unless the block is given another.
        scale_layer: of its layer scale.

    Raises:
        VitrineError: the channels do not split into planes and heads.
    """

    attn_layer: type[Any]
    mlp_layer: type[Any]
    norm_layer: type[Any]
    scale_layer: type[Any]

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        init_values: float | None = None,
        drop_path: float = 0.0,
        norm_layer: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or self.norm_layer

        def layer_scale() -> nn.Module:
            return self.scale_layer(dim, init_values) if init_values else nn.Identity()

        self.norm1 = norm_layer(dim)
        self.attn = self.attn_layer(dim, num_heads, qkv_bias, attn_drop, proj_drop)
        self.ls1 = layer_scale()
        self.drop_path1 = SteerableDropPath(drop_path)
        self.norm2 = norm_layer(dim)
        self.mlp = self.mlp_layer(dim, int(dim * mlp_ratio), proj_drop)
        self.ls2 = layer_scale()
        self.drop_path2 = SteerableDropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(planes, B, N, c)``."""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class OcticBlock(SteerableBlock):
    """Octic transformer block, of ``(8, B, N, c)``."""

    attn_layer = OcticAttention
    mlp_layer = OcticMlp
    norm_layer = OcticLayerNorm
    scale_layer = OcticLayerScale


# Of A1, A2, B1, B2: the factors of a quarter turn and of a mirroring.
_TURN_AND_MIRROR = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def unfold_quarters(quarters: Tensor) -> Tensor:
    """Unfold square grids that transform like the irreps from one free quarter each.

    The group's eight images of the top-left quarter fill the square. A plane of A1 to B2 has a
    quarter of its own, the two rows of a copy of E share one.

    Args:
        quarters: ``(6, ..., q, q)`` of A1, A2, B1, B2 and E's two copies.

    Returns:
        ``(8, ..., 2q, 2q)``: plane i is what the group turns into its isotypic matrix's row i.
    """
    lines = [
        _unfold_line(quarter, turn, mirror)
        for quarter, (turn, mirror) in zip(quarters[:4], _TURN_AND_MIRROR, strict=True)
    ]
    pairs = [row for quarter in quarters[4:] for row in _unfold_pair(quarter)]
    return torch.stack(lines + pairs)


def _unfold_line(quarter: Tensor, turn: int, mirror: int) -> Tensor:
    turned = [quarter.rot90(k, (-2, -1)) for k in range(4)]
    left = torch.cat([turned[0], turn * turned[1]], dim=-2)
    right = torch.cat([turn * turned[3], turned[2]], dim=-2)
    grid = torch.cat([left, right], dim=-1)
    return grid + mirror * grid.flip(-1)


def fold_quarters(planes: Tensor) -> Tensor:
    """Return quarters ``(6, ..., q, q)`` that `unfold_quarters` makes ``(8, ..., 2q, 2q)`` of."""
    side = planes.shape[-1] // 2
    corners = planes[[0, 1, 2, 3, 4, 6], ..., :side, :side]
    return torch.cat([corners[:4] / 2, corners[4:]])


def _unfold_pair(quarter: Tensor) -> tuple[Tensor, Tensor]:
    left = torch.cat([quarter, quarter.flip(-2)], dim=-2)
    row = torch.cat([left, -left.flip(-1)], dim=-1)
    return row, row.rot90(1, (-2, -1))


class SteerablePatchEmbed(nn.Module):
    """Patch embedding ``(B, I, H, W)`` to ``(planes, B, N, c)``, whose first plane has a bias.

    Source: octic, Example 3.7.

    Args:
        img_size: side of the usual image.
        patch_size: p, even.
        shape: of `weight`.
        fan_in: of a filter, for torch's initial values of a convolution.

    Attributes:
        weight: the free part of each plane's filters.
        bias: ``(c)``.
        grid_size: patches (down, across) of an image of the usual size.
        filters: returns those of all planes, ``(planes, c, I, p, p)``.

    Raises:
        VitrineError: `patch_size` is odd.
    """

    filters: Callable[[], Tensor]

    def __init__(self, img_size: int, patch_size: int, shape: tuple[int, ...], fan_in: int) -> None:
        super().__init__()
        if patch_size % 2:
            raise VitrineError(f"patches have {patch_size} pixels; give an even patch_size")
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (img_size // patch_size, img_size // patch_size)
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(shape[1]).uniform_(-bound, bound))

    def set_input_size(self, img_size: tuple[int, int]) -> None:
        """Change the size of the usual image."""
        self.grid_size = (img_size[0] // self.patch_size[0], img_size[1] // self.patch_size[1])

    def forward(self, images: Tensor) -> Tensor:
        """Embed images whose sides are multiples of the patch's."""
        filters = self.filters()
        bias = functional.pad(self.bias, (0, (len(filters) - 1) * len(self.bias)))
        x = functional.conv2d(images, filters.flatten(0, 1), bias, self.patch_size)
        return x.unflatten(1, (len(filters), -1)).flatten(3).permute(1, 0, 3, 2)


# They keep the filters of all irreps at the length that the quarters have.
_FILTER_SCALES = [math.sqrt(2) / 4] * 4 + [1 / 2] * 4


class OcticPatchEmbed(SteerablePatchEmbed):
    """Equivariant patch embedding (octic, Sec. 3.3.1), ``(B, I, H, W)`` to ``(8, B, N, c)``.

    Its initial weights are those of a convolution by one quarter.

    Args:
        img_size: side of the usual image.
        patch_size: p, even.
        in_chans: I, channels of the image.
        embed_dim: C, channels of all planes together.

    Attributes:
        weight: ``(6, c, I, p/2, p/2)`` of A1, A2, B1, B2 and E's two copies.
        bias: ``(c)`` of A1.

    Raises:
        VitrineError: `patch_size` is odd, or `embed_dim` is no multiple of 8.
    """

    def __init__(
        self, img_size: int = 224, patch_size: int = 16, in_chans: int = 3, embed_dim: int = 768
    ) -> None:
        c, q = channels_of_plane(embed_dim), patch_size // 2
        super().__init__(img_size, patch_size, (6, c, in_chans, q, q), fan_in=in_chans * q * q)

    def filters(self) -> Tensor:
        """Return the filters of the eight planes ``(8, c, I, p, p)`` (Fig. 6)."""
        scales = self.weight.new_tensor(_FILTER_SCALES).view(8, 1, 1, 1, 1)
        return scales * unfold_quarters(self.weight)


class SteerablePositionEmbedding(nn.Module):
    """Position encoding ``(planes, 1, N, c)`` that transforms with the grid of tokens.

    Another grid than that of the weights is sampled from it by bicubic interpolation about the
    centre, which the group does not move; an offset as DINOv2's would break the equivariance.

    Attributes:
        weight: the free part of each plane's grid.
        grid: (G, G) of the weights.
        unfold: makes ``(planes, c, G, G)`` of `weight`; `fold` undoes it.

    Raises:
        VitrineError: `grid`, G, is odd.
    """

    unfold: Callable[[Tensor], Tensor]
    fold: Callable[[Tensor], Tensor]

    def __init__(self, grid: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.grid = (grid, grid)
        require_even(self.grid)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.trunc_normal_(self.weight, std=TOKEN_STD / math.sqrt(2))

    def forward(self, grid: tuple[int, int] | None = None) -> Tensor:
        """Return the encoding of a grid of tokens, by default that of the weights.

        Raises:
            VitrineError: a side of `grid` is odd.
        """
        planes = self.unfold(self.weight)
        if grid is not None and grid != self.grid:
            require_even(grid)
            planes = _resized(planes, grid)
        return planes.flatten(2).mT.unsqueeze(1)

    def resampled(self, weight: Tensor, grid: int) -> Tensor:
        """Make of the `weight` of any grid that of `grid` x `grid` tokens, with the same encoding.

        Raises:
            VitrineError: `grid` is odd.
        """
        require_even((grid, grid))
        return self.fold(_resized(self.unfold(weight), (grid, grid)))

    def set_grid(self, grid: int) -> None:
        """Change the grid of the weights; errors as `resampled`."""
        if (grid, grid) != self.grid:
            weight = self.resampled(self.weight.detach(), grid)
            self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
            self.grid = (grid, grid)


def _resized(planes: Tensor, grid: tuple[int, int]) -> Tensor:
    return functional.interpolate(planes, size=grid, mode="bicubic", align_corners=False)


class ArbitraryPatchEmbed(PatchEmbed):
    """Patch embedding by any linear map, ``(B, I, H, W)`` to ``(8, B, N, c)`` (octic, Sec. 4.3).

    The group does not act on its features; arguments are those of timm's.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Embed images whose sides are multiples of the patch's."""
        return from_channels(super().forward(images))


class OcticPositionEmbedding(SteerablePositionEmbedding):
    """Equivariant position encoding ``(8, 1, N, c)`` (octic, Sec. 3.3.1, Eq. 10).

    Attributes:
        weight: ``(6, c, G/2, G/2)`` of A1, A2, B1, B2 and E's two copies.

    Raises:
        VitrineError: `grid`, G, is odd, or eight planes cannot share `dim`, C.
    """

    unfold = staticmethod(unfold_quarters)
    fold = staticmethod(fold_quarters)

    def __init__(self, grid: int, dim: int) -> None:
        super().__init__(grid, (6, channels_of_plane(dim), grid // 2, grid // 2))


def require_even(grid: tuple[int, int]) -> None:
    """Refuse a grid of tokens that has a middle row or column.

    Raises:
        VitrineError: it has.
    """
    if grid[0] % 2 or grid[1] % 2:
        raise VitrineError(
            f"a grid of {grid[0]} x {grid[1]} patches has an odd side; "
            "give images of an even number of patches"
        )
