"""Octic transformer block (Fig. 3): the pre-norm block of a ViT, each layer made equivariant."""

from __future__ import annotations

from torch import Tensor, nn

from vitrine.octic.attention import OcticAttention
from vitrine.octic.dropout import OcticDropPath
from vitrine.octic.mlp import OcticMlp
from vitrine.octic.norm import NormConvention, OcticLayerNorm, OcticLayerScale


class OcticBlock(nn.Module):
    """Equivariant transformer block of ``(8, B, N, c)``, its parts named as timm names them."""

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
        norm_eps: float = 1e-6,
        norm: NormConvention = "total",
    ) -> None:
        """Build it with random weights.

        Args:
            dim: C, channels of all planes together.
            num_heads: heads of the attention.
            mlp_ratio: hidden channels of the MLP over C.
            qkv_bias: whether A1's queries, keys and values have a bias.
            proj_drop: dropout of the branches and in the MLP.
            attn_drop: dropout of the attention.
            init_values: of the layer scale; without it there is none.
            drop_path: how likely a sample loses a branch in training.
            norm_eps: of the layer norms.
            norm: their convention, see `OcticLayerNorm`.

        Raises:
            VitrineError: the channels do not split into planes and heads.
        """
        super().__init__()

        def layer_scale() -> nn.Module:
            return OcticLayerScale(dim, init_values) if init_values else nn.Identity()

        self.norm1 = OcticLayerNorm(dim, norm_eps, norm)
        self.attn = OcticAttention(dim, num_heads, qkv_bias, attn_drop, proj_drop)
        self.ls1 = layer_scale()
        self.drop_path1 = OcticDropPath(drop_path)
        self.norm2 = OcticLayerNorm(dim, norm_eps, norm)
        self.mlp = OcticMlp(dim, int(dim * mlp_ratio), proj_drop)
        self.ls2 = layer_scale()
        self.drop_path2 = OcticDropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to ``(8, B, N, c)``."""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
