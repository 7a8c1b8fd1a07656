"""Classifiers of frozen features: neighbours, also in a folder of images, and a linear layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.datasets import ImageFolder

from vitrail.errors import VitrailError, first_line
from vitrail.images.decoding import read_image
from vitrail.images.loading import EvaluationSamples, eval_loader

TEMPERATURE = 0.07
QUERIES = 256  # at a time: a bank of 4 million patches gives each as many distances

Classifier = Callable[[Tensor], Tensor]
View = Callable[[Any], Any]


@torch.inference_mode()
def knn_accuracy(
    model: nn.Module,
    view: View,
    train: str | Path,
    val: str | Path,
    neighbours: int = 20,
    batch_size: int = 128,
) -> float:
    """Classify the images of a folder by their nearest neighbours in another, as DINOv2 does.

    Args:
        model: images ``(B, 3, H, W)`` to features ``(B, C)``.
        view: a PIL image to ``(3, H, W)``.
        train: a folder of one folder of images for each class.
        val: the like, with the same classes.
        neighbours: how many vote.
        batch_size: images at a time.

    Returns:
        the accuracy on `val` in percent.

    Raises:
        VitrailError: a folder holds no such images, or the classes differ.
    """
    try:
        bank, queries = (ImageFolder(folder, loader=read_image) for folder in (train, val))
    except FileNotFoundError as error:
        advice = "give a folder of one folder of images for each class"
        raise VitrailError(f"{first_line(error)}: {advice}") from None
    if bank.classes != queries.classes:
        alone = sorted({*bank.classes} ^ {*queries.classes})[0]
        raise VitrailError(f"class folder {alone} is in only one of {train} and {val}")
    device, seen = next(model.parameters()).device, []
    for images in (bank, queries):
        batches = eval_loader(EvaluationSamples(images, view), batch_size)
        seen.append(torch.cat([model(batch.to(device)) for batch, _ in batches]))
    labels = torch.tensor(bank.targets)
    votes = vote(seen[0], labels, seen[1], len(bank.classes), [neighbours])[neighbours]
    return 100 * (votes.argmax(1) == torch.tensor(queries.targets)).double().mean().item()


def vote(
    bank: Tensor, labels: Tensor, queries: Tensor, classes: int, neighbours: Sequence[int]
) -> dict[int, Tensor]:
    """Let the nearest of a bank ``(M, C)`` vote for the classes of ``(Q, C)``.

    A vote weighs the softmax of the cosine over all of the largest number of neighbours.

    Returns:
        votes ``(Q, classes)`` by number of neighbours.
    """
    votes: dict[int, list[Tensor]] = {k: [] for k in neighbours}
    bank = functional.normalize(bank, dim=1).to(queries.dtype)
    for part in functional.normalize(queries, dim=1).split(QUERIES):
        cosines, near = (part @ bank.T).topk(min(max(neighbours), len(bank)))
        weights = (cosines.double() / TEMPERATURE).softmax(1).cpu()
        voters = labels[near.cpu()]
        for k in neighbours:
            none = torch.zeros(len(part), classes, dtype=torch.float64)
            votes[k].append(none.scatter_add_(1, voters[:, :k], weights[:, :k]))
    return {k: torch.cat(parts) for k, parts in votes.items()}


def nearest(bank: Tensor, labels: Tensor, classes: int, k: int, metric: str) -> Classifier:
    """Return what gives ``(Q, C)`` the class ``(Q,)`` of most of the k nearest of ``(M, C)``.

    `metric` is ``cosine`` or ``L2``; of equally frequent classes the first counts.
    """
    labels = labels.to(bank.device)
    squares = bank.square().sum(1) if metric == "L2" else None
    points = bank if metric == "L2" else functional.normalize(bank, dim=1)

    def classify(tokens: Tensor) -> Tensor:
        found = []
        for part in tokens.split(QUERIES):
            # The nearest in L2 are those of the largest 2 q b - b b; a query's length is no matter.
            near = part @ points.T if squares is None else 2 * part @ points.T - squares
            votes = functional.one_hot(labels[near.topk(min(k, len(bank))).indices], classes)
            found.append(votes.sum(1).argmax(1))
        return torch.cat(found)

    return classify


def logistic_regression(
    features: Tensor,
    labels: Tensor,
    classes: int,
    strength: float,
    iterations: int = 1000,
    chunk: int = 1 << 16,
) -> nn.Linear:
    """Fit a linear classifier to `features` ``(M, C)`` and `labels` ``(M,)``, on their device.

    Multinomial logistic regression by L-BFGS: it minimises ``strength sum CE + |W|^2 / 2``, the
    bias unpenalised. `strength` is scikit-learn's C; scikit-learn and cuML have the same objective,
    but each runs on one kind of device. There are at most so many `iterations`, on `chunk` rows at
    a time.
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
