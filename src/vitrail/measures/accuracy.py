"""Top-1 and top-5 accuracy of a classifier."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitrail.measures.outputs import Batches, logits_of


class Accuracy(NamedTuple):
    """The result of `accuracy` on N images."""

    top1: float  # percent
    top5: float  # percent
    right: Tensor  # (N, 2) bool: whether the label is the best class, and among the best five


def accuracy(model: nn.Module, batches: Batches) -> Accuracy:
    """Compare a classifier's predictions with labels.

    Args:
        model: a classifier in evaluation mode.
        batches: images ``(B, 3, H, W)`` with labels ``(B,)``. The batch size does not matter.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """
    right = torch.cat([hits(logits_of(model, images), labels) for images, labels in batches])
    top1, top5 = (100 * right.sum(dim=0).double() / len(right)).tolist()
    return Accuracy(top1, top5, right)


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether each label is the best, and among the best five: (B, 2) bool.

    Logits are (B, classes), labels (B,).
    """
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    match = best == labels[:, None]  # (B, 5)
    return torch.stack([match[:, 0], match.any(dim=1)], dim=1)
