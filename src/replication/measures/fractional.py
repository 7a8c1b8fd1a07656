"""Shifts by fractions of a pixel: how far they move the logits; the papers lack it.

An image is shifted circularly by the same fraction of a pixel along both axes, towards directions
that are drawn for it. There are two ways:

- ``fourier``: by the trigonometric polynomial through its pixels
  (`vitrail.extensions.fractional_shifts`).
- ``camera``: as a camera that moves a little sees it. The image is enlarged fourfold (bicubic),
  shifted there by whole pixels, and each pixel of the result is the mean of 4 x 4. The unshifted
  view is made in the same way. A model that interpolates by Fourier has no advantage here.
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
"""Pixels of the enlarged image in one of the image, along each axis."""


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
        for each way and fraction ``"<way>/<fraction>/consistency"``, the percentage of kept
        predictions, and ``"<way>/<fraction>/change"``: the root mean square of the change of a
        logit, over the standard deviation of that logit among images (mean squares of all classes).
        Logits are taken less their mean over classes, which no prediction depends on. And
        ``images``.

    Raises:
        VitrailError: a fraction of the camera is no multiple of a quarter.
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
    """Return the view ``(B, C, H, W)`` of a camera that moved by offsets ``(B, 2)`` in pixels.

    Offsets are multiples of a quarter. The image is continued around its border.
    """
    margin = 2  # pixels beyond the border that bicubic interpolation reads
    around = functional.pad(images, (margin,) * 4, mode="circular")
    fine = functional.interpolate(around, scale_factor=FINE, mode="bicubic")
    side = FINE * margin
    inside = fine[..., side:-side, side:-side]
    moved = circular_shift(inside, (FINE * offsets).round().long())
    return functional.avg_pool2d(moved, FINE)
