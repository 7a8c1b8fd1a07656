"""A measure of the paper's own."""

import torch

from replication.context import Trained, Values, passes
from replication.images.loading import EvaluationSamples
from replication.images.opening import build
from replication.images.transforms import eval_transform
from vitrail.measures.loading import eval_loader


@passes(lambda given: len(given["shares"]))
def noisy_accuracy(trained: Trained, shares: tuple[float, ...] = (0.0, 0.5)) -> Values:
    """Top-1 accuracy (percent) on images under noise, each share of their deviation as a key."""
    images = build(trained.info, "val", trained.data_root)
    samples = EvaluationSamples(images, eval_transform(trained.recipe, trained.info))
    generator = torch.Generator().manual_seed(trained.seed)
    right = dict.fromkeys(shares, 0)
    for batch, labels in eval_loader(samples, 128):
        noise = batch.std() * torch.randn(batch.shape, generator=generator)
        for share in shares:
            best = trained.logits(batch + share * noise).argmax(1)
            right[share] += int((best == labels).sum())
    return {f"{share}": 100 * count / len(samples) for share, count in right.items()}
