"""The octic layers (octic, Sec. 3.3), each in a few lines on features ``(8, B, N, c)``.

In a whole small model: examples/octic.py.

**The group** D8 is made of a quarter turn r and a mirroring m. Its irreducible representations are
four of dimension 1 (A1, A2, B1, B2) and one of dimension 2, E (octic, Eq. 1)::

          A1    A2    B1    B2    E
    r      1     1    -1    -1    [[0, -1], [1, 0]]
    m      1    -1     1    -1    [[-1, 0], [0, 1]]

The regular representation permutes eight numbers y, one for each element (octic, Eq. 3-4). In the
isotypic basis it is the sum of all irreps, E twice, along the diagonal of a matrix (octic, Eq. 2,
Eq. 5): ``regular(g) = INVERSE_FOURIER @ isotypic(g) @ FOURIER``. The Fourier transform between the
two is orthogonal (octic, Eq. 11). `group` computes these matrices.

**The layout.** C channels are eight *planes*, the slices ``x[0]`` to ``x[7]``, of c = C / 8
channels each: the isotypic coordinates of c vectors y, for N tokens of B images::

    plane    0     1     2     3     4       5       6       7
    irrep    A1    A2    B1    B2    E, copy 1       E, copy 2
                                     row 0   row 1   row 0   row 1

The group multiplies the planes by `isotypic` and permutes the tokens (octic, Eq. 6, `group.act`).

**The layers** commute with any permutation of the tokens and with `isotypic` (octic, Eq. 7-8):

- By Schur's lemma a linear map takes each irrep to itself. Planes 0 to 3 have a matrix each; the
  two rows of E (row 0 is planes 4 and 6, row 1 planes 5 and 7), of 2c columns [copy 1 | copy 2],
  share one (`OcticLinear`). Weights are kept by irrep.
- The group leaves only A1 as it is, so only plane 0 can have a bias.
- A pointwise function commutes with permutations, so it acts on y (`OcticGELU`).
- Orthogonal matrices change no inner product, so no norm (`OcticLayerNorm`) and no score of
  attention (`SteerableAttention`).

Here nothing is done for speed. `fast_block` computes the same function faster, and models run it;
tests compare the two. `embeddings` has what comes before the blocks (Sec. 3.3.1, Eq. 10),
`invariants` what comes after them (App. D, Eq. 12-17). `Steerable*` are what an octic layer has in
common with a flip-equivariant one (`flip`), on features ``(planes, B, N, c)``. Initial values and
names of parameters are those of timm's ViT, where it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError, did_you_mean
from vitrail.octic.group import SCALE, SIGNS, on_planes


def channels_of_plane(features: int, planes: int = 8) -> int:
    """Return how many channels a plane has; raises VitrailError if some are left over."""
    if features % planes:
        raise VitrailError(
            f"{planes} planes cannot share {features} channels; give a multiple of {planes}"
        )
    return features // planes


def pad_to_a1(x: Tensor, planes: int) -> Tensor:
    """Put ``(...)`` into plane 0 (A1) of ``(planes, ...)``; the other planes are zeros."""
    return functional.pad(x[None], (*[0, 0] * x.ndim, 0, planes - 1))


def per_plane(x: Tensor) -> Tensor:
    """Repeat parameters kept by irrep, ``(6, ...)``, for the eight planes: ``(8, ...)``.

    The six are those of A1, A2, B1, B2 and E's two copies; both rows of a copy share one.
    """
    return torch.cat([x[:4], x[4:].repeat_interleave(2, dim=0)])


class OcticLinear(nn.Module):
    """Equivariant linear layer, ``(8, B, N, c)`` to ``(8, B, N, c')``: each irrep to itself.

    Source: octic, Eq. 8, Sec. 3.3.2.

    It takes 12 c c' multiply-adds for a token, where a dense layer takes 64. `weight` is
    ``(4, c', c)`` of A1, A2, B1, B2, `weight_e` ``(2c', 2c)`` of E, whose rows and columns are
    [copy 1 | copy 2]; both start truncated normal (std 0.02), as the paper's. `bias` is ``(c')`` of
    A1, zero at first, or None.

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

    def forward(self, x: Tensor) -> Tensor:
        """Multiply A1, A2, B1 and B2 by a matrix each, and both rows of E by one."""
        lines = x[:4].flatten(1, 2)  # (4, B N, c)
        rows = torch.cat([x[4:6], x[6:8]], dim=-1)  # (2, B, N, 2c)
        if self.bias is None:
            lines = torch.bmm(lines, self.weight.mT)
        else:
            lines = torch.baddbmm(pad_to_a1(self.bias[None], 4), lines, self.weight.mT)
        rows = functional.linear(rows, self.weight_e)
        return torch.cat([lines.unflatten(1, x.shape[1:3]), *rows.chunk(2, dim=-1)])

    def extra_repr(self) -> str:
        """Show the sizes, as `nn.Linear` does."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


NormConvention = Literal["total", "published"]
E_WEIGHT = {"total": 1.0, "published": 1 / 4}
"""The weight of the variance of E in a layer norm, by convention."""


class OcticLayerNorm(nn.Module):
    """Equivariant layer norm of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    A mean may only be removed within an irrep: over the channels of A1, A2, B1 and B2, and over the
    2c columns of each row of E. One scalar divides all, the norm over all irreps, which the group
    does not change.

    `weight` is ``(6, c)`` of A1, A2, B1, B2 and E's two copies, `bias` ``(c)`` of A1.

    Args:
        dim: C, channels of all planes together.
        eps: added to the sum of the planes' variances.
        convention: "total" divides by the norm over all irreps, as the paper's text does;
            "published" gives E a quarter of that weight, as the published code does.

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

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each token by itself, in float32 at least."""
        dtype = x.dtype
        if dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        means = x.mean(-1, keepdim=True)
        of_rows = (means[4:6] + means[6:8]) / 2  # both copies of E
        x = x - torch.cat([means[:4], of_rows, of_rows])
        variances = torch.linalg.vector_norm(x, dim=-1).square() / x.shape[-1]
        variance = variances[:4].sum(0) + E_WEIGHT[self.convention] * variances[4:].sum(0)
        # Divided by 8, so that a channel's variance becomes one, as in a dense layer norm.
        scale = ((variance + self.eps) / 8).rsqrt().unsqueeze(-1)
        weight, bias = per_plane(self.weight)[:, None, None], pad_to_a1(self.bias, 8)
        return torch.addcmul(bias[:, None, None], x * scale, weight).to(dtype)

    def operations(self, x: Tensor) -> int:
        """Count 4 operations an entry (mean, difference, quotient, scale), and A1's bias."""
        return 33 * x.numel() // 8

    def extra_repr(self) -> str:
        """Show what the constructor was given."""
        return f"{8 * self.bias.numel()}, eps={self.eps}, convention={self.convention!r}"


class OcticLayerScale(nn.Module):
    """Equivariant layer scale of ``(8, B, N, c)``; `gamma` is ``(6, c)``, as a norm's weight.

    Raises:
        VitrailError: `dim`, C, is no multiple of 8.
    """

    def __init__(self, dim: int, init_values: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((6, channels_of_plane(dim)), float(init_values)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale each channel of each irrep."""
        return x * per_plane(self.gamma)[:, None, None]


class OcticGELU(nn.Module):
    """The exact GELU of ``(8, B, N, c)``, or any ``(8, ...)``, in the regular representation.

    Source: octic, Sec. 3.3.3, App. A.1.

    The buffer `signs`, `group.SIGNS`, is exact in every precision, so that a module may be cast.
    """

    signs: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("signs", torch.empty(SIGNS.shape), persistent=False)
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Fill the buffer that no state dict has, as timm asks for after `Module.to_empty`."""
        self.signs.copy_(SIGNS)

    def forward(self, x: Tensor) -> Tensor:
        """Transform to the regular representation, activate and transform back."""
        inverse_fourier = SCALE * self.signs.to(x)
        y = on_planes(inverse_fourier, x)  # Eq. 11
        return on_planes(inverse_fourier.T, functional.gelu(y))  # and back, by the transpose

    def operations(self, x: Tensor) -> int:
        """Count GELU as 8, and of either fast transform 24 additions and 8 products of 8 planes."""
        return (8 + 2 * 4) * x.numel()


class OcticDropout(nn.Dropout):
    """Dropout of ``(8, B, N, c)`` whose mask the two rows of E share."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries in training, scaling the others up."""
        if not self.training or self.p == 0:
            return x
        return x * per_plane(functional.dropout(x.new_ones(6, *x.shape[1:]), self.p))


class SteerableDropPath(DropPath):
    """Stochastic depth of ``(planes, B, N, c)``: a sample keeps all of its planes or none."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop samples in training, scaling the others up."""
        if not self.training or self.drop_prob == 0:
            return x
        return x * functional.dropout(x.new_ones(x.shape[1], 1, 1), self.drop_prob)


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
                f"{num_heads} heads cannot share {dim} channels of {self.planes} planes; give "
                f"an embed_dim that is a multiple of {self.planes * num_heads}, or another "
                f"num_heads"
            )
        self.num_heads = num_heads
        self.qkv = self.linear_layer(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = self.linear_layer(dim, dim)
        self.proj_drop = self.drop_layer(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each image of ``(planes, B, N, c)``."""
        q, k, v = self.split_heads(self.qkv(x)).unbind()
        dropout = self.attn_drop.p if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        out: Tensor = self.proj_drop(self.proj(self.merge_heads(y)))
        return out

    def split_heads(self, x: Tensor) -> Tensor:
        """Split off heads: ``(planes, B, N, 3 H d)`` to ``(3, B, H, N, planes d)``.

        A head has its d channels of every plane side by side.
        """
        planes = x.unflatten(3, (3, self.num_heads, -1)).permute(0, 3, 1, 4, 2, 5)
        return torch.cat(planes.unbind(), dim=-1)

    def merge_heads(self, y: Tensor) -> Tensor:
        """Merge heads: ``(B, H, N, planes d)`` to ``(planes, B, N, H d)``."""
        return y.unflatten(3, (self.planes, -1)).permute(3, 0, 2, 1, 4).flatten(3)


class OcticAttention(SteerableAttention):
    """Equivariant self-attention of ``(8, B, N, c)`` (octic, Sec. 3.3.3).

    The published code gives head h the columns 2hd to 2(h+1)d of [copy 1 | copy 2], which is the
    same layer with E's columns in another order: its column (h, k, j), of head h, copy k and
    channel j of the head, is (k, h, j) here.
    """

    planes = 8
    linear_layer = OcticLinear
    drop_layer = OcticDropout


class SteerableMlp(nn.Module):
    """MLP of ``(planes, B, N, c)``: two of the group's linear layers with its GELU between them.

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

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to every token."""
        hidden = self.drop1(self.act(self.fc1(x)))
        out: Tensor = self.drop2(self.fc2(hidden))
        return out


class OcticMlp(SteerableMlp):
    """Equivariant MLP of ``(8, B, N, c)``."""

    linear_layer = OcticLinear
    act_layer = OcticGELU
    drop_layer = OcticDropout


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

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the MLP, each of normalised ``(planes, B, N, c)`` (octic, Eq. 9)."""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class OcticBlock(SteerableBlock):
    """Octic transformer block, of ``(8, B, N, c)``."""

    attn_layer = OcticAttention
    mlp_layer = OcticMlp
    norm_layer = OcticLayerNorm
    scale_layer = OcticLayerScale
