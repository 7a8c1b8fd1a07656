"""Equivariant transformer block (Fig. 3): the pre-norm block of a ViT, of a group's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vitrine.octic.attention import OcticAttention
from vitrine.octic.dropout import OcticDropPath
from vitrine.octic.mlp import OcticMlp
from vitrine.octic.norm import OcticLayerNorm, OcticLayerScale


class SteerableBlock(nn.Module):
    """Transformer block of ``(planes, B, N, c)``, its parts named as timm names them.

    Attributes:
        attn_layer: class of the group's attention.
        mlp_layer: of its MLP.
        norm_layer: of its layer norm.
        scale_layer: of its layer scale.
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
        """Build it with random weights.

        Args:
            dim: C, channels of all planes together.
            num_heads: heads of the attention.
            mlp_ratio: hidden channels of the MLP over C.
            qkv_bias: whether the first plane's queries, keys and values have a bias.
            proj_drop: dropout of the branches and in the MLP.
            attn_drop: dropout of the attention.
            init_values: of the layer scale; without it there is none.
            drop_path: how likely a sample loses a branch in training.
            norm_layer: makes a layer norm of C channels; by default that of the class.

        Raises:
            VitrineError: the channels do not split into planes and heads.
        """
        super().__init__()
        norm_layer = norm_layer or self.norm_layer

        def layer_scale() -> nn.Module:
            return self.scale_layer(dim, init_values) if init_values else nn.Identity()

        self.norm1 = norm_layer(dim)
        self.attn = self.attn_layer(dim, num_heads, qkv_bias, attn_drop, proj_drop)
        self.ls1 = layer_scale()
        self.drop_path1 = OcticDropPath(drop_path)
        self.norm2 = norm_layer(dim)
        self.mlp = self.mlp_layer(dim, int(dim * mlp_ratio), proj_drop)
        self.ls2 = layer_scale()
        self.drop_path2 = OcticDropPath(drop_path)

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
