"""Octic multi-head self-attention (Sec. 3.3).

Queries and keys of one orthogonal representation have invariant inner products, so the attention
is an ordinary one: a head takes its share of every plane, side by side as one vector.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrine.errors import VitrineError
from vitrine.octic.dropout import OcticDropout
from vitrine.octic.linear import OcticLinear


@torch.library.custom_op("vitrine::octic_split_heads", mutates_args=())
def split_heads(x: Tensor, parts: int, num_heads: int) -> Tensor:
    """Bring the planes of each head together: ``(8, B, N, parts H d)`` to ``(parts, B, H, N, 8d)``.

    It and its inverse are operators of torch's own kind because `torch.compile` would otherwise
    copy element by element, on a CPU.
    """
    words = _words(x.unflatten(3, (parts, num_heads, -1)))
    return words.permute(3, 1, 4, 2, 0, 5).contiguous().view(x.dtype).flatten(4)


@torch.library.custom_op("vitrine::octic_merge_heads", mutates_args=())
def merge_heads(y: Tensor) -> Tensor:
    """Take heads apart into planes: ``(parts, B, H, N, 8d)`` to ``(8, B, N, parts H d)``."""
    words = _words(y.contiguous().unflatten(4, (8, -1)))
    return words.permute(4, 1, 3, 0, 2, 5).contiguous().view(y.dtype).flatten(3)


def _words(x: Tensor) -> Tensor:
    """View the last axis as numbers of 16 bytes, which are copied faster than their parts."""
    return x.view(torch.complex128) if x.shape[-1] * x.element_size() % 16 == 0 else x


@split_heads.register_fake
def _(x: Tensor, parts: int, num_heads: int) -> Tensor:
    _, batch, tokens, channels = x.shape
    return x.new_empty(parts, batch, num_heads, tokens, 8 * channels // (parts * num_heads))


@merge_heads.register_fake
def _(y: Tensor) -> Tensor:
    parts, batch, num_heads, tokens, channels = y.shape
    return y.new_empty(8, batch, tokens, parts * num_heads * channels // 8)


def _note_heads(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.parts, ctx.num_heads = inputs[0].shape[0], inputs[0].shape[2]


# Each only moves numbers, so the other is its gradient.
split_heads.register_autograd(lambda ctx, grad: (merge_heads(grad), None, None))
merge_heads.register_autograd(
    lambda ctx, grad: split_heads(grad.contiguous(), ctx.parts, ctx.num_heads),
    setup_context=_note_heads,
)


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
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads).unbind()
        return self.proj_drop(self.proj(merge_heads(self.attend(q, k, v)[None])))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with heads ``(B, H, N, 8d)``."""
        dropout = self.attn_drop.p if self.training else 0.0
        if q.is_cpu and q.dtype == torch.bfloat16:  # takes half the time of torch's own there
            scores = q @ k.mT
            weights = ((scores - scores.amax(-1, keepdim=True)) * q.shape[-1] ** -0.5).exp()
            return functional.dropout(weights, dropout) @ v / weights.sum(-1, keepdim=True)
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
