"""Measure Figures 5, A1 and A2 of the shift paper: predictions before and after a shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmseg.registry import DATASETS
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from replication.config.recipes.segmentation import SegmentationRecipe
from replication.context import Trained, Values, passes
from replication.images.masks import IGNORED, UNSEEN
from replication.measures.segmentation_consistency import shift_limit, shifted_back, shown_size
from replication.training.segmentation.accuracy import Sample, ValidationSamples
from vitrail.measures.shifts import draws, integers

EVERYWHERE = np.ones((3, 3))  # pixels that touch at a corner belong together

Box = tuple[int, int, int, int]
"""Top, left, height and width, in pixels."""


@passes(2)
def shift_illustration(
    trained: Trained[SegmentationRecipe],
    images: int = 3,
    max_shift: int = 32,
    boxes: int = 3,
    largest: int = 256,
) -> Values:
    """Segment images and shifted copies; mark regions whose prediction changes (shift, Sec. A4).

    The `images` are spread evenly over the validation split, and repeat if it has fewer. Each is
    shifted by up to `max_shift` pixels (of an image with a short side of 512) either way, on each
    axis. The largest regions, at most `boxes`, are marked. Pictures are subsampled to at most
    `largest` pixels a side.

    Returns:
        for images n = 1, 2 ...: ``<n>/changed``, percent of the pixels in both views whose
        prediction changes; ``<n>/offset``, of the shift; ``<n>/pixels``, (H, W, 3) bytes;
        ``<n>/before`` and ``<n>/after``, (H, W) predicted classes, the latter shifted back, with
        `UNSEEN` for pixels that only one view shows; ``<n>/truth``, the labels, with `UNSEEN` for
        pixels without one; ``<n>/boxes``, a list of `Box`. Also ``classes``, the name of each
        class.
    """
    samples = ValidationSamples(trained)
    assert trained.info.segmentation is not None
    dataset: Any = DATASETS.get(trained.info.segmentation.type)
    values: dict[str, Any] = {"classes": list(dataset.METAINFO["classes"])}
    for number in range(1, images + 1):
        index = (number - 1) * len(samples) // images
        sample = samples[index]
        limit = shift_limit(sample, max_shift)
        uniform = draws(trained.seed, "shift of an illustration", [index], 1, 2)[0]
        offset = integers(uniform, 2 * limit) - limit
        offsets = torch.cat([torch.zeros_like(offset), offset])
        logits, seen = shifted_back(trained, sample, offsets, "standard")
        before, after = logits.argmax(dim=1).cpu()
        both = seen.all(dim=0).cpu()
        changed = (before != after) & both
        step = -(-max(before.shape) // largest)
        kept = (slice(None, None, step), slice(None, None, step))
        values |= {
            f"{number}/changed": 100 * (changed.sum() / both.sum()).item(),
            f"{number}/offset": offset[0].tolist(),
            f"{number}/pixels": _pixels(trained, sample)[kept].tolist(),
            f"{number}/truth": _truth(sample, before.shape)[kept].tolist(),
            f"{number}/before": before[kept].tolist(),
            f"{number}/after": after.masked_fill(~both, UNSEEN)[kept].tolist(),
            f"{number}/boxes": changed_boxes(changed[kept], boxes),
        }
    return values


def changed_boxes(changed: Tensor, most: int) -> list[Box]:
    """Return boxes of the `most` largest regions of changed pixels ``(H, W)``, in that order."""
    regions, count = ndimage.label(changed.numpy(), EVERYWHERE)
    sizes = np.bincount(regions.ravel(), minlength=count + 1)[1:]
    places = ndimage.find_objects(regions)
    return [
        (rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start)
        for rows, columns in (places[region] for region in np.argsort(-sizes, kind="stable")[:most])
    ]


def _truth(sample: Sample, size: Sequence[int]) -> Tensor:
    """Return the labels at the size of the predictions, ``(h, w)``."""
    mask = functional.interpolate(sample.mask[None, None].float(), tuple(size), mode="nearest")
    labels = mask[0, 0].long()
    return labels.masked_fill(labels == IGNORED, UNSEEN)


def _pixels(trained: Trained[SegmentationRecipe], sample: Sample) -> Tensor:
    """Return the network's input without padding and normalisation: ``(h, w, 3)`` bytes."""
    height, width = shown_size(sample)
    preprocessor: Any = trained.model.data_preprocessor
    shown = sample.image[:, :height, :width].to(trained.device)
    pixels = shown * preprocessor.std + preprocessor.mean
    return pixels.round().clamp(0, 255).byte().permute(1, 2, 0).cpu()
