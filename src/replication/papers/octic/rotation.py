"""The accuracy of trained models on turned images (octic, Sec. 4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replication.context import Trained, Values, passes
from replication.measures.flops import flops_of_trained
from replication.measures.packed_scores import BY_IMAGE, pack
from replication.measures.validation_split import validation
from vitrail.octic.group import ELEMENTS
from vitrail.octic.group_averaging import WAYS, GroupAverage
from vitrail.octic.turns import accuracy_under_turns


@passes(2)
def rotated_accuracy(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Turn every validation image by a random multiple of 90 degrees (Table 2, "OOD Rot.").

    Source: octic, Sec. 4.1.

    The turn depends on the seed and the image's index only. `images` is their number, spread evenly
    over the validation split; None is all.

    Returns:
        ``top1``, ``top5``, ``rotated/top1``, ``rotated/top5`` in percent, ``change`` of top-1 in
        points, ``equal`` (percent of images whose logits stay within
        `vitrail.octic.turns.EQUAL_RTOL`; a quarter is not turned at all),
        ``max_logit_difference`` and ``images``; ``top1`` and ``change`` also by image.
    """
    indices, _, batches = validation(trained, None, batch_size, images)
    found = accuracy_under_turns(trained.model, batches, seed=trained.seed, indices=indices)
    right, right_turned = found.right, found.right_rotated
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
        "equal": 100 * int(found.equal.sum()) / total,
        "max_logit_difference": found.max_logit_difference,
        "images": total,
        f"top1{BY_IMAGE}": pack(right[:, 0].tolist()),
        f"change{BY_IMAGE}": pack(changed.tolist()),
    }


@passes(2 * len(ELEMENTS) * len(WAYS))
def accuracy_of_views(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Measure `rotated_accuracy` of a classifier that averages over eight views of each image.

    Arguments are those of `rotated_accuracy`.

    Returns:
        for each of `vitrail.octic.group_averaging.WAYS` the values of `rotated_accuracy` and
        `flops_of_trained`, as ``"<mean|surest>/<key>"``.
    """
    values: dict[str, Any] = {}
    for name, combine in WAYS.items():
        viewed = replace(trained, model=GroupAverage(trained.model, combine))
        found = {**rotated_accuracy(viewed, batch_size, images), **flops_of_trained(viewed)}
        values |= {f"{name}/{key}": value for key, value in found.items()}
    return values
