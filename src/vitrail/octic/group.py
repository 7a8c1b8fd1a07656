"""The octic group D8, its representations, and the features that it acts on (octic, Sec. 3.1).

`r` turns an image anticlockwise by a quarter, `m` mirrors it left to right, and a word of these
letters is applied from its right end: "mr" turns first.

The regular representation permutes (y0..y7). These are the values of a function f on the group, at
the elements e, r^-1, r^-2, r^-3, m, m r^-1, m r^-2, m r^-3 in this order, and g maps f to the
function h -> f(g^-1 h). For example, r gives y0 = f(e) the value f(r^-1), which is y1.

The isotypic representation acts on (x0..x7) by the irreducible representations (irreps): A1, A2,
B1, B2 of dimension 1, called lines in the code, and two copies of E, of dimension 2: (x4, x5) and
(x6, x7). The Fourier transform maps y to x, the inverse one x to y.

Octic features are one tensor ``(8, B, N, c)``, a plane of ``c = C / 8`` channels per vector of the
isotypic basis: A1, A2, B1, B2, then E's copy 1, rows 0 and 1, and its copy 2, rows 0 and 1.

`vitrail.octic` says which file has which equation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

ELEMENTS = ("e", "r", "rr", "rrr", "m", "mr", "mrr", "mrrr")

# The generators r and m in each irreducible representation.
IRREPS: dict[str, tuple[list[list[float]], list[list[float]]]] = {
    "A1": ([[1]], [[1]]),
    "A2": ([[1]], [[-1]]),
    "B1": ([[-1]], [[1]]),
    "B2": ([[-1]], [[-1]]),
    "E": ([[0, -1], [1, 0]], [[-1, 0], [0, 1]]),
}

SCALE = 1 / (2 * math.sqrt(2))
"""The factor 1 / (2 sqrt(2)) that makes the two Fourier transforms orthogonal."""


def inverse_fourier(x: Sequence[Tensor]) -> list[Tensor]:
    """Transform eight isotypic planes to regular ones by 24 additions, without the factor `SCALE`.

    Source: octic, Eq. 11, App. A.1.
    """
    (a, b), (c, d) = _sum_and_difference(x[0], x[1]), _sum_and_difference(x[2], x[3])
    (e, f), (g, h) = _sum_and_difference(x[4], x[5]), _sum_and_difference(x[6], x[7])
    y0, y2 = _sum_and_difference(a + c, e + h)
    y1, y3 = _sum_and_difference(a - c, f - g)
    y6, y4 = _sum_and_difference(b + d, f + g)
    y7, y5 = _sum_and_difference(b - d, e - h)
    return [y0, y1, y2, y3, y4, y5, y6, y7]


def fourier(y: Sequence[Tensor]) -> list[Tensor]:
    """Transform eight regular planes to isotypic ones by 24 additions, without the factor `SCALE`.

    It multiplies by the transpose of the matrix of `inverse_fourier`.

    Source: octic, Eq. 5, App. A.1.
    """
    (p, q), (r, s) = _sum_and_difference(y[0], y[2]), _sum_and_difference(y[1], y[3])
    (t, u), (v, w) = _sum_and_difference(y[6], y[4]), _sum_and_difference(y[7], y[5])
    x0, x1 = _sum_and_difference(p + r, t + v)
    x2, x3 = _sum_and_difference(p - r, t - v)
    x4, x5 = _sum_and_difference(q + w, u + s)
    x6, x7 = _sum_and_difference(u - s, q - w)
    return [x0, x1, x2, x3, x4, x5, x6, x7]


def _sum_and_difference(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return u + v, u - v


SIGNS = torch.stack(inverse_fourier(torch.eye(8, dtype=torch.float64).unbind()))
"""``(8, 8)`` float64, `inverse_fourier` as a matrix: its entries are 1 and -1."""
INVERSE_FOURIER = SCALE * SIGNS
"""``(8, 8)`` float64, isotypic to regular; orthogonal, so that `FOURIER` is its transpose."""
FOURIER = INVERSE_FOURIER.T.contiguous()
"""``(8, 8)`` float64, regular to isotypic."""


def _of_word(element: str, r: Tensor, m: Tensor) -> Tensor:
    matrix = torch.eye(len(r), dtype=torch.float64)
    for letter in element.removeprefix("e"):
        matrix = matrix @ (r if letter == "r" else m)
    return matrix


def irrep(name: str, element: str) -> Tensor:
    """Return the matrix of an element in A1, A2, B1, B2 ``(1, 1)`` or E ``(2, 2)``, float64.

    Source: octic, Eq. 1, Example 3.1.
    """
    r, m = (torch.tensor(generator, dtype=torch.float64) for generator in IRREPS[name])
    return _of_word(element, r, m)


def isotypic(element: str) -> Tensor:
    """Return the ``(8, 8)`` float64 matrix of an element on (A1, A2, B1, B2, E, E).

    It is the regular representation in the basis of the irreps: ``regular(g) = INVERSE_FOURIER @
    isotypic(g) @ FOURIER``. Each irrep is there as often as it has dimensions.

    Source: octic, Eq. 2, Eq. 5, Example 3.3.
    """
    return torch.block_diag(*(irrep(name, element) for name in (*IRREPS, "E")))


def regular(element: str) -> Tensor:
    """Return the ``(8, 8)`` float64 permutation of an element on (y0..y7).

    The docstring of this module says which y belongs to which element.

    Source: octic, Eq. 3-4, Example 3.2.
    """
    eye = torch.eye(8, dtype=torch.float64)
    return _of_word(element, r=eye[[1, 2, 3, 0, 7, 4, 5, 6]], m=eye[[4, 5, 6, 7, 0, 1, 2, 3]])


def transform(x: Tensor, element: str) -> Tensor:
    """Turn and mirror the last two axes ``(..., H, W)``, an image or a grid of tokens.

    Source: octic, Example 3.4.
    """
    for letter in reversed(element.removeprefix("e")):
        x = x.rot90(1, (-2, -1)) if letter == "r" else x.flip(-1)
    return x


def on_planes(matrix: Tensor, x: Tensor) -> Tensor:
    """Multiply the first axis of `x` ``(8, ...)`` by a matrix ``(k, 8)``, in the dtype of `x`."""
    device = x.device.type
    autocasts = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if autocasts else nullcontext():
        return (matrix.to(x) @ x.flatten(1)).unflatten(1, x.shape[1:])


def act(x: Tensor, element: str, grid: tuple[int, int], prefix: int = 0) -> Tensor:
    """Act on features as if the element acted on their image.

    Source: octic, Eq. 6, Example 3.5, Example 3.6.

    Args:
        x: ``(8, B, prefix + h w, c)``.
        element: one of `group.ELEMENTS`.
        grid: (h, w) of the tokens before the element acts on them.
        prefix: number of leading tokens that are not patches (CLS, registers).

    Returns:
        features of the shape of `x`, channels mixed in each pair of E and tokens permuted.
    """
    x = on_planes(isotypic(element), x)
    patches = x[:, :, prefix:].unflatten(2, grid).movedim(-1, 2)
    patches = transform(patches, element).movedim(2, -1).flatten(2, 3)
    return torch.cat([x[:, :, :prefix], patches], dim=2)


def to_channels(x: Tensor) -> Tensor:
    """Concatenate the planes of ``(planes, B, N, c)`` as channels ``(B, N, C)``."""
    return x.movedim(0, 2).flatten(2)


def from_channels(x: Tensor, planes: int = 8) -> Tensor:
    """Split channels ``(B, N, C)`` into planes ``(planes, B, N, c)``."""
    return x.unflatten(2, (planes, -1)).movedim(2, 0).contiguous()
