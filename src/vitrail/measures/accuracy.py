"""Top-1 and top-5 accuracy on the validation split, as the recipe evaluates.

This measure has a module of its own because a measurement's name contains that of its module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.images.loading import EvaluationSamples, eval_loader
from vitrail.images.opening import build
from vitrail.images.transforms import eval_transform
from vitrail.measures.context import Trained, Values, passes
from vitrail.scores import BY_IMAGE, pack


@passes(1)
def accuracy(trained: Trained, batch_size: int = 128, image_size: int | None = None) -> Values:
    """Measure accuracy on square images of `image_size` pixels, by default the recipe's own.

    The batch size does not change it.

    Returns:
        ``top1``, ``top5`` (percent), ``images`` (how many were judged) and ``top1 by image``.
    """
    samples = EvaluationSamples(
        build(trained.info, "val", trained.data_root, trained.seed),
        eval_transform(trained.recipe, trained.info, image_size),
    )
    batches = eval_loader(samples, batch_size, trained.workers, trained.device)
    right = torch.cat([hits(trained.logits(images), labels) for images, labels in batches])
    top1, top5 = (100 * right.sum(dim=0).double() / len(right)).tolist()
    by_image = {"top1" + BY_IMAGE: pack(right[:, 0].tolist())}
    return {"top1": top1, "top5": top5, "images": len(right), **by_image}


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Is each label the best one, and among the best five, of logits (B, classes)? (B, 2) bool."""
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    match = best == labels[:, None]  # (B, 5)
    return torch.stack([match[:, 0], match.any(dim=1)], dim=1)
