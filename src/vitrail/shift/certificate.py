"""Bound the rounding errors of the scores that choose a grid: a certificate of the choice.

A circular shift of an image permutes the exact scores of its grids. Each computed score is a sum,
in another order for each shift, and differs from the exact score by at most a bound e. If the
largest computed score is more than 4 e above the second largest, then the largest exact score is
more than 2 e above the second, and every shift of the image chooses the same grid. The margin is
this difference divided by 4 e: if it is above 1, the choice is certain. The bounds hold for any
order of n roundings: ``gamma_n(n) = n u / (1 - n u)`` times the sum of the terms' magnitudes
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, Sec. 3.1).

The bounds include the roundings of computations on tokens, and those of the projection that scores
a tokeniser's grids. All other convolutions are assumed to give a token the same bits at every
place, as was measured on CPUs. On a device whose convolutions round by place (tensor cores,
Winograd) the margins do not include these roundings. After the anchor nothing depends on the place
(`selection.tokens_at`). A convolution that rounds its factors to TensorFloat-32 gives tokens the
same bits at every place.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrail.shift.polyphase import (
    FIXED_POINT,
    TIE_RTOL,
    break_ties,
    fixed_point,
    largest,
    tie_break_scores,
    to_float64,
)


def gamma_n(count: int, dtype: torch.dtype) -> float:
    """Return the bound of the relative error of `count` roundings to `dtype`."""
    part = count * torch.finfo(dtype).eps / 2
    return part / (1 - part)


def margin(scores: Tensor, error: Tensor) -> Tensor:
    """Return (best - second best) / (4 `error`) of scores ``(B, N)``; infinity if N is 1.

    `error` and the result are ``(B,)``.
    """
    if scores.shape[1] < 2:
        return torch.full_like(error, torch.inf)
    first, second = scores.topk(2, dim=1).values.unbind(dim=1)
    return to_float64(first - second) / (4 * error).clamp_min(torch.finfo(torch.float32).tiny)


def places_error(energies: Tensor, error: Tensor | None = None) -> Tensor:
    """Bound the error of `tie_break_scores` of energies ``(B, ..., H, W)``: ``(B,)``.

    Energies are not negative. `error`, of their shape, bounds their own errors.
    """
    places, count = tie_break_scores(energies), energies.shape[-2] + energies.shape[-1] + 2
    bound = gamma_n(count, places.dtype) * places.flatten(1).amax(dim=1)
    if error is not None:
        bound = bound + 2 * tie_break_scores(error).flatten(1).amax(dim=1)
    return bound


def tie_break_margin(scores: Tensor, error: Tensor, ties: Tensor, tie_error: Tensor) -> Tensor:
    """Return the margin of `break_ties` of scores and ties ``(B, P, Q)`` with errors ``(B,)``.

    It is the smaller of two margins, both in units of the largest possible rounding error: the
    `margin` of the ties, and the distance of every score but the largest from the limit at which it
    counts as equal to the largest.
    """
    best = largest(scores)
    limit = TIE_RTOL * to_float64(best)
    below = to_float64(best - scores).flatten(1).sort(dim=1).values
    below[:, 0] = torch.inf  # the largest itself
    unit = torch.finfo(scores.dtype).eps if scores.is_floating_point() else 0.0
    change = error * (1 + TIE_RTOL) + unit * limit[:, 0, 0]
    apart = (below - limit[:, 0]).abs().amin(dim=1)
    # Without an error (integer scores) the comparison gives the same result for every shift.
    equal = (apart / (4 * change)).where(change > 0, torch.inf)
    return torch.minimum(equal, margin(break_ties(scores, ties).flatten(1), tie_error))


def grid_margin(
    energies: Tensor,
    error: Tensor | None = None,
    scores: Tensor | None = None,
    score_error: Tensor | None = None,
) -> Tensor:
    """Return the margin of `strongest_grid` of the same energies and scores, ``(B,)``.

    Args:
        energies: ``(B, P, Q, H, W)``.
        error: bounds of the errors of the energies, of their shape; None if the energies have the
            same bits for every shift.
        scores: ``(B, P, Q)``, by default the sums of the energies.
        score_error: bounds of the errors of the scores, ``(B,)``.
    """
    unit = torch.finfo(energies.dtype).eps
    if scores is None:
        scores = fixed_point(energies).sum(dim=(3, 4))
        score_error = to_float64(torch.zeros(len(scores), device=scores.device))
        if error is not None:  # a common factor of all scores changes no order
            largest = to_float64(energies.flatten(1).amax(dim=1)).clamp_min(torch.finfo().tiny)
            moved = to_float64(error).sum(dim=(3, 4)).flatten(1).amax(dim=1) / largest * FIXED_POINT
            rounded = unit * scores.flatten(1).amax(dim=1) + energies[0, 0, 0].numel()
            score_error = 2 * moved + rounded
    assert score_error is not None
    places = tie_break_scores(energies)
    means = places.mean(dim=(3, 4))
    tie_error = 2 * places_error(energies, error)
    tie_error += gamma_n(places[0, 0, 0].numel(), places.dtype) * means.flatten(1).amax(dim=1)
    return tie_break_margin(scores, score_error, places.amax(dim=(3, 4)) - means, tie_error)


def correlation_error(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Bound the error of `correlation_energies` of ``(B, C, H, W)``: ``(B,)``.

    The sum of the magnitudes of all terms of a grid is at most
    ``(k ||W|| ||x|| + sqrt(N) ||b||)^2``, by the inequalities of Cauchy and Minkowski. N is the
    number of tokens of a grid, and k^2 the number of these tokens that read the same pixel.
    """
    stride, kernel, taps = conv.stride[0], conv.kernel_size[0], conv.weight[0].numel()
    tokens = x.shape[2] * x.shape[3] // stride**2
    weight, pixels = conv.weight.double().norm(), x.double().flatten(1).norm(dim=1)
    bias = 0.0 if conv.bias is None else conv.bias.double().norm() * tokens**0.5
    magnitude = (-(-kernel // stride) * weight * pixels + bias).square()
    return gamma_n(tokens + conv.out_channels + 3 * taps**2 + 16, torch.float64) * magnitude
