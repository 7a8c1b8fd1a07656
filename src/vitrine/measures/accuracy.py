"""Top-1 and top-5 accuracy on the validation split, as the recipe evaluates.

A file of its own, since the name of a measurement holds that of its module.
"""

from __future__ import annotations

import torch

from vitrine.data import build
from vitrine.data.loading import EvaluationSamples, eval_loader
from vitrine.data.transforms import eval_transform
from vitrine.measures.context import Trained, Values


def accuracy(trained: Trained, batch_size: int = 128, image_size: int | None = None) -> Values:
    """Measure accuracy on square images of `image_size` pixels, by default the recipe's own.

    The batch size does not change it.

    Returns:
        ``top1``, ``top5`` (percent) and ``images`` (how many were judged).
    """
    samples = EvaluationSamples(
        build(trained.info, "val", trained.data_root),
        eval_transform(trained.recipe, trained.info, image_size),
    )
    correct = torch.zeros(2, dtype=torch.long)
    for images, labels in eval_loader(samples, batch_size, trained.workers):
        correct += hits(trained.logits(images), labels)
    percent = 100 * correct.double() / len(samples)
    return {"top1": percent[0].item(), "top5": percent[1].item(), "images": len(samples)}


def hits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Count labels among the best one and the best five of ``(B, classes)`` logits: ``(2,)``."""
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    match = best == labels[:, None]  # (B, 5)
    return torch.stack([match[:, 0].sum(), match.any(dim=1).sum()])
