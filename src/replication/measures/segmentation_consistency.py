"""mASCC: how many pixels keep their predicted class when the image is shifted (shift, Eq. 26).

A circular shift only moves pixels, so a truly shift-equivariant segmenter agrees on all, unless the
image repeats itself (`vitrail.shift.upernet`). Of a standard shift, only pixels that both views
show are compared. As in `replication.measures.consistency`, draws follow from the seed and the
image's index alone, and an offset o is the exponent of S: shifted[i] = x[(i + o) mod M].
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
"""Short side of the images whose pixels `max_shift` counts."""


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

    Judged are the validation split, or `images` spread evenly over it. Offsets are any at all
    where the mode is ``circular``. Where it is ``standard`` they are up to `max_shift` either way,
    on each axis, in pixels of an image whose short side is 512 (others shift by the same part of
    theirs, rounded down), and pixels left empty have the colour that MMSegmentation pads with.
    Images come to multiples as the recipe says, or by `fit`, ``pad`` or ``resize``.

    Returns:
        ``mascc`` (percent: the mean over images of the share of pixels that agree), ``identical``
        (percent of images of which all pixels agree), ``bitwise`` (of which all logits do, in
        every bit), ``images``; for standard shifts also ``max_shift_pixels``, the largest limit.

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
    """`max_shift` of 512 pixels, in pixels of this sample."""
    return max_shift * min(shown_size(sample)) // STANDARD_SIDE


def shown_size(sample: Sample) -> tuple[int, int]:
    """Height and width of what the image shows, without what pads it below and to the right."""
    height, width = sample.told.img_shape[:2]
    return height, width


def shifted_back(
    trained: Trained[SegmentationRecipe], sample: Sample, offsets: Tensor, mode: Mode
) -> tuple[Tensor, Tensor]:
    """Segment an image shifted by `offsets`, int64 ``(views, 2)``, and shift the predictions back.

    Returns:
        logits ``(views, classes, h, w)`` at the pixels of the image, and which of these pixels a
        view shows, ``(views, h, w)``.
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
    """Run a segmenter as MMSegmentation tests it: ``(B, 3, H, W)`` to ``(B, classes, H, W)``.

    Raises:
        VitrailError: there are fewer than two classes, or a logit is NaN or infinite.
    """
    told = {"img_shape": images.shape[2:], "ori_shape": images.shape[2:]}
    with torch.inference_mode():
        logits: Tensor = model.inference(images, [dict(told) for _ in images])
    require_classes(logits.shape[1])
    return require_finite(logits, "logits")
