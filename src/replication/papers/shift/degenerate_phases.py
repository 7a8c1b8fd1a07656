"""Images whose position (`harmonic`) depends on a coefficient that nearly vanishes; ours.

No definition of an image's position is continuous in all images. If the energy's Fourier
coefficient of one cycle along an axis is small, noise may change the position much; if it is zero,
the next frequencies define the position. Both measures count such images, and the images that are
recentred to the same position under all shifts nevertheless.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from replication.context import Context, Trained, Values, passes
from replication.images.transforms import eval_transform
from replication.measures.validation_split import validation_batches
from vitrail.extensions.fourier_recentering import recentred, strength
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift

WEAK = 1e-3
"""Coefficients below this share of the image's energy count as weak."""
SHIFTS = ((0.3, 0.0), (0.5, 0.5), (-7.25, 3.9), (5.5, 12.0))
"""Shifts in pixels, along rows and columns, after which images are recentred and compared."""
SAME = 1e-6
"""Images whose largest difference, relative to the largest pixel, is below this count as equal."""


@passes(0)
def weak_positions(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Count the weak coefficients of the images on which a run is evaluated.

    Args:
        trained: a run; its model is not used.
        batch_size: images of a batch.
        images: how many, spread evenly over the validation split; None is all.

    Returns:
        ``weak``: percent of images in which the weaker of the two coefficients of one cycle has
        less than the share `WEAK` of the energy (`strength`); ``smallest``: the smallest share of
        an image; ``together``: percent of images that are equal (`SAME`) after recentring, for all
        of `SHIFTS`; ``images``, their number.
    """
    transform = eval_transform(trained.recipe, trained.info)
    batches = validation_batches(trained, transform, batch_size, images)
    return _summary(torch.cat([_judged(batch) for _, batch, _ in batches]))


def constructed_positions(context: Context) -> Values:
    """Return the values of `weak_positions` for each kind of `constructed`: ``"<kind>/<key>"``."""
    kinds: dict[str, list[Tensor]] = {}
    for (kind, _), image in constructed().items():
        kinds.setdefault(kind, []).append(_judged(image.to(context.device)))
    return {
        f"{kind}/{key}": value
        for kind, judged in kinds.items()
        for key, value in _summary(torch.cat(judged)).items()
    }


def _judged(images: Tensor) -> Tensor:
    """Return ``(B, 2)`` for ``(B, C, H, W)``: the strength, and the change after `SHIFTS`.

    The change is the largest difference of the recentred images, relative to the largest pixel.
    """
    images = images.double()
    still, largest = recentred(band_limited(images)), images.abs().amax(dim=(1, 2, 3))
    apart = torch.zeros_like(largest)
    for shift in SHIFTS:
        offsets = images.new_tensor(shift).expand(images.shape[0], 2)
        change = recentred(fourier_shift(images, offsets)) - still
        apart = torch.maximum(apart, change.abs().amax(dim=(1, 2, 3)))
    return torch.stack([strength(images), apart / largest.where(largest > 0, 1)], dim=1)


def _summary(judged: Tensor) -> dict[str, float]:
    strengths, apart = judged.unbind(dim=1)
    return {
        "weak": 100 * (strengths < WEAK).double().mean().item(),
        "smallest": strengths.min().item(),
        "together": 100 * (apart < SAME).double().mean().item(),
        "images": len(judged),
    }


SIDE = 24
"""Side of the constructed images in pixels; the image of noise is four pixels wider."""


def constructed() -> Mapping[tuple[str, str], Tensor]:
    """Return images ``(1, 3, H, W)`` in float64 by their kind and name."""
    rows = itertools.product((3, 11), (4, 12, 20))
    of_kinds: dict[str, dict[str, Tensor]] = {
        "one place": {"noise": _noise(), "one object": _objects((3, 4))},
        "equal objects": {
            "two, half a side apart": _objects((3, 4), (15, 4)),
            "two, half a side apart on both axes": _objects((3, 4), (15, 16)),
            "three in a row": _objects((3, 4), (11, 4), (19, 4)),
            "three in a diagonal": _objects((3, 4), (11, 12), (19, 20)),
            "nine, one of them higher": _objects(*rows, (19, 4), (19, 12), (18, 20)),
        },
        "diagonals": {
            "one": _diagonal(),
            "two, and an object": _marked(_diagonal()),
        },
        "tiles": {
            "of 4 pixels": _tiles(4),
            "of 6 pixels": _tiles(6),
            "of 8 pixels, and an object": _marked(_tiles(8)),
            "checkerboard": _checkerboard(4),
            "fine checkerboard": _checkerboard(2),
            "checkerboard, and an object": _marked(_checkerboard(6)),
        },
        "flat along an axis": {
            "stripes": _stripes(),
            "colours of one energy": _equal_energies(),
            "flat": _flat(),
        },
    }
    return {
        (kind, name): image for kind, images in of_kinds.items() for name, image in images.items()
    }


def _flat() -> Tensor:
    return torch.ones(1, 3, SIDE, SIDE, dtype=torch.float64)


def _objects(*places: tuple[int, int]) -> Tensor:
    """Return an image with equal objects of 3 x 2 pixels at (row, column)."""
    image = _flat()
    for row, column in places:
        for i, j in itertools.product(range(3), range(2)):
            colour = torch.tensor([1.0, 0.5, -0.3], dtype=image.dtype)
            image[0, :, (row + i) % SIDE, (column + j) % SIDE] += colour
    return image


def _marked(image: Tensor) -> Tensor:
    """Return the image with an added object, which breaks its periodicity."""
    return image + _objects((5, 9)) - 1


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _noise() -> Tensor:
    return _drawn(0, 1, 3, SIDE, SIDE + 4)


def _tiles(period: int) -> Tensor:
    return _drawn(1, 1, 3, period, period).repeat(1, 1, SIDE // period, SIDE // period)


def _stripes() -> Tensor:
    return _tiles(6).mean(dim=2, keepdim=True).expand(-1, -1, SIDE, -1).contiguous()


def _checkerboard(size: int) -> Tensor:
    place = torch.arange(SIDE) // size
    return ((place[:, None] + place) % 2).double().expand(1, 3, SIDE, SIDE)


def _diagonal() -> Tensor:
    place = torch.arange(SIDE)
    return _flat() + ((place[:, None] - place) % SIDE < 3)


def _equal_energies() -> Tensor:
    """Return red and green waves, a quarter period apart, so that their energy is constant."""
    turn = 2 * torch.pi * torch.arange(SIDE, dtype=torch.float64) / SIDE
    red, green = turn.cos().expand(SIDE, SIDE), turn.sin().expand(SIDE, SIDE)
    return torch.stack([red, green, torch.zeros_like(red)])[None]
