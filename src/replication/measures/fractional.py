"""Measure how much shifts by fractions of a pixel change the logits; the papers do not.

An image is shifted circularly by the same fraction of a pixel along both axes; the direction along
each axis is drawn at random. There are two kinds of shift:

- ``fourier``: by the trigonometric polynomial through its pixels
  (`vitrail.extensions.fractional_shifts`).
- ``camera``: an approximation of a camera that moves a little. The image is enlarged fourfold
  (bicubic) and shifted by whole pixels of the enlarged image; then each pixel of the result is the
  mean of 4 x 4 pixels. The unshifted view is made in the same way. Here a model that uses Fourier
  interpolation has no advantage.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform
from replication.measures.validation_split import validation_batches
from vitrail.errors import VitrailError
from vitrail.extensions.fractional_shifts import fourier_shift
from vitrail.measures.shifts import circular_shift, draws

FINE = 4
"""Pixels of the enlarged image for each pixel of the image, along each axis."""


@passes(lambda given: 2 + len(given["fourier"]) + len(given["camera"]))
def fractional_consistency(
    trained: Trained,
    fourier: Sequence[float] = (0.03, 0.1, 0.25, 0.5),
    camera: Sequence[float] = (0.25, 0.5),
    batch_size: int = 128,
    images: int | None = None,
) -> Values:
    """Shift images by fractions of a pixel and compare the logits.

    Args:
        trained: the model; its seed draws the directions.
        fourier: fractions of a pixel, at the resolution of the network.
        camera: fractions of a pixel, multiples of a quarter.
        batch_size: images of a batch.
        images: how many, spread evenly over the validation split; None is all.

    Returns:
        for each kind of shift and fraction, ``"<kind>/<fraction>/consistency"``, the percentage of
        images that keep their prediction, and ``"<kind>/<fraction>/change"``: the root mean square
        change of the logits, divided by their standard deviation over images (both squared, then
        averaged over classes). From the logits their mean over classes is subtracted first, as no
        prediction depends on it. Also ``images``, their number.

    Raises:
        VitrailError: a fraction in `camera` is not a multiple of a quarter.
    """
    for fraction in camera:
        if not float(FINE * fraction).is_integer():
            raise VitrailError(
                f"camera has {fraction}; the camera shifts images enlarged {FINE} times by whole "
                f"pixels: give multiples of {1 / FINE}"
            )
    ways = {"fourier": (fourier, _fourier_view), "camera": (camera, camera_view)}
    transform = eval_transform(trained.recipe, trained.info)
    logits: dict[str, list[Tensor]] = {}
    for indices, batch, _ in validation_batches(trained, transform, batch_size, images):
        signs = 2 * (draws(trained.seed, "fractional shift", indices, 2) < 0.5).double() - 1
        for way, (fractions, view) in ways.items():
            for fraction in (0.0, *fractions):
                scores = trained.logits(view(batch, fraction * signs)).double().cpu()
                name = f"{way}/{fraction:g}"
                logits.setdefault(name, []).append(scores - scores.mean(dim=1, keepdim=True))
    values: dict[str, float] = {}
    for way, (fractions, _) in ways.items():
        still = torch.cat(logits[f"{way}/0"])
        spread = (still - still.mean(dim=0)).square().mean()
        for fraction in fractions:
            name = f"{way}/{fraction:g}"
            moved = torch.cat(logits[name])
            same = (moved.argmax(dim=1) == still.argmax(dim=1)).double().mean()
            values[f"{name}/consistency"] = 100 * same.item()
            values[f"{name}/change"] = ((moved - still).square().mean() / spread).sqrt().item()
    return {**values, "images": len(still)}


def _fourier_view(images: Tensor, offsets: Tensor) -> Tensor:
    return fourier_shift(images, offsets.to(images.device))


def camera_view(images: Tensor, offsets: Tensor) -> Tensor:
    """Shift images ``(B, C, H, W)`` by offsets ``(B, 2)`` in pixels, as the kind ``camera``.

    Offsets must be multiples of a quarter. Shifts are circular.
    """
    margin = 2  # pixels beyond the border that bicubic interpolation reads
    around = functional.pad(images, (margin,) * 4, mode="circular")
    fine = functional.interpolate(around, scale_factor=FINE, mode="bicubic")
    side = FINE * margin
    inside = fine[..., side:-side, side:-side]
    moved = circular_shift(inside, (FINE * offsets).round().long())
    return functional.avg_pool2d(moved, FINE)
