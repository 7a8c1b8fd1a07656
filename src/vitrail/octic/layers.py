"""The octic layers (octic, Sec. 3.3), on features ``(8, B, N, c)``, see `features`.

By Schur's lemma a linear map that commutes with the group is block diagonal: a plane of an irrep of
one dimension only sees itself, and E's 2c columns [copy 1 | copy 2] are mixed by one matrix that
both rows share. Layers with weights therefore keep them as four blocks, or vectors, of A1, A2, B1
and B2 and those of E. A bias may only go where the group acts trivially, to A1.

Within a block the features are taken apart by irrep, `Irreps`, as the products want them.

`Steerable*` are what an octic layer has in common with a flip-equivariant one (`flip`): features
``(planes, B, N, c)`` of a group, whose own layers the subclass names. Initial values and names of
parameters are those of timm's ViT, where it has them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
from timm.layers import DropPath, PatchEmbed
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from vitrail.errors import VitrailError, did_you_mean
from vitrail.octic.group import (
    FOURIER,
    INVERSE_FOURIER,
    SCALE,
    fourier,
    from_channels,
    inverse_fourier,
    to_channels,
)

TOKEN_STD = 8 * 0.02
"""Of the CLS token, as published: an A1 plane alone carries what all channels would."""


def channels_of_plane(features: int, planes: int = 8) -> int:
    """Return how many channels a plane has; raises VitrailError if some are left over."""
    if features % planes:
        raise VitrailError(
            f"{planes} planes cannot share {features} channels; give a multiple of {planes}"
        )
    return features // planes


def taken_apart() -> bool:
    """Say whether a compiler, an exporter, `torch.func` or forward-mode AD is at work.

    A compiler makes better kernels than an operator of ours, the others cannot look into one, and
    forward-mode AD would take its tangents for zero; so layers are made of torch's own operations.
    """
    return (
        forward_ad._current_level >= 0
        or torch._C._functorch.maybe_current_level() is not None
        or torch.compiler.is_compiling()
    )


class Irreps(NamedTuple):
    """Octic features irrep by irrep, as layers within a block hand them on.

    A row of E, 2c columns, is one vector, so that one product serves E and copies nothing.

    Attributes:
        lines: ``(4, B, N, c)`` of A1, A2, B1, B2.
        pairs: ``(B, N, 2, 2, c)``, the rows of E with their columns of copy 1 and copy 2.
    """

    lines: Tensor
    pairs: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Irreps:
        """View features ``(8, B, N, c)`` so."""
        return cls(x[:4], x[4:].unflatten(0, (2, 2)).permute(2, 3, 1, 0, 4))

    def planes(self) -> list[Tensor]:
        """Return the eight planes ``(B, N, c)``."""
        return [*self.lines, *(self.pairs[:, :, k % 2, k // 2] for k in range(4))]

    def joined(self) -> Tensor:
        """Copy them into one tensor ``(8, B, N, c)``."""
        return torch.stack(self.planes())

    def plus(self, other: Irreps) -> Irreps:
        """Add others, whose order in memory the sum takes."""
        return Irreps(other.lines + self.lines, other.pairs + self.pairs)

    def numel(self) -> int:
        """Count the numbers."""
        return self.lines.numel() + self.pairs.numel()


class OcticLayer(nn.Module):
    """Maps features ``(8, B, N, c)`` to such, or their `Irreps` to `Irreps`."""

    irreps: Callable[[Irreps], Irreps]

    def forward(self, x: Any) -> Any:
        """Apply it to either."""
        return self.irreps(x) if isinstance(x, Irreps) else self.irreps(Irreps.of(x)).joined()


class OcticLinear(OcticLayer):
    """Equivariant linear layer, ``(8, B, N, c)`` to ``(8, B, N, c')`` (octic, Eq. 8, Sec. 3.3.2).

    `weight` is ``(4, c', c)`` of A1, A2, B1, B2, `weight_e` ``(2c', 2c)`` of E, whose rows and
    columns are [copy 1 | copy 2]; both start truncated normal (std 0.02), as the paper's. `bias` is
    ``(c')`` of A1, zero at first, or None.

    Raises:
        VitrailError: `in_features` or `out_features`, C and C', is no multiple of 8.
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

    def irreps(self, x: Irreps) -> Irreps:
        """Multiply each irrep; 12 c c' multiply-adds for a token, where a dense layer needs 64."""
        planes, weight = x.lines.flatten(1, 2), self.weight.mT
        if self.bias is None:
            lines = torch.bmm(planes, weight)
        elif torch.compiler.is_compiling():  # as a part of the next kernel
            lines = torch.bmm(planes, weight)
            lines[0] += self.bias
        else:
            bias = functional.pad(self.bias[None, None], (0, 0, 0, 0, 0, 3))
            lines = torch.baddbmm(bias, planes, weight)
        pairs = (x.pairs.flatten(-2) @ self.weight_e.T).unflatten(-1, (2, -1))
        return Irreps(lines.unflatten(1, x.lines.shape[1:3]), pairs)

    def extra_repr(self) -> str:
        """Show the sizes, as `nn.Linear` does."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


NormConvention = Literal["total", "published"]


class OcticLayerNorm(OcticLayer):
    """Equivariant layer norm of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    A mean may only be removed within an irrep: over the channels of A1, A2, B1 and B2, and over the
    2c columns of each row of E. One scalar divides all, the norm over all irreps, which the group
    does not change.

    `weight` is ``(6, c)`` of A1, A2, B1, B2 and E's two copies, `bias` ``(c)`` of A1.

    Args:
        dim: C, channels of all planes together.
        eps: added to the sum of the planes' variances.
        convention: "total" divides by the norm over all irreps, as the paper's text does;
            "published" counts E a quarter of that, as the published code does.

    Raises:
        VitrailError: `dim` is no multiple of 8, or the convention is unknown.
    """

    def __init__(self, dim: int, eps: float = 1e-6, convention: NormConvention = "total") -> None:
        super().__init__()
        if convention not in get_args(NormConvention):
            known = did_you_mean(convention, get_args(NormConvention))
            raise VitrailError(f"unknown norm convention '{convention}'{known}")
        c = channels_of_plane(dim)
        self.eps, self.convention = eps, convention
        self.weight = nn.Parameter(torch.ones(6, c))
        self.bias = nn.Parameter(torch.zeros(c))

    def irreps(self, x: Irreps) -> Irreps:
        """Normalise each token by itself, in float32 at least."""
        dtype = x.lines.dtype
        if dtype in (torch.bfloat16, torch.float16):
            x = Irreps(x.lines.float(), x.pairs.float())
        # Centred first: a difference of squares would cancel.
        lines = x.lines - x.lines.mean(-1, keepdim=True)
        pairs = x.pairs - x.pairs.mean((-2, -1), keepdim=True)
        of_lines = torch.linalg.vector_norm(lines, dim=-1).square().sum(0)
        of_pairs = torch.linalg.vector_norm(pairs, dim=(2, 3, 4)).square()
        if self.convention == "published":
            of_pairs = of_pairs / 4
        variance = (of_lines + of_pairs) / lines.shape[-1]
        # An eighth of it, so that a channel's variance becomes one, as in a dense layer norm.
        scale = ((variance + self.eps) / 8).rsqrt()[..., None]
        shift = functional.pad(self.bias[None], (0, 0, 0, 3))[:, None, None]
        lines = torch.addcmul(shift, lines * scale, self.weight[:4, None, None])
        pairs = pairs * scale[..., None, None] * self.weight[4:]
        return Irreps(lines.to(dtype), pairs.to(dtype))

    def operations(self, x: Tensor | Irreps) -> int:
        """Count a mean, a difference, a quotient and a scale, and A1's shift."""
        return 33 * x.numel() // 8

    def extra_repr(self) -> str:
        """Show what the constructor was given."""
        return f"{8 * self.bias.numel()}, eps={self.eps}, convention={self.convention!r}"


class OcticLayerScale(OcticLayer):
    """Equivariant layer scale of ``(8, B, N, c)``; `gamma` is ``(6, c)``, as a norm's weight.

    Raises:
        VitrailError: `dim`, C, is no multiple of 8.
    """

    def __init__(self, dim: int, init_values: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((6, channels_of_plane(dim)), float(init_values)))

    def irreps(self, x: Irreps) -> Irreps:
        """Scale them."""
        return Irreps(x.lines * self.gamma[:4, None, None], x.pairs * self.gamma[4:])


GELU_PART = 1 << 16
"""Bytes of a plane that fit into a core's cache, eight planes at a time."""


def octic_gelu(x: Tensor) -> Tensor:
    """Apply the exact GELU to ``(8, ...)`` in the regular representation (octic, Sec. 3.3.3).

    There the group permutes the eight planes, which commutes with any pointwise function; so the
    features are transformed there and back.
    """
    whole = not taken_apart()
    if whole and x.is_cuda and x.dtype != torch.float64 and importlib.util.find_spec("triton"):
        from vitrail.octic import kernels

        return kernels.octic_gelu(x)
    planes = x.flatten(1)
    return (FOURIER.to(x) @ functional.gelu(INVERSE_FOURIER.to(x) @ planes)).view_as(x)


def _fused_gelu(x: Irreps) -> Irreps:
    """Apply `octic_gelu` by additions, of which a compiler makes one kernel.

    The planes of a token stand side by side in what it writes: one loop over them all.
    """
    regular = [SCALE * functional.gelu(SCALE * plane) for plane in inverse_fourier(x.planes())]
    y = fourier(regular)
    c = y[0].shape[-1]
    lines = torch.cat(y[:4], -1).unflatten(-1, (4, c)).movedim(-2, 0)
    pairs = torch.cat([y[4], y[6], y[5], y[7]], -1).unflatten(-1, (2, 2, c))
    return Irreps(lines, pairs)


def _gelu_in_parts(x: Irreps) -> Irreps:
    """Apply `octic_gelu` to so many tokens at a time that they stay in a core's cache."""
    y = Irreps(*(torch.empty_like(f, memory_format=torch.contiguous_format) for f in x))
    to_regular, to_isotypic = INVERSE_FOURIER.to(x.lines), FOURIER.to(x.lines)
    c = x.lines.shape[-1]
    count = max(1, GELU_PART // (c * x.lines.element_size()))
    lines = [f.lines.flatten(1, 2).split(count, 1) for f in (x, y)]
    pairs = [f.pairs.flatten(0, 1).permute(2, 1, 0, 3).split(count, 2) for f in (x, y)]
    with torch.autocast("cpu", enabled=False):  # it would lower the precision of the transforms
        for a, lines_out, e, pairs_out in zip(*lines, *pairs, strict=True):
            planes = torch.cat([a, e.flatten(0, 1)]).flatten(1)
            torch.mm(to_isotypic, functional.gelu(to_regular @ planes), out=planes)
            lines_out.copy_(planes[:4].unflatten(1, (-1, c)))
            pairs_out.copy_(planes[4:].view(2, 2, -1, c))
    return y


class OcticGELU(OcticLayer):
    """`octic_gelu` as a layer."""

    def irreps(self, x: Irreps) -> Irreps:
        """Transform, activate and transform back."""
        if torch.compiler.is_compiling():
            return _fused_gelu(x)
        if torch.is_grad_enabled() or taken_apart() or not x.lines.is_cpu:
            return Irreps.of(octic_gelu(x.joined()))
        return _gelu_in_parts(x)

    def operations(self, x: Tensor | Irreps) -> int:
        """Count GELU as 8, and of either fast transform 24 additions and 8 products of 8 planes."""
        return (8 + 2 * 4) * x.numel()


class OcticDropout(OcticLayer, nn.Dropout):
    """Dropout of ``(8, B, N, c)`` whose mask the two rows of E share."""

    def irreps(self, x: Irreps) -> Irreps:
        """Drop entries in training, scaling the others up."""
        if not self.training or self.p == 0:
            return x
        mask = functional.dropout(x.lines.new_ones(6, *x.lines.shape[1:]), self.p)
        return Irreps(x.lines * mask[:4], x.pairs * mask[4:].permute(1, 2, 0, 3).unsqueeze(2))


class SteerableDropPath(DropPath):
    """Stochastic depth of ``(planes, B, N, c)``: a sample keeps all of its planes or none."""

    def forward(self, x: Any) -> Any:
        """Drop samples in training, scaling the others up."""
        if not self.training or self.drop_prob == 0:
            return x
        planes = x.lines if isinstance(x, Irreps) else x
        mask = functional.dropout(planes.new_ones(planes.shape[1], 1, 1), self.drop_prob)
        if isinstance(x, Irreps):
            return Irreps(x.lines * mask, x.pairs * mask[..., None, None])
        return x * mask


class SteerableAttention(nn.Module):
    """Multi-head self-attention of ``(planes, B, N, c)`` (octic, Eq. 7).

    Queries and keys of one orthogonal representation have invariant inner products, so the
    attention is an ordinary one: a head takes its share of every plane, side by side as one vector.
    A plane's 3c outputs of `qkv` are queries, keys and values, each of H heads of ``d = c / H``
    channels; only the first plane's have a bias. Arguments are those of timm's attention, `dim` is
    C, channels of all planes together.

    Raises:
        VitrailError: the heads cannot share every plane equally.
    """

    planes: int
    linear_layer: type[Any]
    drop_layer: type[Any]

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
            raise VitrailError(
                f"{num_heads} heads cannot share {dim} channels of {self.planes} planes; "
                f"give a multiple of {self.planes * num_heads} channels"
            )
        self.num_heads = num_heads
        self.qkv = self.linear_layer(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = self.linear_layer(dim, dim)
        self.proj_drop = self.drop_layer(proj_drop)

    def forward(self, x: Any) -> Any:
        """Attend within each image of ``(planes, B, N, c)``."""
        q, k, v = self.split_heads(self.qkv(x)).unbind()
        dropout = self.attn_drop.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.proj_drop(self.proj(self.merge_heads(y)))

    def split_heads(self, x: Any) -> Tensor:
        """Split off heads: ``(planes, B, N, 3 H d)`` to ``(3, B, H, N, planes d)``."""
        return x.unflatten(3, (3, self.num_heads, -1)).permute(3, 1, 4, 2, 0, 5).flatten(4)

    def merge_heads(self, y: Tensor) -> Any:
        """Merge heads: ``(B, H, N, planes d)`` to ``(planes, B, N, H d)``."""
        return y.unflatten(3, (self.planes, -1)).permute(3, 0, 2, 1, 4).flatten(3)


class OcticAttention(OcticLayer, SteerableAttention):
    """Equivariant self-attention of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    The published code gives head h the columns 2hd to 2(h+1)d of [copy 1 | copy 2], which is the
    same layer with E's columns in another order: its column (h, k, j) is (k, h, j) here.
    """

    planes = 8
    linear_layer = OcticLinear
    drop_layer = OcticDropout
    irreps = SteerableAttention.forward

    def split_heads(self, x: Irreps) -> Tensor:
        """Split off heads, ``(3, B, H, N, 8 d)``; a head has its lines in front."""
        lines = _words(x.lines.unflatten(3, (3, self.num_heads, -1))).permute(3, 1, 4, 2, 0, 5)
        pairs = x.pairs.flatten(2, 3).unflatten(3, (3, self.num_heads, -1))
        pairs = _words(pairs).permute(3, 0, 4, 1, 2, 5)
        planes = [lines, pairs]
        if not torch.compiler.is_compiling():  # one by one, eager torch copies them faster
            planes = [plane for four in planes for plane in four.split(1, 4)]
        return _numbers(torch.cat(planes, 4), x.lines.dtype).flatten(4)

    def merge_heads(self, y: Tensor) -> Irreps:
        """Merge heads ``(B, H, N, 8 d)``."""
        planes = _words(y.transpose(1, 2).contiguous().unflatten(3, (8, -1)))  # (B, N, H, 8, d)
        lines = planes[:, :, :, :4].permute(3, 0, 1, 2, 4).contiguous()
        pairs = planes[:, :, :, 4:].transpose(2, 3).contiguous().unflatten(2, (2, 2))
        return Irreps(_numbers(lines, y.dtype).flatten(3), _numbers(pairs, y.dtype).flatten(4))


def _words(x: Tensor) -> Tensor:
    """View the last axis as numbers of 16 bytes, which are copied faster than their parts."""
    plain = torch.is_grad_enabled() or taken_apart()
    whole = x.shape[-1] * x.element_size() % 16 == 0
    return x.view(torch.complex128) if whole and not plain else x


def _numbers(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Undo `_words`."""
    return x if x.dtype == dtype else x.view(dtype)


class SteerableMlp(nn.Module):
    """MLP of ``(planes, B, N, c)``: two of the group's linear layers about its GELU.

    Dropout follows the activation and the output.

    Raises:
        VitrailError: the planes cannot share `in_features`, C, or `hidden_features`.
    """

    linear_layer: type[Any]
    act_layer: type[Any]
    drop_layer: type[Any]

    def __init__(self, in_features: int, hidden_features: int, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = self.linear_layer(in_features, hidden_features)
        self.act = self.act_layer()
        self.drop1 = self.drop_layer(drop)
        self.fc2 = self.linear_layer(hidden_features, in_features)
        self.drop2 = self.drop_layer(drop)

    def forward(self, x: Any) -> Any:
        """Apply it to every token."""
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class OcticMlp(OcticLayer, SteerableMlp):
    """Equivariant MLP of ``(8, B, N, c)``."""

    linear_layer = OcticLinear
    act_layer = OcticGELU
    drop_layer = OcticDropout
    irreps = SteerableMlp.forward


def _sum(x: Any, y: Any) -> Any:
    return x + y


class SteerableBlock(nn.Module):
    """Pre-norm transformer block of ``(planes, B, N, c)`` (octic, Eq. 9, Fig. 3).

    Its parts and arguments are timm's: `dim` is C, channels of all planes together, `proj_drop`
    acts in the MLP as well, and without `init_values` there is no layer scale.

    Raises:
        VitrailError: the channels do not split into planes and heads.
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

    add: Callable[[Any, Any], Any] = staticmethod(_sum)

    def forward(self, x: Any) -> Any:
        """Apply it to ``(planes, B, N, c)``."""
        x = self.add(x, self.drop_path1(self.ls1(self.attn(self.norm1(x)))))
        return self.add(x, self.drop_path2(self.ls2(self.mlp(self.norm2(x)))))


class OcticBlock(OcticLayer, SteerableBlock):
    """Octic transformer block, of ``(8, B, N, c)``."""

    irreps = SteerableBlock.forward
    add = staticmethod(Irreps.plus)

    attn_layer = OcticAttention
    mlp_layer = OcticMlp
    norm_layer = OcticLayerNorm
    scale_layer = OcticLayerScale


# Of A1, A2, B1, B2: the factors of a quarter turn and of a mirroring.
_TURN = (1, 1, -1, -1)
_MIRROR = (1, -1, 1, -1)


def unfold_quarters(quarters: Tensor) -> Tensor:
    """Unfold square grids that transform like the irreps from one free quarter each.

    The group's eight images of the top-left quarter fill the square. A plane of A1 to B2 has a
    quarter of its own, the two rows of a copy of E share one.

    Args:
        quarters: ``(6, ..., q, q)`` of A1, A2, B1, B2 and E's two copies.

    Returns:
        ``(8, ..., 2q, 2q)``: plane i is what the group turns into its isotypic matrix's row i.
    """
    lines = map(_unfold_line, quarters[:4], _TURN, _MIRROR)
    pairs = [row for quarter in quarters[4:] for row in _unfold_pair(quarter)]
    return torch.stack([*lines, *pairs])


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

    A subclass makes `filters`, ``(planes, c, I, p, p)``, of their free part, `weight`. `grid_size`
    counts the patches (down, across) of an image of the usual size.

    Args:
        img_size: side of the usual image.
        patch_size: p, even.
        shape: of `weight`.
        fan_in: of a filter, for torch's initial values of a convolution.

    Raises:
        VitrailError: `patch_size` is odd.
    """

    filters: Callable[[], Tensor]

    def __init__(self, img_size: int, patch_size: int, shape: tuple[int, ...], fan_in: int) -> None:
        super().__init__()
        if patch_size % 2:
            raise VitrailError(f"patches have {patch_size} pixels; give an even patch_size")
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (img_size // patch_size, img_size // patch_size)
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(shape[1]).uniform_(-bound, bound))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the weight as that of a convolution, which may be channels-last in memory."""

        def apply(x: Tensor) -> Tensor:
            return fn(x.flatten(0, 1)).unflatten(0, x.shape[:2]) if x.ndim == 5 else fn(x)

        return super()._apply(apply, recurse)

    def dynamic_feat_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        """Count the patches (down, across) of an image of (height, width) pixels."""
        return img_size[0] // self.patch_size[0], img_size[1] // self.patch_size[1]

    def set_input_size(self, img_size: tuple[int, int]) -> None:
        """Change the size of the usual image."""
        self.grid_size = self.dynamic_feat_size(img_size)

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

    Its initial weights are those of a convolution by one quarter: `weight` is
    ``(6, c, I, p/2, p/2)`` of A1, A2, B1, B2 and E's two copies, `bias` ``(c)`` of A1.

    Raises:
        VitrailError: `patch_size` is odd, or `embed_dim` is no multiple of 8.
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

    `weight` is the free part of each plane's `grid`, (G, G); a subclass says how to `unfold` it to
    ``(planes, c, G, G)`` and to `fold` that again.

    Raises:
        VitrailError: `grid`, G, is odd.
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
            VitrailError: a side of `grid` is odd.
        """
        planes = self.unfold(self.weight)
        if grid is not None and grid != self.grid:
            require_even(grid)
            planes = _resized(planes, grid)
        return planes.flatten(2).mT.unsqueeze(1)

    def resampled(self, weight: Tensor, grid: int) -> Tensor:
        """Make of the `weight` of any grid that of `grid` x `grid` tokens, with the same encoding.

        Raises:
            VitrailError: `grid` is odd.
        """
        require_even((grid, grid))
        return self.fold(_resized(self.unfold(weight), (grid, grid)))

    def set_grid(self, grid: int) -> None:
        """Change the grid of the weights; errors as `resampled`."""
        if (grid, grid) != self.grid:
            self._set_weight(self.resampled(self.weight.detach(), grid))
            self.grid = (grid, grid)

    def table(self) -> Tensor:
        """Return the encoding as a dense table ``(1, N, C)``, channels plane by plane."""
        return to_channels(self())

    def set_table(self, table: Tensor) -> None:
        """Take the weights that make a dense table ``(1, N, C)`` of the same symmetry and grid."""
        planes = from_channels(table, len(self.unfold(self.weight)))
        self._set_weight(self.fold(planes.squeeze(1).mT.unflatten(2, self.grid)))

    def _set_weight(self, weight: Tensor) -> None:
        self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)


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

    `weight` is ``(6, c, G/2, G/2)`` of A1, A2, B1, B2 and E's two copies.

    Raises:
        VitrailError: `grid`, G, is odd, or eight planes cannot share `dim`, C.
    """

    unfold = staticmethod(unfold_quarters)
    fold = staticmethod(fold_quarters)

    def __init__(self, grid: int, dim: int) -> None:
        super().__init__(grid, (6, channels_of_plane(dim), grid // 2, grid // 2))


def require_even(grid: tuple[int, int]) -> None:
    """Raise a VitrailError if a grid of tokens has a middle row or column."""
    if grid[0] % 2 or grid[1] % 2:
        raise VitrailError(
            f"a grid of {grid[0]} x {grid[1]} patches has an odd side; "
            "give images of an even number of patches"
        )
