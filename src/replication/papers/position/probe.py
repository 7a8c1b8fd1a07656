"""A linear probe of position: how well the final tokens predict the row and column of their patch.

It is a second measure of position bias besides P-SHAP, from "What DINO saw" (arXiv 2603.16840).
P-SHAP measures how much a prediction depends on position; the probe measures how much information
about position the features contain.

A ridge regression predicts the row and column of each patch from its final token. It is fitted to
every other image of the validation split and evaluated on the images between, and then the other
way round. This only needs sums over tokens of products of two numbers, so one pass suffices and no
token is stored. As a control, the patches of each image also get the positions of a random
permutation: what the probe predicts of these, it predicts by chance.
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
"""Models whose `forward_features` returns `num_prefix_tokens` other tokens, then the patches'."""
RIDGE = 1e-3
"""The ridge penalty: it is added to the diagonal of the features' correlation matrix."""
TARGETS = ("row", "column", "shuffled/row", "shuffled/column")
"""What the probe predicts for a token; "shuffled" positions are permuted among the patches."""


@passes(1)
@torch.inference_mode()
def position_probe(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Measure how well a linear probe predicts a patch's row and column from its final token.

    Source: "What DINO saw", arXiv 2603.16840.

    Final tokens are those that `forward_features` returns, without class and register tokens.
    `images` of the validation split are taken, spread evenly over it; None is all.

    Returns:
        ``row`` and ``column``: R^2 on held-out images, 1 if the prediction is exact, and 0 or less
        if it is useless; ``r2``, the mean of both; the same for shuffled positions as
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
    """Permute rows and columns ``(N, 2)`` at random for each image: ``(B, N, 2)``."""
    drawn = []
    for image in images:
        generator = torch.Generator().manual_seed(derive("position probe", seed, image))
        drawn.append(places[torch.randperm(len(places), generator=generator)])
    return torch.stack(drawn)


def held_out_r2(fitted: Tensor, judged: Tensor) -> Tensor:
    """Return R^2 of a ridge regression that is fitted to some tokens and evaluated on others.

    Args:
        fitted: sums, over the tokens to fit, of the products of ``[1, features, targets]``,
            ``(1 + D + T, 1 + D + T)``.
        judged: the same sums over the tokens to evaluate on.

    Returns:
        ``(T,)``: 1 minus the mean squared error divided by the variance of the target in `judged`;
        NaN for a constant target.
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
