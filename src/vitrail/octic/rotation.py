"""The accuracy of models on turned images (octic, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.images.transforms import eval_transform
from vitrail.measures.accuracy import hits
from vitrail.measures.consistency import validation_batches
from vitrail.measures.context import Trained, Values, passes
from vitrail.scores import BY_IMAGE, pack
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
        turned at all), ``max_logit_difference`` and ``images``; ``top1`` and ``change``
        also by image.
    """
    transform = eval_transform(trained.recipe, trained.info)
    upright, rotated = list[Tensor](), list[Tensor]()
    equal, difference = 0, 0.0
    for indices, batch, labels in validation_batches(trained, transform, batch_size, images):
        before = trained.logits(batch)
        after = trained.logits(turned(batch, [quarter_turns(trained.seed, i) for i in indices]))
        upright.append(hits(before, labels))
        rotated.append(hits(after, labels))
        changes = (after - before).abs().amax(1)
        equal += int((changes <= EQUAL * before.abs().amax(1)).sum())
        difference = max(difference, changes.max().item())
    right, right_turned = torch.cat(upright), torch.cat(rotated)  # (images, top-1 and top-5)
    total = len(right)
    top1, top5 = 100 * right.sum(dim=0) / total
    rotated_top1, rotated_top5 = 100 * right_turned.sum(dim=0) / total
    changed = right_turned[:, 0].int() - right[:, 0].int()
    return {
        "top1": top1.item(),
        "top5": top5.item(),
        "rotated/top1": rotated_top1.item(),
        "rotated/top5": rotated_top5.item(),
        "change": (rotated_top1 - top1).item(),
        "equal": 100 * equal / total,
        "max_logit_difference": difference,
        "images": total,
        f"top1{BY_IMAGE}": pack(right[:, 0].tolist()),
        f"change{BY_IMAGE}": pack(changed.tolist()),
    }


def quarter_turns(seed: int, index: int) -> int:
    """Draw 0 to 3 for the image of this index in the split."""
    return derive("quarter turns", seed, index) % 4


def turned(images: Tensor, turns: Sequence[int]) -> Tensor:
    """Turn each of ``(B, C, S, S)`` anticlockwise by its number of quarters."""
    return torch.stack([image.rot90(k, (-2, -1)) for image, k in zip(images, turns, strict=True)])
