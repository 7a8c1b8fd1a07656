"""A-MViTv2 in one file: timm's plain MViTv2, made truly shift-invariant (shift, Sec. 4).

MViTv2's patches, queries, keys and values are strided convolutions, each with s x s grids to choose
from. For patches the paper takes the grid of largest energy: it shifts the input by m*, where this
grid begins, and the plain convolution does the rest. It does not say how queries and keys choose;
here they do as patch merging (A-PMerge). The position embedding scores the distance between a query
and a key along each axis. These distances become circular (A-RPE), so that they do not change when
tokens wrap around the border. MViTv2 has no windows.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from torch import Tensor, nn
from torch.nn import functional

TIE = 1e-12  # scores that differ relatively by at most this are equal, in float64 (vitrail: 1e-6)


def shift(x: Tensor, m: Tensor) -> Tensor:
    """Return S^m x of (B, H, W, C), each sample with its own m of (B, 2)."""
    pairs = zip(x, m.tolist(), strict=True)
    return torch.stack([sample.roll((-i, -j), (0, 1)) for sample, (i, j) in pairs])  # Eq. 1


def every(f: Callable[[Tensor], Tensor], x: Tensor, s: int) -> Tensor:
    """Return f(S^m x) for all m below (s, s): (B, s s, ...)."""
    shifts = [(i, j) for i in range(s) for j in range(s)]  # others repeat these (Lemma 1, Eq. 15)
    return torch.stack([f(x.roll((-i, -j), (1, 2))) for i, j in shifts], dim=1)  # Eq. 14's X^(m)


def tie_break_scores(x: Tensor) -> Tensor:
    """Correlate (..., H, W) with a template that has no period and no symmetry, at every place."""
    sides = enumerate(x.shape[-2:], start=1)
    chirps = [1 + (k * torch.arange(n, dtype=x.dtype).square()).cos() for k, n in sides]
    rows, columns = (torch.stack([c.roll(i) for i in range(len(c))]) for c in chirps)
    return rows @ x @ columns.mT


def strongest(scores: Tensor, places: Tensor, s: int) -> Tensor:
    """Return m* (B, 2), where the grid with the largest of scores (B, s s) begins.

    The paper has no rule for grids of equal scores. Here the largest of places (B, s s, H/s, W/s)
    decides, and also which token of the grid comes first: m* modulo s is the paper's m*, and the
    rest selects the first token.
    """
    equal = scores >= (1 - TIE) * scores.amax(1, keepdim=True)
    ranks = places.where(equal[:, :, None, None], -torch.inf)
    m, *cell = torch.unravel_index(ranks.flatten(1).argmax(1), ranks.shape[1:])  # Eq. 14, Eq. 20
    return torch.stack([m // s, m % s], 1) + s * torch.stack(cell, 1)


def strongest_grid(f: Callable[[Tensor], Tensor], x: Tensor, s: int) -> Tensor:
    """Return m* (B, 2) of the grid for which f, of stride s, gives the tokens of largest energy."""
    energies = every(lambda shifted: f(shifted).square().sum(-1), x, s)  # of X^(m) E + b
    return strongest(
        energies.sum((2, 3)), tie_break_scores(energies), s
    )  # Eq. 14, F: squared l2 norm


def convolve(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve tokens (B, H, W, C)."""
    return conv(x.movedim(-1, 1)).movedim(1, -1)  # Eq. 5-6, Eq. 21-22


def pool(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve each head of tokens (B, H, W, heads d) by the same convolution of d channels."""
    heads = x.unflatten(-1, (-1, conv.in_channels)).unbind(3)
    return torch.cat([convolve(conv, head) for head in heads], dim=-1)


def fold(table: Tensor, key_step: int) -> Tensor:
    """Return the rows of the M circular distances from timm's table of 2M - 1 linear ones.

    A circular distance is two linear ones, d and d - M. It takes the embedding of the smaller one,
    or the mean of both if they are equally large. Distance 0 is at timm's row M - key_step.
    """
    period = (len(table) + 1) // 2
    d = torch.arange(period)
    ahead, behind = (torch.where(far, d - period, d) for far in (2 * d > period, 2 * d >= period))
    return (table[ahead + period - key_step] + table[behind + period - key_step]) / 2


def embeddings(
    attention: Any, axis: int, sides: tuple[int, int, int], m_q: Tensor, m_k: Tensor
) -> Tensor:
    """Return the embedding of each query and key (B, Q, K, d) along an axis of N tokens.

    `sides` are N, Q and K; m_q and m_k (B, 2) say where the grids of queries and keys begin.
    """
    tokens, queries, keys = sides
    stride_q, stride_k = tokens // queries, tokens // keys
    step = min(stride_q, stride_k)  # the table has a row for each multiple of it
    table = fold((attention.rel_pos_h, attention.rel_pos_w)[axis], stride_k // step)
    p_q = m_q[:, axis, None] + stride_q * torch.arange(queries)
    p_k = m_k[:, axis, None] + stride_k * torch.arange(keys)
    return table[(p_q[:, :, None] - p_k[:, None, :]) % tokens // step]  # A-RPE: Eq. 24


def attend_on_grids(attention: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Attend among tokens (B, H, W, C); return new tokens, and m* (B, 2) of the queries."""
    q, k, v = attention.qkv(x).chunk(3, dim=-1)  # Eq. 8
    m_q, m_k = (  # as in Eq. 23; keys and values begin at the same token
        strongest_grid(partial(pool, conv), part, conv.stride[0])
        for conv, part in ((attention.pool_q, q), (attention.pool_k, k))
    )
    parts = (
        (attention.pool_q, attention.norm_q, shift(q, m_q)),
        (attention.pool_k, attention.norm_k, shift(k, m_k)),
        (attention.pool_v, attention.norm_v, shift(v, m_k)),
    )
    q, k, v = (
        norm(pool(conv, part).unflatten(-1, (attention.num_heads, -1)))
        for conv, norm, part in parts
    )  # (B, h, w, heads, d)
    rows, columns = (
        embeddings(
            attention, axis, (x.shape[1 + axis], q.shape[1 + axis], k.shape[1 + axis]), m_q, m_k
        )
        for axis in (0, 1)
    )
    # Eq. 11: a row of the table is a vector in MViTv2, whose product with the query is added.
    scores = attention.scale * torch.einsum("byxnd,bijnd->bnyxij", q, k)
    scores = scores + torch.einsum("byxnd,byid->bnyxi", q, rows)[..., None]
    scores = scores + torch.einsum("byxnd,bxjd->bnyxj", q, columns)[..., None, :]
    weights = scores.flatten(-2).softmax(-1).unflatten(-1, k.shape[1:3])
    y = torch.einsum("bnyxij,bijnd->byxnd", weights, v)  # Eq. 7
    return attention.proj((y + q if attention.residual_pooling else y).flatten(-2)), m_q


def apply(block: Any, x: Tensor) -> Tensor:
    """Apply a block of timm's to tokens (B, H, W, C); its skip connection has the queries' grid."""
    normed, project = block.norm1(x), block.shortcut_proj_attn
    skip = x if project is None else project(normed)
    y, m = attend_on_grids(block.attn, normed)
    skip = shift(skip, m)
    if (largest := block.shortcut_pool_attn) is not None:
        padded = functional.pad(skip.movedim(-1, 1), 2 * (*largest.padding,), mode="circular")
        pooled = functional.max_pool2d(padded, largest.kernel_size, largest.stride)
        skip = pooled.movedim(1, -1)
    x = skip + y
    normed, project = block.norm2(x), block.shortcut_proj_mlp
    return (x if project is None else project(normed)) + block.mlp(normed)


class AMViTv2(nn.Module):
    """A shift-invariant copy of timm's MViTv2 without class token, with its weights."""

    def __init__(self, mvit: MultiScaleVit) -> None:
        super().__init__()
        self.mvit = copy.deepcopy(mvit)
        self.train(mvit.training)
        for module in self.mvit.modules():
            if isinstance(module, nn.Conv2d):
                module.padding_mode = "circular"  # Sec. 5.1

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, C, H, W)."""
        conv, x = self.mvit.patch_embed.proj, images.movedim(1, -1)
        token = partial(convolve, conv)
        x = token(shift(x, strongest_grid(token, x, conv.stride[0])))  # A-token: Eq. 13
        for stage in self.mvit.stages:
            for block in stage.blocks:
                x = apply(block, x)
        return self.mvit.forward_head(self.mvit.norm(x.flatten(1, 2)))  # Eq. 3; Eq. 4 as a mean


if __name__ == "__main__":
    torch.manual_seed(0)
    size = {"depths": (1, 2), "embed_dim": (16, 32), "num_heads": (1, 2)}
    strides = {"stride_q": ((1, 1), (2, 2)), "stride_kv": None}
    mvit = MultiScaleVit(MultiScaleVitCfg(**size, **strides), img_size=48).double().eval()
    objects, photo = torch.zeros(1, 3, 48, 48), torch.randn(3, 9, 9)
    objects[..., 3:12, 5:14] = objects[..., 30:39, 21:30] = photo
    stripes = torch.randn(1, 3, 48, 4).tile(1, 1, 1, 12)
    kinds = {"noise": torch.randn(1, 3, 48, 48), "equal objects": objects, "stripes": stripes}
    for name, model in {"MViTv2": mvit, "A-MViTv2": AMViTv2(mvit)}.items():
        for kind, image in kinds.items():
            shifted = image.roll((5, 17), (2, 3)).double()
            with torch.inference_mode():
                change = (model(shifted) - model(image.double())).abs().max().item()
            print(f"{name:8} shifted by (5, 17), {kind}: the logits change by {change:.1e}")
