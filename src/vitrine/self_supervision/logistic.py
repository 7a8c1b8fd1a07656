"""Multinomial logistic regression by L-BFGS on any device, as scikit-learn's defines it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def logistic_regression(
    features: Tensor,
    labels: Tensor,
    classes: int,
    strength: float,
    iterations: int = 1000,
    chunk: int = 1 << 16,
) -> nn.Linear:
    """Return the layer that is fit on ``(M, C)`` and ``(M,)``, on the features' device.

    It minimises ``strength sum CE + |W|^2 / 2``, the bias unpenalised, which is scikit-learn's
    objective and cuML's; theirs run on one kind of device each. There are at most so many
    `iterations`, on `chunk` rows at a time.
    """
    labels = labels.to(features.device)
    layer = nn.Linear(features.shape[1], classes, device=features.device, dtype=features.dtype)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=iterations, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def objective() -> float:
        optimizer.zero_grad()
        # Divided by C M, so that the tolerance means the same for all.
        penalty = layer.weight.square().sum() / (2 * strength * len(labels))
        penalty.backward()
        total = penalty.item()
        for rows, truth in zip(features.split(chunk), labels.split(chunk), strict=True):
            loss = functional.cross_entropy(layer(rows), truth, reduction="sum") / len(labels)
            loss.backward()
            total += loss.item()
        return total

    optimizer.step(objective)
    return layer.requires_grad_(False)
