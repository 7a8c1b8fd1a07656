"""Octic blocks in the authors' layout, whose speed is compared with that of our blocks.

The code is written from the paper's description (octic, Sec. 3.1, 3.3, App. A.1). Features are one
tensor for each irrep: ``(B, N, c)`` for A1, A2, B1 and B2, and ``(B, N, 2, 2c)`` for E, whose two
rows have the columns [copy 1 | copy 2]. A linear layer is one `nn.Linear` for each irrep. All other
layers are pure PyTorch, with the Fourier transforms as additions. The results are those of
`vitrail.octic.layers`, and the names of the weights are those of
`vitrail.octic.checkpoint.to_published`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.octic.checkpoint import to_published
from vitrail.octic.group import SCALE, fourier, from_channels, inverse_fourier, to_channels
from vitrail.octic.vit import OcticVisionTransformer

IRREPS = ("A1", "A2", "B1", "B2", "E")
Features = list[Tensor]


def to_irreps(x: Tensor) -> Features:
    """Convert features ``(8, B, N, c)`` of `vitrail.octic` to tensors of irreps."""
    return irreps_of(list(to_channels(x).chunk(8, dim=-1)))


def from_irreps(xs: Features) -> Tensor:
    """Convert tensors of irreps to features ``(8, B, N, c)``: the inverse of `to_irreps`."""
    return from_channels(torch.cat(planes_of(xs), dim=-1))


def planes_of(xs: Features) -> list[Tensor]:
    """Return the eight planes ``(B, N, c)``; those of E copy by copy."""
    copy_1, copy_2 = xs[4].chunk(2, dim=-1)
    return [*xs[:4], *copy_1.unbind(-2), *copy_2.unbind(-2)]


def irreps_of(planes: list[Tensor]) -> Features:
    """Return the tensors of irreps of eight planes: the inverse of `planes_of`."""
    rows = [torch.cat([planes[4 + row], planes[6 + row]], dim=-1) for row in (0, 1)]
    return [*planes[:4], torch.stack(rows, dim=-2)]


class Linear(nn.Module):
    """Linear layer of `dim` to `dim_out` channels, counted over all irreps."""

    def __init__(self, dim: int, dim_out: int) -> None:
        super().__init__()
        c, c_out = dim // 8, dim_out // 8
        self.lin_A1 = nn.Linear(c, c_out)
        self.lin_A2, self.lin_B1, self.lin_B2 = (nn.Linear(c, c_out, bias=False) for _ in range(3))
        self.lin_E = nn.Linear(2 * c, 2 * c_out, bias=False)

    def forward(self, xs: Features) -> Features:
        """Apply each layer to its irrep."""
        layers = (self.lin_A1, self.lin_A2, self.lin_B1, self.lin_B2, self.lin_E)
        return [layer(x) for layer, x in zip(layers, xs, strict=True)]


class Scale(nn.Module):
    """Scale of each channel; with `bias`, A1 is shifted by `beta`."""

    def __init__(self, dim: int, bias: bool = False) -> None:
        super().__init__()
        for irrep in IRREPS:
            width = dim // 4 if irrep == "E" else dim // 8
            self.register_parameter(f"alpha_{irrep}", nn.Parameter(torch.ones(width)))
        self.beta = nn.Parameter(torch.zeros(dim // 8)) if bias else None

    def forward(self, xs: Features) -> Features:
        """Scale each irrep."""
        alphas = (self.alpha_A1, self.alpha_A2, self.alpha_B1, self.alpha_B2, self.alpha_E)
        ys = [x * alpha for x, alpha in zip(xs, alphas, strict=True)]
        return ys if self.beta is None else [ys[0] + self.beta, *ys[1:]]


class LayerNorm(nn.Module):
    """Subtract the mean within each irrep, and divide by the norm over all irreps (Sec. 3.3.3)."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.scaling, self.eps = Scale(dim, bias=True), eps

    def forward(self, xs: Features) -> Features:
        """Normalise each token, with statistics of float32 at least."""
        dtype = xs[0].dtype
        if dtype == torch.bfloat16:
            xs = [x.float() for x in xs]
        xs = [x - x.mean(-1, keepdim=True) for x in xs]
        squares = [x.square().mean(-1, keepdim=True) for x in xs]
        variance = sum(squares[:4]) + 2 * squares[4].sum(-2)
        factor = ((variance + self.eps) / 8).rsqrt()
        ys = self.scaling([*(x * factor for x in xs[:4]), xs[4] * factor.unsqueeze(-2)])
        return [y.to(dtype) for y in ys]


class Attention(nn.Module):
    """Attention whose heads concatenate neighbouring channels of every irrep (Sec. 3.3.3)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = Linear(dim, 3 * dim), Linear(dim, dim)

    def forward(self, xs: Features) -> Features:
        """Attend within each image."""
        *lines, pairs = (x.unflatten(-1, (3, self.num_heads, -1)) for x in self.qkv(xs))
        heads = torch.cat([*lines, *pairs.unbind(2)], dim=-1)  # (B, N, 3, H, 8d)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind()
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        width = y.shape[-1] // 8
        *lines, row_0, row_1 = y.split([width] * 4 + [2 * width] * 2, dim=-1)
        rows = torch.stack([row_0.flatten(2), row_1.flatten(2)], dim=2)
        return self.proj([*(line.flatten(2) for line in lines), rows])


class Mlp(nn.Module):
    """Two linear layers around a GELU between Fourier transforms (Sec. 3.3.3, App. A.1)."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = Linear(dim, hidden_dim), Linear(hidden_dim, dim)

    def forward(self, xs: Features) -> Features:
        """Apply the MLP to every token."""
        planes = planes_of(self.fc1(xs))
        regular = [functional.gelu(SCALE * plane) for plane in inverse_fourier(planes)]
        return self.fc2(irreps_of([SCALE * plane for plane in fourier(regular)]))


class Block(nn.Module):
    """Pre-norm block with layer scale (Eq. 9)."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: int = 4) -> None:
        super().__init__()
        self.norm1, self.attn, self.gamma_1 = LayerNorm(dim), Attention(dim, num_heads), Scale(dim)
        self.norm2, self.mlp, self.gamma_2 = LayerNorm(dim), Mlp(dim, mlp_ratio * dim), Scale(dim)

    def forward(self, xs: Features) -> Features:
        """Apply the block to tensors of irreps."""
        ys = self.gamma_1(self.attn(self.norm1(xs)))
        xs = [x + y for x, y in zip(xs, ys, strict=True)]
        ys = self.gamma_2(self.mlp(self.norm2(xs)))
        return [x + y for x, y in zip(xs, ys, strict=True)]


class PublishedLayout(nn.Module):
    """A D8 model whose blocks are in the authors' layout, with the weights of `model`.

    The layers before and after the blocks are those of `model` itself.
    """

    def __init__(self, model: OcticVisionTransformer) -> None:
        super().__init__()
        self.rest = model
        dim, heads = model.embed_dim, model.blocks[0].attn.num_heads
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in model.blocks))
        state = to_published(model)
        self.blocks.load_state_dict(
            {
                name.removeprefix("blocks."): value
                for name, value in state.items()
                if name.startswith("blocks.")
            }
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits ``(B, classes)`` of images ``(B, I, H, W)``."""
        x = from_irreps(self.blocks(to_irreps(self.rest.embed(images))))
        return self.rest.forward_head(to_channels(self.rest.norm(x)))
