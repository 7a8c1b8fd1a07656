"""Octic multi-head self-attention (Sec. 3.3).

Queries and keys of one orthogonal representation have invariant inner products, so the attention
is an ordinary one: a head takes its share of every plane, side by side as one vector.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError
from vitrine.octic.dropout import OcticDropout
from vitrine.octic.linear import OcticLinear


class OcticAttention(nn.Module):
    """Equivariant self-attention of ``(8, B, N, c)``.

    A plane's 3c outputs of `qkv` are queries, keys and values, each of H heads of ``d = c / H``
    channels. The published code gives head h the columns 2hd to 2(h+1)d of [copy 1 | copy 2], which
    is the same layer with E's columns in another order: its column (h, k, j) is (k, h, j) here.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        """Build it with random weights.

        Args:
            dim: C, channels of all planes together.
            num_heads: H; a head has C / H channels, a multiple of 8.
            qkv_bias: whether A1's queries, keys and values have a bias.
            attn_drop: dropout of the attention.
            proj_drop: dropout of the output.

        Raises:
            VitrineError: the heads cannot share every plane equally.
        """
        super().__init__()
        if dim % (8 * num_heads):
            raise VitrineError(
                f"{num_heads} heads cannot share {dim} octic channels; "
                f"give a multiple of {8 * num_heads} channels"
            )
        self.num_heads = num_heads
        self.qkv = OcticLinear(dim, 3 * dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = OcticLinear(dim, dim)
        self.proj_drop = OcticDropout(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within ``(8, B, N, c)``."""
        qkv = self.qkv(x).unflatten(3, (3, self.num_heads, -1))  # (8, B, N, 3, H, d)
        # The one copy keeps tokens in front: the fastest way to bring a head's planes together.
        q, k, v = qkv.permute(1, 2, 3, 4, 0, 5).flatten(4).permute(2, 0, 3, 1, 4)
        y = self.attend(q, k, v).unflatten(3, (8, -1))  # (B, H, N, 8, d)
        return self.proj_drop(self.proj(y.permute(3, 0, 2, 1, 4).flatten(3)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with heads ``(B, H, N, 8d)``."""
        dropout = self.attn_drop.p if self.training else 0.0
        if q.is_cpu and q.dtype == torch.bfloat16:  # takes half the time of torch's own there
            scores = (q @ k.mT) * q.shape[-1] ** -0.5
            return functional.dropout(scores.softmax(-1), dropout) @ v
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
