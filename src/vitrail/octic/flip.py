"""Flip-equivariant Vision Transformers D2 and H2 (Bökman et al., ICML 2025), the paper's baselines.

https://arxiv.org/abs/2502.05169. The left-right mirroring leaves the even plane of features
``(2, B, N, C / 2)`` as it is and negates the odd one. A linear layer has one matrix for each plane,
so it takes half of a dense layer's multiply-adds. D2 classifies by the even plane alone.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from timm.models import generate_default_cfgs, register_model, register_notrace_module
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import require_known
from vitrail.octic.embeddings import SteerablePatchEmbed, SteerablePositionEmbedding
from vitrail.octic.invariants import Invariant
from vitrail.octic.layers import (
    SteerableAttention,
    SteerableBlock,
    SteerableMlp,
    channels_of_plane,
    pad_to_a1,
)
from vitrail.octic.shapes import CFG, TRAINED, build
from vitrail.octic.vit import SteerableVisionTransformer, checkpoint_filter_fn

FlipFamily = Literal["d2", "h2"]


def unfold_halves(halves: Tensor) -> Tensor:
    """Return an even and an odd grid, ``(2, ..., 2q)``, of given left halves ``(2, ..., q)``."""
    even, odd = halves
    return torch.stack(
        [torch.cat([even, even.flip(-1)], dim=-1), torch.cat([odd, -odd.flip(-1)], dim=-1)]
    )


def left_halves(grids: Tensor) -> Tensor:
    """Return the left halves of grids; the inverse of `unfold_halves`."""
    return grids[..., : grids.shape[-1] // 2].contiguous()


class FlipLinear(nn.Module):
    """Equivariant linear layer, ``(2, B, N, c)`` to ``(2, B, N, c')``.

    Attributes:
        weight: ``(2, c', c)``.
        bias: ``(c')``, added to the even plane only, or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        c, c_out = channels_of_plane(in_features, 2), channels_of_plane(out_features, 2)
        self.weight = nn.Parameter(torch.empty(2, c_out, c))
        self.bias = nn.Parameter(torch.zeros(c_out)) if bias else None
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to every token."""
        planes, weight = x.flatten(1, 2), self.weight.mT
        if self.bias is None:
            y = torch.bmm(planes, weight)
        else:
            y = torch.baddbmm(pad_to_a1(self.bias[None], 2), planes, weight)
        return y.unflatten(1, x.shape[1:3])


@register_notrace_module
class FlipLayerNorm(nn.Module):
    """Equivariant layer norm of ``(2, B, N, c)``: a mean for each plane, one norm for both."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, c = eps, channels_of_plane(dim, 2)
        self.weight, self.bias = nn.Parameter(torch.ones(2, c)), nn.Parameter(torch.zeros(c))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each token by itself."""
        dtype = x.dtype
        if dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        x = x - x.mean(-1, keepdim=True)
        variance = x.square().mean((0, -1), keepdim=True)
        x = x * (variance + self.eps).rsqrt() * self.weight[:, None, None]
        x[0] += self.bias
        return x.to(dtype)

    def operations(self, x: Tensor) -> int:
        """Count 4 operations per entry (mean, difference, quotient, scale), and the even bias."""
        return 9 * x.numel() // 2


class FlipLayerScale(nn.Module):
    """Equivariant layer scale of ``(2, B, N, c)``."""

    def __init__(self, dim: int, init_values: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((2, channels_of_plane(dim, 2)), float(init_values)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale each channel of each plane."""
        return x * self.gamma[:, None, None]


class FlipGELU(nn.Module):
    """The exact GELU in a basis where the mirroring swaps two planes.

    A pointwise function commutes with this swap.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the GELU to ``(2, B, N, c)``."""
        even, odd = x * math.sqrt(1 / 2)
        left, right = functional.gelu(torch.stack([even + odd, even - odd])) * math.sqrt(1 / 2)
        return torch.stack([left + right, left - right])


class FlipAttention(SteerableAttention):
    """Equivariant self-attention of ``(2, B, N, c)``."""

    planes = 2
    linear_layer = FlipLinear
    drop_layer = nn.Dropout


class FlipMlp(SteerableMlp):
    """Equivariant MLP of ``(2, B, N, c)``."""

    linear_layer = FlipLinear
    act_layer = FlipGELU
    drop_layer = nn.Dropout


class FlipBlock(SteerableBlock):
    """Flip-equivariant transformer block, of ``(2, B, N, c)``."""

    attn_layer = FlipAttention
    mlp_layer = FlipMlp
    norm_layer = FlipLayerNorm
    scale_layer = FlipLayerScale


class FlipPatchEmbed(SteerablePatchEmbed):
    """Equivariant patch embedding, ``(B, I, H, W)`` to ``(2, B, N, c)``, of even and odd filters.

    Attributes:
        weight: ``(2, c, I, p, p/2)``, the filters' left halves.
        bias: ``(c)``, added to the even plane only.

    Raises:
        VitrailError: `patch_size` or `embed_dim` is odd.
    """

    def __init__(
        self, img_size: int = 224, patch_size: int = 16, in_chans: int = 3, embed_dim: int = 768
    ) -> None:
        shape = (2, channels_of_plane(embed_dim, 2), in_chans, patch_size, patch_size // 2)
        super().__init__(img_size, patch_size, shape, fan_in=in_chans * patch_size**2)

    def filters(self) -> Tensor:
        """Return the filters of both planes ``(2, c, I, p, p)``."""
        return unfold_halves(self.weight)


class FlipPositionEmbedding(SteerablePositionEmbedding):
    """Equivariant position encoding ``(2, 1, N, c)``, of left halves ``(2, c, G, G/2)``.

    Raises:
        VitrailError: `grid`, G, or `dim`, C, is odd.
    """

    unfold = staticmethod(unfold_halves)
    fold = staticmethod(left_halves)

    def __init__(self, grid: int, dim: int) -> None:
        super().__init__(grid, (2, channels_of_plane(dim, 2), grid, grid // 2))


class EvenPlane(Invariant):
    """The invariant half of the features, ``(2, ..., c)`` to ``(..., c)``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_features = channels_of_plane(dim, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the even plane."""
        return x[0]


class FlipVisionTransformer(SteerableVisionTransformer):
    """D2, whose blocks are all flip-equivariant, or H2, where by default the first half are.

    Arguments and errors are those of `SteerableVisionTransformer`.
    """

    block_layer = FlipBlock
    patch_embed_layer = FlipPatchEmbed
    pos_embed_layer = FlipPositionEmbedding

    def __init__(self, family: FlipFamily = "d2", **kwargs: Any) -> None:
        require_known("family", family, get_args(FlipFamily))
        invariantise = EvenPlane if family == "d2" else None
        super().__init__(equivariant=family == "d2", invariantise=invariantise, **kwargs)


_FLIP = [f"{family}_vit_{shape}_224" for family in get_args(FlipFamily) for shape in TRAINED]
default_cfgs = generate_default_cfgs(dict.fromkeys(_FLIP, CFG))


def _flip(family: FlipFamily, shape: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"{family}_vit_{shape}_224"
    options = {"family": family, "pretrained_filter_fn": checkpoint_filter_fn}
    return build(FlipVisionTransformer, name, shape, pretrained, options, **kwargs)


@register_model
def d2_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D2 of ViT-S/16."""
    return _flip("d2", "small_patch16", pretrained, **kwargs)


@register_model
def d2_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D2 of ViT-B/16."""
    return _flip("d2", "base_patch16", pretrained, **kwargs)


@register_model
def d2_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D2 of ViT-L/16."""
    return _flip("d2", "large_patch16", pretrained, **kwargs)


@register_model
def d2_vit_huge_patch14_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D2 of ViT-H/14."""
    return _flip("d2", "huge_patch14", pretrained, **kwargs)


@register_model
def d2_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """D2 of ViT-H/16."""
    return _flip("d2", "huge_patch16", pretrained, **kwargs)


@register_model
def h2_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H2 of ViT-S/16."""
    return _flip("h2", "small_patch16", pretrained, **kwargs)


@register_model
def h2_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H2 of ViT-B/16."""
    return _flip("h2", "base_patch16", pretrained, **kwargs)


@register_model
def h2_vit_large_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H2 of ViT-L/16."""
    return _flip("h2", "large_patch16", pretrained, **kwargs)


@register_model
def h2_vit_huge_patch14_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H2 of ViT-H/14."""
    return _flip("h2", "huge_patch14", pretrained, **kwargs)


@register_model
def h2_vit_huge_patch16_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """H2 of ViT-H/16."""
    return _flip("h2", "huge_patch16", pretrained, **kwargs)
