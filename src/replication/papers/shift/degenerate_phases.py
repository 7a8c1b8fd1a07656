"""Images whose position (`harmonic`) hangs on a coefficient that nearly vanishes; ours.

No position is continuous in all images. Where the energy's coefficient of one cycle along an axis
is small, noise may move the position far, and where it is zero the next frequencies say where the
content is. Both measures count such images, and those that are moved to one place under shifts all
the same.
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
"""A coefficient below this share of the image's energy is weak."""
SHIFTS = ((0.3, 0.0), (0.5, 0.5), (-7.25, 3.9), (5.5, 12.0))
"""Pixels, along rows and columns, by which images are shifted to see where they are moved to."""
SAME = 1e-6
"""Images that differ by less, relative to the largest pixel, are one."""


@passes(0)
def weak_positions(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Count the weak coefficients of the images that a run is judged on.

    Args:
        trained: a run; its model is not used.
        batch_size: images of a batch.
        images: how many, spread evenly over the validation split; None is all.

    Returns:
        ``weak``: percent of images of whose energy the weaker coefficient of one cycle has less
        than `WEAK` (`strength`); ``smallest``: the smallest such share of any image; ``together``:
        percent of images that all of `SHIFTS` leave at one place, to `SAME`; and ``images``.
    """
    transform = eval_transform(trained.recipe, trained.info)
    batches = validation_batches(trained, transform, batch_size, images)
    return _summary(torch.cat([_judged(batch) for _, batch, _ in batches]))


def constructed_positions(context: Context) -> Values:
    """Return what `weak_positions` does of each of `constructed`, as ``"<kind>/<key>"``."""
    kinds: dict[str, list[Tensor]] = {}
    for (kind, _), image in constructed().items():
        kinds.setdefault(kind, []).append(_judged(image.to(context.device)))
    return {
        f"{kind}/{key}": value
        for kind, judged in kinds.items()
        for key, value in _summary(torch.cat(judged)).items()
    }


def _judged(images: Tensor) -> Tensor:
    """Return for ``(B, C, H, W)`` the strength, and how far from each other they are moved."""
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
"""Pixels of a side of the constructed images; that of noise is four wider."""


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
    """Equal objects of 3 x 2 pixels at (row, column)."""
    image = _flat()
    for row, column in places:
        for i, j in itertools.product(range(3), range(2)):
            colour = torch.tensor([1.0, 0.5, -0.3], dtype=image.dtype)
            image[0, :, (row + i) % SIDE, (column + j) % SIDE] += colour
    return image


def _marked(image: Tensor) -> Tensor:
    """With an object that breaks the repetition."""
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
    """Red rows and green columns whose energies sum to a constant, in two phases."""
    turn = 2 * torch.pi * torch.arange(SIDE, dtype=torch.float64) / SIDE
    red, green = turn.cos().expand(SIDE, SIDE), turn.sin().expand(SIDE, SIDE)
    return torch.stack([red, green, torch.zeros_like(red)])[None]
