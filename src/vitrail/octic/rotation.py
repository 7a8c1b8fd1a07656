"""The accuracy of models on turned images (octic, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.images.transforms import eval_transform
from vitrail.measures.accuracy import hits
from vitrail.measures.consistency import validation_batches
from vitrail.measures.context import Trained, Values, passes
from vitrail.seeding import derive

EQUAL = 1e-4
"""Of an image's largest logit: how far logits may lie apart and still be called equal."""


@passes(2)
def rotated_accuracy(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Turn every validation image by a random multiple of 90 degrees (Table 2, "OOD Rot.").

    Source: octic, Sec. 4.1.

    The turn depends on the image's index alone. Of the validation split `images` are judged, spread
    evenly; None is all.

    Returns:
        ``top1``, ``top5``, ``rotated/top1``, ``rotated/top5`` in percent, ``change`` of top-1 in
        points, ``equal`` (percent of images whose logits stay within `EQUAL`; a quarter is not
        turned at all), ``max_logit_difference`` and ``images``.
    """
    transform = eval_transform(trained.recipe, trained.info)
    upright, rotated = torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    total, equal, difference = 0, 0, 0.0
    for indices, batch, labels in validation_batches(trained, transform, batch_size, images):
        before = trained.logits(batch)
        after = trained.logits(turned(batch, [quarter_turns(trained.seed, i) for i in indices]))
        upright += hits(before, labels).sum(dim=0)
        rotated += hits(after, labels).sum(dim=0)
        changes = (after - before).abs().amax(1)
        equal += int((changes <= EQUAL * before.abs().amax(1)).sum())
        difference = max(difference, changes.max().item())
        total += len(labels)
    (top1, top5), (rotated_top1, rotated_top5) = (100 * upright / total), (100 * rotated / total)
    return {
        "top1": top1.item(),
        "top5": top5.item(),
        "rotated/top1": rotated_top1.item(),
        "rotated/top5": rotated_top5.item(),
        "change": (rotated_top1 - top1).item(),
        "equal": 100 * equal / total,
        "max_logit_difference": difference,
        "images": total,
    }


def quarter_turns(seed: int, index: int) -> int:
    """Draw 0 to 3 for the image of this index in the split."""
    return derive("quarter turns", seed, index) % 4


def turned(images: Tensor, turns: Sequence[int]) -> Tensor:
    """Turn each of ``(B, C, S, S)`` anticlockwise by its number of quarters."""
    return torch.stack([image.rot90(k, (-2, -1)) for image, k in zip(images, turns, strict=True)])
