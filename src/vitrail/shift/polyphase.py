"""Per-sample rolls and polyphase components (shift, Sec. 3, Eq. 1; shift, Sec. 4, Eq. 15, Eq. 23).

An *offset* ``(B, 2)`` of int64 rows and columns is the exponent of S, one for each sample:
``rolled[i] = x[(i + offset) mod N]``. It can point to any token of a map. A *phase* ``(B, 2)`` is
the row and the column, each below the stride, at which a grid of every stride-th token begins. So a
phase says which grid is taken, and an offset also says which token comes first. Tokens are
channels-last, ``(B, H, W, C)``.

A grid is scored by the energies of its tokens. A shift of the image changes the order of a sum and
that of the grids in memory, and on some devices a convolution rounds a token by its place. The
chosen grid must not depend on these differences. So energies are summed as integers, exactly; no
float64 is needed, which some devices lack. Scores that differ from the largest by at most
`TIE_RTOL` times the largest count as equal to it. And grids of equal scores, such as of an object
that occurs twice, are ordered by their `tie_break_scores`, a max filter (Cahill et al.,
Group-invariant max filtering, 2022).

After an anchor no such rule is needed: the image is rolled to it and tokenised again
(`selection.tokens_at`), so that all shifts of an image give the same tokens in the same order.
There the largest score wins, and of several the first.

TensorFloat-32, to which CUDA may round the factors of float32 products, does not change this: it
rounds each pixel and each weight by itself, to the same value in every place. It must not round
what a sum has already rounded by place, so the scores that break ties are computed in float64.

An image x can equal its own shift (stripes, tilings, a flat image). Let T be a shift with T x = x,
g a grid of x, and T g this grid after the shift. Then g and T g have equal scores, and rounding may
decide which of them is taken. The logits do not depend on it:

1. The logits of T x on the grid T g are those of x on the grid g, because neither the mean of the
   tokens nor a class token depends on where the tokens are.
2. T x is x, so the logits of x are the same on both grids.
3. Grids that no such T relates are ordered by their scores, or by their `tie_break_scores`.

A dense output, such as a segmenter's, does depend on which of them is taken. A module that takes
two grids of the same tokens, g and h, could take g and h for an image and g and T h for its shift.
No T relates these two pairs. `vitrail.shift.adaptive_mvitv2` says how it avoids this.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.shift.geometry import rolled_index

FIXED_POINT = 2.0**40
"""Number of units of the largest energy of a sample: 2^23 energies can be summed in int64."""
TIE_RTOL = 1e-6
"""Scores that differ from the largest by at most this part of the largest count as equal to it.

It must be larger than rounding errors. Its cost: two grids closer than this are ordered by our
rule, not by the paper's score. The one-file examples, which compute in float64, have 1e-12 instead
(``TIE``). One float32 rounding of every token changes a score relatively by at most 3e-7. If the
relative difference of two scores is `TIE_RTOL` up to rounding, rounding decides whether they count
as equal. On a device that rounds by place a shift may then change the logits; the margin of such a
choice is near 0 (`vitrail.shift.certificate`). Of 1,000 photographs each of Flowers-102 and of
Tiny-ImageNet, at most 8 have a choice that the tolerance affects, for any model and selection; none
has two equal scores (`replication.papers.shift.photo_statistics`, table ``shift_photographs``).
"""
DEVICES_WITH_FLOAT64 = ("cpu", "cuda", "xpu", "meta")
"""Types of devices that have float64; MPS does not."""


def to_float64(x: Tensor) -> Tensor:
    """Return `x` in float64, or in float32 on a device that lacks float64."""
    return x.double() if x.device.type in DEVICES_WITH_FLOAT64 else x.float()


def roll(x: Tensor, offset: Tensor) -> Tensor:
    """Roll each sample of ``(B, H, W, ...)`` by its own `offset` (shift, Eq. 1).

    ``out[i] = x[(i + offset) mod N]``: that is ``torch.roll(x, -offset)``.
    """
    batch, height, width = x.shape[:3]
    first = torch.arange(batch, device=x.device)[:, None] * (height * width)
    index = (first + rolled_index(height, width, offset)).flatten()
    # Each row is read once, so the gradient is a plain copy too.
    return x.reshape(batch * height * width, -1).index_select(0, index).view(x.shape)


def full_precision(x: Tensor) -> torch.autocast:
    """Return the context in which autocast is off; a model in half precision stays in it."""
    # The meta device, on which FLOPs are counted, has no autocast.
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)


def strongest(energies: Tensor) -> Tensor:
    """Return the place of the maximum of each ``(B, H, W)``, as an offset ``(B, 2)``."""
    place = energies.flatten(1).argmax(dim=1)
    width = energies.shape[2]
    return torch.stack([place // width, place % width], dim=1)


def token_norms(tokens: Tensor) -> Tensor:
    """Return the l2 norm of each token of ``(B, H, W, C)``: ``(B, H, W)``, float32 or float64."""
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return torch.linalg.vector_norm(tokens, dim=-1, dtype=wide)


def fixed_point(energies: Tensor) -> Tensor:
    """Return energies ``(B, ...)`` >= 0 as int64, in units of the largest / `FIXED_POINT`."""
    largest = energies.amax(dim=tuple(range(1, energies.dim())), keepdim=True)
    scale = FIXED_POINT / largest.clamp_min(torch.finfo(energies.dtype).tiny)
    return (energies * scale).to(torch.int64)


def tie_break_scores(energies: Tensor) -> Tensor:
    """Correlate ``(..., H, W)`` circularly with a fixed template of that size: same shape.

    Entry ``[i, j]`` is the inner product with the template that begins at row i and column j, in
    float64 where the device has it. For almost any template, two maps that are no shifts of each
    other have different largest entries. This template is an outer product, so two small matrix
    products give all entries.
    """
    height, width = energies.shape[-2:]
    with full_precision(energies):  # autocast would round what is not float64
        energies = to_float64(energies)
        return _template(height, energies, 1) @ energies @ _template(width, energies, 2).mT


def _template(length: int, like: Tensor, rate: int) -> Tensor:
    """Return a chirp's circular shifts, ``(length, length)``: it has no period and no symmetry.

    Rows and columns have different rates, so that the template differs from its transpose. Integer
    rates make the angles exact, also in float32.
    """
    places = torch.arange(length, device=like.device).to(like.dtype)
    chirp = 1 + torch.cos(rate * places.square())
    return torch.cat([chirp, chirp]).unfold(0, length, 1)[1:].flip(0)  # row i begins at -i


def break_ties(scores: Tensor, ties: Tensor) -> Tensor:
    """Return `ties` of the grids whose scores equal the largest (`TIE_RTOL`), and -inf elsewhere.

    Scores, which are not negative, ties and the result are ``(B, P, Q)``. The largest entry of the
    result is that of the grid to take.
    """
    best = largest(scores)
    return ties.where(best - scores <= TIE_RTOL * best, -torch.inf)


def largest(scores: Tensor) -> Tensor:
    """Return the largest of each ``(B, P, Q)``, as ``(B, 1, 1)``.

    It is computed by argmax: ONNX Runtime (1.31) was seen to return a wrong maximum of large int64
    (4009172336640 instead of 4011415306240), but the right argmax.
    """
    flat = scores.flatten(1)
    return flat.gather(1, flat.argmax(dim=1, keepdim=True))[:, :, None]


def polyphase_energies(energies: Tensor, stride: tuple[int, int]) -> Tensor:
    """Sum ``(B, H, W)`` exactly over each phase's grid: int64 `fixed_point`, ``(B, *stride)``."""
    return components(fixed_point(energies), stride).sum(dim=(3, 4))


def components(x: Tensor, stride: tuple[int, int]) -> Tensor:
    """Return the grid of each phase of ``(B, H, W)``: ``(B, *stride, H / rows, W / columns)``.

    Entry ``[b, p, q]`` has rows p, p + stride, ... and columns likewise. If the map holds a number
    for the token at every pixel, the entry has those of the tokens of X^(m) with m = (p, q), which
    the paper defines below its equation 14.

    Source: shift, Lemma 1, Eq. 15: how a shift of the image exchanges and rolls these grids.
    """
    batch, height, width = x.shape
    rows, columns = stride
    parts = x.view(batch, height // rows, rows, width // columns, columns)
    return parts.permute(0, 2, 4, 1, 3)


def strongest_grid(energies: Tensor, scores: Tensor | None = None) -> Tensor:
    """Return the phase ``(B, 2)`` of the grid with the largest score.

    Among grids of equal scores, the `tie_break_scores` of the energies decide.

    Args:
        energies: energies of each grid's tokens, ``(B, P, Q, H, W)``.
        scores: ``(B, P, Q)``; by default the sums of the energies.
    """
    if scores is None:
        scores = fixed_point(energies).sum(dim=(3, 4))
    places = tie_break_scores(energies)
    scores = break_ties(scores, places.amax(dim=(3, 4)) - places.mean(dim=(3, 4)))
    return strongest(scores)


@torch.no_grad()
def strongest_phase(tokens: Tensor, stride: int, in_order: bool = False) -> Tensor:
    """Return the phase ``(B, 2)`` of the grid of tokens with the largest l2 norm.

    Args:
        tokens: ``(B, H, W, C)``.
        stride: stride of the grid on both axes; it divides H and W.
        in_order: true after the anchor, where all shifts of an image give the same tokens in the
            same order. Then no tie has to be broken, and the first of the largest scores wins.
    """
    with full_precision(tokens):
        energies = components(token_norms(tokens).square(), (stride, stride))
        if not in_order:
            return strongest_grid(energies)
        return strongest(fixed_point(energies).sum(dim=(3, 4)))


def sample(x: Tensor, phase: Tensor, stride: int) -> Tensor:
    """Keep the grid of each sample's `phase`: ``(B, H, W, C)`` to ``(B, H / s, W / s, C)``."""
    batch, height, width, channels = x.shape
    parts = x.view(batch, height // stride, stride, width // stride, stride, channels)
    sample_index = torch.arange(batch, device=x.device)
    return parts[sample_index, :, phase[:, 0], :, phase[:, 1]]
