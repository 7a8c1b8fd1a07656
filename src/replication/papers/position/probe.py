"""A linear probe of position: how well final tokens tell in which row and column they stand.

A second measure of position bias beside P-SHAP, as of "What DINO saw" (arXiv 2603.16840). P-SHAP
asks what a prediction owes to position, the probe what the features still know of it.

Ridge regression from the final tokens of the patches to their row and column. It is fitted to every
other image of the validation split and judged on those between, and the other way round. All that
this takes are sums over tokens of products of two numbers, so one pass suffices and no token is
kept. Patches of an image are also assigned each other's places, at random: what a probe finds of
these, it finds by chance.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from replication.context import Trained, Values, passes
from replication.images.transforms import eval_transform
from replication.measures.validation_split import validation_batches
from vitrail.errors import VitrailError
from vitrail.measures.outputs import require_finite
from vitrail.position.vit import PositionViT
from vitrail.seeding import derive

PROBED = (PositionViT, VisionTransformer, Eva)
"""Models whose `forward_features` returns tokens of patches after `num_prefix_tokens` others."""
RIDGE = 1e-3
"""What is added to the correlations of features with themselves, which are 1."""
TARGETS = ("row", "column", "shuffled/row", "shuffled/column")
"""What the probe predicts of a token; those of "shuffled" are in a random order of the patches."""


@passes(1)
@torch.inference_mode()
def position_probe(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Measure how much of a patch's row and column a linear probe of its final token finds.

    Source: "What DINO saw", arXiv 2603.16840.

    Final tokens are those that `forward_features` returns, without class and register tokens.
    `images` of the validation split are taken, spread evenly over it; None is all.

    Returns:
        ``row`` and ``column``: R^2 on held-out images, 1 if the tokens tell it exactly and 0 (or
        less) if they do not; ``r2``, the mean of both; the same of shuffled places as
        ``shuffled/row``, ``shuffled/column`` and ``shuffled/r2``; ``images``.

    Raises:
        VitrailError: the model is not this package's nor timm's ViT or EVA, its features are not
            finite, or there are fewer than two images.
    """
    model: Any = trained.model
    if not isinstance(model, PROBED):
        raise VitrailError(
            f"a {type(model).__name__} cannot be probed for position: give a PositionViT, or one "
            "of timm's ViT or EVA models"
        )
    rows, columns = (model if isinstance(model, PositionViT) else model.patch_embed).grid_size
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    view = eval_transform(trained.recipe, trained.info)
    prefix, done = model.num_prefix_tokens, 0
    sums = [torch.zeros(()), torch.zeros(())]  # of the products of each half, (1 + D + 4, ...)
    for _, batch, _ in validation_batches(trained, view, batch_size, images):
        tokens = require_finite(model.forward_features(batch), "features")[:, prefix:]
        tokens = tokens.cpu().double()
        true = places.expand(len(batch), -1, -1)
        shuffled = _shuffled(places, range(done, done + len(batch)), trained.seed)
        found = torch.cat([torch.ones_like(tokens[..., :1]), tokens, true, shuffled], dim=2)
        for half in (0, 1):  # images of even and of odd numbers
            of_half = found[(done + half) % 2 :: 2].flatten(0, 1)
            sums[half] = sums[half] + of_half.T @ of_half
        done += len(batch)
    if done < 2:
        raise VitrailError(f"a probe of {done} images has none to be judged on: give two")
    scores = torch.stack([held_out_r2(*sums), held_out_r2(*sums[::-1])]).mean(dim=0)
    values = dict(zip(TARGETS, scores.tolist(), strict=True))
    means = {"r2": scores[:2].mean().item(), "shuffled/r2": scores[2:].mean().item()}
    return {**values, **means, "images": done}


def _shuffled(places: Tensor, images: range, seed: int) -> Tensor:
    """Rows and columns ``(N, 2)``, in each image those of other patches: ``(B, N, 2)``."""
    drawn = []
    for image in images:
        generator = torch.Generator().manual_seed(derive("position probe", seed, image))
        drawn.append(places[torch.randperm(len(places), generator=generator)])
    return torch.stack(drawn)


def held_out_r2(fitted: Tensor, judged: Tensor) -> Tensor:
    """Return R^2 of a ridge regression that is fitted to some tokens and judged on others.

    Args:
        fitted: the sums over tokens of the products of ``[1, features, targets]``,
            ``(1 + D + T, 1 + D + T)``.
        judged: likewise, of the others.

    Returns:
        ``(T,)``: 1 less the mean squared error over the variance of the target in `judged`; NaN for
        a target that does not vary.
    """
    targets = len(TARGETS)
    mean = fitted[0, 1:] / fitted[0, 0]
    moments = fitted[1:, 1:] / fitted[0, 0] - mean[:, None] * mean
    features, cross = moments[:-targets, :-targets], moments[:-targets, -targets:]
    scale = features.diagonal().clamp(min=1e-12).sqrt()
    correlations = features / scale[:, None] / scale + RIDGE * torch.eye(len(scale))
    weights = torch.linalg.solve(correlations, cross / scale[:, None]) / scale[:, None]
    # The error is linear in [1, features, targets], so its mean square is a quadratic form.
    constant = mean[-targets:] - mean[:-targets] @ weights
    error = torch.cat([constant[None], weights, -torch.eye(targets)])  # (1 + D + T, T)
    squares = (error * (judged @ error)).sum(dim=0) / judged[0, 0]
    of_target = judged[0, -targets:] / judged[0, 0]
    variance = judged.diagonal()[-targets:] / judged[0, 0] - of_target.square()
    return 1 - squares / variance
