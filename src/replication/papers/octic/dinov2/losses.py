"""DINOv2's losses and targets (Oquab et al., 2024, Sec. 4), as its authors' code has them.

Crops are ordered by views: of 2B global crops the first B are the first views of all images. Losses
are computed for each micro-batch; targets depend on all micro-batches of a step, of all processes.
All targets are probabilities, and `temperature` is the student's (losses) or the teacher's
(targets).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from replication.config.recipes.self_supervision import SelfSupervisionRecipe
    from replication.papers.octic.dinov2.crops import Masked

EPS = 1e-8
SINKHORN_ITERATIONS = 3


def cross_entropy(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of each row: logits and targets ``(M, K)`` to ``(M,)``."""
    return -(targets * functional.log_softmax(logits / temperature, dim=-1)).sum(-1)


def dino_losses(
    global_logits: Tensor, local_logits: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return DINO's loss of global logits ``(2B, K)`` and of local ones ``(V B, K)``.

    Every local crop is compared with both global targets of its image, ``(2B, K)``, a global one
    with the other view's; the sum of all is divided by the number of pairs.
    """
    first, second = targets.chunk(2)
    views = len(local_logits) // len(first)
    pairs = max(2 * views, 1) + 2  # without local crops, DINOv2 still counts one local pair
    swapped = torch.cat([second, first])
    of_global = 2 * cross_entropy(global_logits, swapped, temperature).mean() / pairs
    if not views:
        return of_global, of_global.new_zeros(())
    both = (first + second).repeat(views, 1)  # the cross-entropy is linear in its targets
    return of_global, views * cross_entropy(local_logits, both, temperature).mean() / pairs


def ibot_loss(logits: Tensor, targets: Tensor, masked: Masked, temperature: float) -> Tensor:
    """Return iBOT's loss: the mean over an image's masked patches, averaged over all images.

    Logits and targets ``(M, K)`` of the masked patches are in the order of `masked`; an image
    without a masked patch counts as zero.
    """
    losses = masked.weight * cross_entropy(logits, targets, temperature)
    return losses.sum() / len(masked.mask)


def koleo_loss(features: Tensor) -> Tensor:
    """Return minus the mean log distance of each normalised row of ``(B, C)`` to its nearest row.

    It moves the features of different images apart (Sablayrolles et al., 2019).
    """
    with torch.autocast(features.device.type, enabled=False):
        points = functional.normalize(features.float(), dim=-1, eps=EPS)
        with torch.no_grad():
            nearest = (points @ points.T).fill_diagonal_(-1).argmax(1)
        return -(functional.pairwise_distance(points, points[nearest], eps=EPS) + EPS).log().mean()


class Processes(Protocol):
    """One or several processes that share a step, each with micro-batches of its own."""

    def sum(self, values: Tensor) -> Tensor:
        """Add up `values`, of any shape, over the processes."""

    def mean(self, values: Tensor) -> Tensor:
        """Average `values`, of any shape, over the processes."""


class Centering(nn.Module):
    """Targets by softmax of logits minus a centre, which is a moving average of their mean.

    Attributes:
        centre: ``(K,)``; after each step it moves towards the mean over micro-batches of the mean
            over a micro-batch's rows.
    """

    centre: Tensor

    def __init__(self, prototypes: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("centre", torch.zeros(prototypes))

    def forward(
        self, batches: Sequence[Tensor], temperature: float, team: Processes
    ) -> list[Tensor]:
        """Return the targets of micro-batches of logits ``(M, K)``; then move the centre."""
        targets = [((logits - self.centre) / temperature).softmax(-1) for logits in batches]
        mean = team.mean(torch.stack([logits.mean(0) for logits in batches]).mean(0))
        self.centre.lerp_(mean, 1 - self.momentum)
        return targets


class Sinkhorn(nn.Module):
    """Targets that use all prototypes equally, by Sinkhorn and Knopp's iteration (SwAV, 2020)."""

    def forward(
        self, batches: Sequence[Tensor], temperature: float, team: Processes
    ) -> list[Tensor]:
        """Return the targets of micro-batches of logits ``(M, K)``; each row sums to one."""
        q = (torch.cat(list(batches)) / temperature).exp()
        rows = team.sum(q.new_tensor(float(len(q))))
        q = q / team.sum(q.sum())
        for _ in range(SINKHORN_ITERATIONS):
            q = q / (team.sum(q.sum(0)) * q.shape[1])  # each prototype weighs 1 / K
            q = q / (q.sum(1, keepdim=True) * rows)  # each row 1 / M
        return list((q * rows).split([len(logits) for logits in batches]))


def targets_of(recipe: SelfSupervisionRecipe) -> Sinkhorn | Centering:
    """Make the module that turns the teacher's logits into targets."""
    if recipe.teacher.centering == "sinkhorn":
        return Sinkhorn()
    return Centering(recipe.head.prototypes, recipe.teacher.center_momentum)
