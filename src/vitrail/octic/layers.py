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
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from vitrail.errors import VitrailError, did_you_mean
from vitrail.octic.group import (
    FOURIER,
    INVERSE_FOURIER,
    SCALE,
    fourier,
    inverse_fourier,
)


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
