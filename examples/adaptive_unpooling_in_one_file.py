"""Adaptive unpooling in one file: UperNet's decoder, truly shift-equivariant (shift, Sec. 4).

In a stage of an adaptive encoder, the content of the image decides where the grid of tokens begins.
Token n sits at the pixel offset + stride * n; each m* of a tokenisation, merging or choice of
windows changes the offset. The decoder puts the features back at these pixels, so a shift of the
image shifts the logits.

The encoder here is a stand-in for A-Swin; the decoder has the parameters of MMSegmentation's.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

TIE = 1e-12  # scores that differ relatively by at most this are equal, in float64 (vitrail: 1e-6)


class Stage(NamedTuple):
    """Tokens (B, C, H, W), the pixel (B, 2) of the first, and the pixels from one to the next."""

    tokens: Tensor
    offset: Tensor
    stride: int


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


def strongest_windows(x: Tensor, w: int) -> Tensor:
    """Return m* (B, 2) of the grid of windows of w x w tokens with the largest energies."""
    norms = x.norm(dim=-1)  # p = 2
    v = every(lambda shifted: avg_pool2d(shifted, w), norms, w)  # Eq. 17-18
    places = every(lambda shifted: shifted[:, ::w, ::w], tie_break_scores(norms), w)
    return strongest(v.square().sum((2, 3)), places, w)  # Eq. 20, G: squared l2 norm


def convolve(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve tokens (B, H, W, C)."""
    return conv(x.movedim(-1, 1)).movedim(1, -1)  # Eq. 5-6, Eq. 21-22


class Encoder(nn.Module):
    """A-token and A-PMerges, each followed by A-WSA, whose attention is the mean over a window."""

    def __init__(self, widths: Sequence[int], strides: Sequence[int], window: int) -> None:
        super().__init__()
        sizes = zip([3, *widths], widths, strides, strides, strict=False)
        self.convs = nn.ModuleList(nn.Conv2d(*size) for size in sizes)
        self.window = window

    def forward(self, images: Tensor) -> list[Stage]:
        """Return the stages of images (B, C, H, W)."""
        x, offset, stride, w = images.movedim(1, -1), 0, 1, self.window
        stages = []
        for conv in self.convs:
            m = strongest_grid(partial(convolve, conv), x, conv.stride[0])
            x = convolve(conv, shift(x, m))  # Eq. 13, Eq. 23
            offset, stride = offset + stride * m, stride * conv.stride[0]
            m = strongest_windows(x, w)
            x, offset = shift(x, m), offset + stride * m  # Eq. 19
            means = avg_pool2d(x.movedim(-1, 1), w).repeat_interleave(w, 2).repeat_interleave(w, 3)
            x = (x + means.movedim(1, -1)).relu()
            stages.append(Stage(x.movedim(-1, 1), offset, stride))
        return stages


def unpool(source: Stage, offset: Tensor, stride: int) -> Tensor:
    """Interpolate tokens on a finer grid, which begins at the pixel offset (B, 2).

    The weight of a token falls linearly, also across the borders of the image: it is 1 at the
    middle of the token's pixels, and 0 at the middle of the next token's pixels. (The paper's
    example, Sec. A2.2, leaves zeros between tokens.)
    """
    weights = []
    for axis, side in enumerate(source.tokens.shape[2:]):
        period = side * source.stride
        there, here = (
            first[:, None] + step * (torch.arange(period // step).to(source.tokens) + 0.5)
            for first, step in ((offset[:, axis], stride), (source.offset[:, axis], source.stride))
        )
        apart = (there[:, :, None] - here[:, None, :]) % period  # pixels (B, n, side)
        apart = torch.minimum(apart, period - apart)
        weights.append((1 - apart / source.stride).clamp_min(0))
    return torch.einsum("bchw,bnh,bmw->bcnm", source.tokens, *weights)


def unit(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """Return a circular convolution (Sec. 5.5), a batch norm and a ReLU."""
    options = {"padding": kernel // 2, "padding_mode": "circular", "bias": False}
    conv = nn.Conv2d(inputs, outputs, kernel, **options)
    return nn.Sequential(OrderedDict(conv=conv, bn=nn.BatchNorm2d(outputs), activate=nn.ReLU()))


class Decoder(nn.Module):
    """UperNet's decoder; parameters are named as those of MMSegmentation's UPerHead."""

    def __init__(
        self, widths: Sequence[int], channels: int, classes: int, bins: Sequence[int] = (1, 2, 3, 6)
    ) -> None:
        super().__init__()
        *finer, last = widths
        pooled = (nn.Sequential(nn.AdaptiveAvgPool2d(n), unit(last, channels, 1)) for n in bins)
        self.psp_modules = nn.ModuleList(pooled)
        self.bottleneck = unit(last + len(bins) * channels, channels, 3)
        self.lateral_convs = nn.ModuleList(unit(width, channels, 1) for width in finer)
        self.fpn_convs = nn.ModuleList(unit(channels, channels, 3) for _ in finer)
        self.fpn_bottleneck = unit(len(widths) * channels, channels, 3)
        self.conv_seg = nn.Conv2d(channels, classes, 1)

    def forward(self, stages: Sequence[Stage]) -> Tensor:
        """Return logits (B, classes, height, width), one a pixel."""
        finest, last = stages[0], stages[-1]
        x = last.tokens  # bins begin at token 0, which is the same for all shifts of an image
        pooled = [interpolate(pool(x), x.shape[2:], mode="bilinear") for pool in self.psp_modules]
        coarse = last._replace(tokens=self.bottleneck(torch.cat([x, *pooled], dim=1)))
        outputs = [unpool(coarse, finest.offset, finest.stride)]
        levels = zip(stages, self.lateral_convs, self.fpn_convs, strict=False)
        for stage, lateral, conv in reversed([*levels]):
            x = lateral(stage.tokens) + unpool(coarse, stage.offset, stage.stride)
            output = stage._replace(tokens=conv(x))
            outputs.insert(0, unpool(output, finest.offset, finest.stride))
            coarse = stage._replace(tokens=x)
        logits = self.conv_seg(self.fpn_bottleneck(torch.cat(outputs, dim=1)))
        return unpool(finest._replace(tokens=logits), torch.zeros_like(finest.offset), 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    widths = (8, 16, 24, 32)
    encoder = Encoder(widths, strides=(4, 2, 2, 2), window=3).double().eval()
    decoder = Decoder(widths, channels=16, classes=5).double().eval()
    image = torch.randn(1, 3, 96, 96).double()
    with torch.inference_mode():
        decoder.conv_seg.bias -= decoder(encoder(image)).mean((0, 2, 3))  # or one class wins
        for factor, name in enumerate(("without", "with")):
            for by in ((1, 1), (5, 17), (50, 31)):
                pair = [encoder(x) for x in (image, image.roll(by, (2, 3)))]
                used = [[s._replace(offset=factor * s.offset) for s in stages] for stages in pair]
                logits, shifted = decoder(used[0]).roll(by, (2, 3)), decoder(used[1])
                change = (logits - shifted).abs().max()
                same = 100 * (logits.argmax(1) == shifted.argmax(1)).double().mean()  # Eq. 26
                said = f"logits change by {change:.1e}, {same:.0f} % of pixels keep their class"
                print(f"{name} offsets, image shifted by {by}: {said}")
