"""A-CvT in one file: a plain CvT, made truly shift-invariant (shift, Sec. 4).

CvT's embeddings, keys and values are strided convolutions, each with s x s grids to choose from.
The paper takes the grid of largest energy: it shifts the input by m*, where this grid begins, and
the plain convolution does the rest. CvT has neither windows nor a position embedding, so it needs
neither A-WSA nor A-RPE.

timm has no CvT; the plain CvT is vitrail's, whose parameters and MLP are used.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vitrail.shift.cvt import ConvAttention, ConvProjection, CvT

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


def linear(projection: ConvProjection, prefix: Tensor, x: Tensor) -> Tensor:
    """Normalise convolved tokens (B, H, W, C), put P class tokens in front, project them all."""
    x = projection.norm(x.movedim(-1, 1)).flatten(2).mT
    return projection.linear(torch.cat([prefix, x], dim=1))  # Eq. 8


def attend(attention: ConvAttention, x: Tensor, size: torch.Size) -> Tensor:
    """Attend among P class tokens and a map (H, W) of tokens, (B, P + H W, C)."""
    prefix, x = x[:, : -size.numel()], x[:, -size.numel() :].unflatten(1, size)
    query, key, value = attention.query, attention.key, attention.value
    sparse = shift(x, strongest_grid(partial(convolve, key.conv), x, key.conv.stride[0]))  # Eq. 23
    pairs = ((query, x), (key, sparse), (value, sparse))  # keys and values of the same tokens
    parts = (linear(part, prefix, convolve(part.conv, grid)) for part, grid in pairs)
    q, k, v = (part.unflatten(2, (attention.heads, -1)).transpose(1, 2) for part in parts)
    y = (q @ k.mT * attention.scale).softmax(-1) @ v  # Eq. 7, with CvT's own scale
    return attention.proj(y.transpose(1, 2).flatten(2))


class ACvT(nn.Module):
    """A shift-invariant copy of a plain CvT, with its weights."""

    def __init__(self, cvt: CvT) -> None:
        super().__init__()
        self.cvt = copy.deepcopy(cvt)
        self.train(cvt.training)
        for module in self.cvt.modules():
            if isinstance(module, nn.Conv2d):
                module.padding_mode = "circular"  # Sec. 5.1

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes) of images (B, C, H, W)."""
        x = images.movedim(1, -1)
        for stage in self.cvt.stages:
            embed = partial(convolve, stage.embed.conv)
            m = strongest_grid(embed, x, stage.embed.conv.stride[0])
            x = stage.embed.norm(embed(shift(x, m)))  # A-token: Eq. 13
            size, x = x.shape[1:3], x.flatten(1, 2)
            if stage.cls_token is not None:
                x = torch.cat([stage.cls_token.expand(len(x), -1, -1), x], dim=1)
            for block in stage.blocks:
                x = x + attend(block.attn, block.norm1(x), size)
                x = x + block.mlp(block.norm2(x))
            tokens, x = x, x[:, -size.numel() :].unflatten(1, size)
        return self.cvt.forward_head(self.cvt.norm(tokens))  # Eq. 3


if __name__ == "__main__":
    torch.manual_seed(0)
    size = {"img_size": 48, "embed_dims": (16, 16, 32), "depths": (1, 1, 2), "num_heads": (1, 1, 2)}
    cvt = CvT(**size).double().eval()
    objects, photo = torch.zeros(1, 3, 48, 48), torch.randn(3, 9, 9)
    objects[..., 3:12, 5:14] = objects[..., 30:39, 21:30] = photo
    stripes = torch.randn(1, 3, 48, 4).tile(1, 1, 1, 12)
    kinds = {"noise": torch.randn(1, 3, 48, 48), "equal objects": objects, "stripes": stripes}
    for name, model in {"CvT": cvt, "A-CvT": ACvT(cvt)}.items():
        for kind, image in kinds.items():
            shifted = image.roll((5, 17), (2, 3)).double()
            with torch.inference_mode():
                change = (model(shifted) - model(image.double())).abs().max().item()
            print(f"{name:5} shifted by (5, 17), {kind}: the logits change by {change:.1e}")
