"""mASCC: the share of pixels that keep their predicted class under shifts (shift, Eq. 26).

A circular shift only moves pixels, so a truly shift-equivariant segmenter keeps all predictions,
unless the image is periodic (`vitrail.shift.upernet`). With a standard shift, only pixels that both
views show are compared. As in `replication.measures.consistency`, draws depend on the seed and the
image's index only, and an offset o is the exponent of S: shifted[i] = x[(i + o) mod M].
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from replication.config.recipes.segmentation import SegmentationRecipe
from replication.context import Trained, Values, passes
from replication.training.segmentation.accuracy import Sample, ValidationSamples
from replication.training.segmentation.config import Fit
from vitrail.errors import VitrailError, did_you_mean
from vitrail.measures.loading import evenly_spread
from vitrail.measures.outputs import require_classes, require_finite
from vitrail.measures.shifts import circular_shift, draws, integers, zero_padded_shift

Mode = Literal["circular", "standard"]
STANDARD_SIDE = 512
"""Short side, in pixels, of the images to which `max_shift` refers."""


@passes(2)
def segmentation_consistency(
    trained: Trained[SegmentationRecipe],
    mode: Mode,
    max_shift: int = 32,
    images: int | None = None,
    fit: Fit | None = None,
) -> Values:
    """Compare the predictions of two shifted views of each image, at the network's resolution.

    Source: shift, Sec. 5.5, Sec. 5.6.

    Images are those of the validation split, or `images` spread evenly over it. In the mode
    ``circular`` all offsets are equally likely. In the mode ``standard`` offsets are up to
    `max_shift` either way, on each axis, in pixels of an image whose short side is 512 (other
    images are shifted by the same fraction of their short side, rounded down), and pixels left
    empty have the colour with which MMSegmentation pads. Images are brought to a multiple of the
    divisor as the recipe says, or by `fit`: ``pad`` or ``resize``.

    Returns:
        ``mascc`` (percent: the mean over images of the share of pixels that agree), ``identical``
        (percent of images in which all pixels agree), ``bitwise`` (percent of images in which all
        logits agree in every bit), ``images``; for standard shifts also ``max_shift_pixels``, the
        largest limit of an image.

    Raises:
        VitrailError: there is no such mode, or a logit is not finite.
    """
    if mode not in get_args(Mode):
        raise VitrailError(f"there is no mode '{mode}'{did_you_mean(mode, get_args(Mode))}")
    samples = ValidationSamples(trained, fit)
    chosen = evenly_spread(len(samples), images)
    shares, bitwise, limits = [], [], [0]
    for index in chosen:
        sample = samples[index]
        uniform = draws(trained.seed, f"{mode} shift of a scene", [index], 2, 2)[0]
        if mode == "circular":
            offsets = integers(uniform, torch.tensor(sample.image.shape[1:]) - 1)
        else:
            limits.append(shift_limit(sample, max_shift))
            offsets = integers(uniform, 2 * limits[-1]) - limits[-1]
        logits, seen = shifted_back(trained, sample, offsets, mode)
        both = seen.all(dim=0)
        first, second = logits.argmax(dim=1)
        shares.append((first == second)[both].double().mean().item())
        bitwise.append((logits[0] == logits[1])[:, both].all().item())
    counts = {"mascc": sum(shares), "identical": shares.count(1.0), "bitwise": sum(bitwise)}
    values = {name: 100 * count / len(chosen) for name, count in counts.items()}
    more = {} if mode == "circular" else {"max_shift_pixels": max(limits)}
    return {**values, "images": len(chosen), **more}


def shift_limit(sample: Sample, max_shift: int) -> int:
    """Return the largest shift of a sample in pixels; `max_shift` refers to a short side of 512."""
    return max_shift * min(shown_size(sample)) // STANDARD_SIDE


def shown_size(sample: Sample) -> tuple[int, int]:
    """Return height and width of the image without the padding below and to the right."""
    height, width = sample.told.img_shape[:2]
    return height, width


def shifted_back(
    trained: Trained[SegmentationRecipe], sample: Sample, offsets: Tensor, mode: Mode
) -> tuple[Tensor, Tensor]:
    """Segment an image shifted by `offsets`, int64 ``(views, 2)``, and shift the predictions back.

    Returns:
        logits ``(views, classes, h, w)`` at the pixels of the unpadded image, and ``(views, h, w)``
        bool, whether a view shows that pixel.
    """
    height, width = shown_size(sample)
    padding = sample.image.shape[2] - width, sample.image.shape[1] - height
    shown = sample.image[:, :height, :width].to(trained.device).expand(len(offsets), -1, -1, -1)
    inside = torch.ones_like(shown[:, :1])
    if mode == "circular":
        views = circular_shift(shown, offsets)
    else:
        views = zero_padded_shift(shown, offsets, torch.zeros(len(sample.image)))
        inside = circular_shift(zero_padded_shift(inside, offsets, torch.zeros(1)), -offsets)
    logits = logits_of(trained.model, functional.pad(views, (0, padding[0], 0, padding[1])))
    return circular_shift(logits[:, :, :height, :width], -offsets), inside[:, 0] > 0


def logits_of(model: Any, images: Tensor) -> Tensor:
    """Run a segmenter as in MMSegmentation's tests: ``(B, 3, H, W)`` to ``(B, classes, H, W)``.

    Raises:
        VitrailError: there are fewer than two classes, or a logit is NaN or infinite.
    """
    told = {"img_shape": images.shape[2:], "ori_shape": images.shape[2:]}
    with torch.inference_mode():
        logits: Tensor = model.inference(images, [dict(told) for _ in images])
    require_classes(logits.shape[1])
    return require_finite(logits, "logits")
