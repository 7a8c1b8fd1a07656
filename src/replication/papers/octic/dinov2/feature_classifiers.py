"""Classifiers of frozen features: nearest neighbours and logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from replication.images.image_folder import ClassFolders
from replication.images.loading import EvaluationSamples
from vitrail.errors import VitrailError, first_line
from vitrail.measures.equivariance import evaluating
from vitrail.measures.loading import eval_loader
from vitrail.measures.outputs import require_finite

TEMPERATURE = 0.07
CHUNK = 1 << 18  # rows of a bank on the device at a time, as in the released code
QUERIES = 256  # queries that are compared with them at a time
UNLABELLED = -100  # the label that torch's cross-entropy ignores

Metric = Literal["cosine", "L2"]

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
        model: maps images ``(B, 3, H, W)`` to features ``(B, C)``; it is run in evaluation mode,
            and its mode is restored.
        view: transforms a PIL image to ``(3, H, W)``.
        train: a folder with one folder of images for each class.
        val: another, with the same classes.
        neighbours: how many vote.
        batch_size: images at a time.

    Returns:
        the accuracy on `val` in percent.

    Raises:
        VitrailError: a folder holds no such images, the classes differ, or the model returns
            anything but features, or numbers that are not finite.
    """
    try:
        bank, queries = map(ClassFolders, (train, val))
    except OSError as error:
        advice = "give a folder of one folder of images for each class"
        raise VitrailError(f"{first_line(error)}: {advice}") from None
    if bank.classes != queries.classes:
        alone = sorted({*bank.classes} ^ {*queries.classes})[0]
        raise VitrailError(f"class folder {alone} is in only one of {train} and {val}")
    device, seen = next(model.parameters()).device, []
    with evaluating(model):
        for images in (bank, queries):
            batches = eval_loader(EvaluationSamples(images, view), batch_size, device=device)
            shown = (batch.to(device, non_blocking=True) for batch, _ in batches)
            seen.append(torch.cat([_features(model, batch) for batch in shown]))
    labels = torch.tensor(bank.targets)
    found = vote(seen[0], labels, seen[1], len(bank.classes), [neighbours])[neighbours]
    return 100 * (found == torch.tensor(queries.targets)).double().mean().item()


def _features(model: nn.Module, images: Tensor) -> Tensor:
    features = model(images)
    if not isinstance(features, Tensor) or features.ndim != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise VitrailError(
            f"the model returns {found} for {images.shape[0]} images: give one that returns "
            "features (B, C), such as timm's with num_classes=0"
        )
    return require_finite(features, "features")


def closest(
    bank: Tensor,
    queries: Tensor,
    k: int,
    metric: Metric,
    device: str | torch.device | None = None,
    usable: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Find, for each query ``(Q, C)``, the k nearest rows of a bank ``(M, C)``, or all if M < k.

    Either may lie on the CPU: `CHUNK` rows of the bank and `QUERIES` queries at a time are on
    `device`, by default the queries' own. Products are in the queries' precision, in float32 if
    that is half.

    Args:
        bank: the features that are searched.
        queries: the features whose neighbours are found.
        k: number of neighbours.
        metric: ``cosine``, or ``L2``.
        device: where products are computed.
        usable: bool ``(M,)``, which rows of the bank may be found; all if None.

    Returns:
        similarities ``(Q, k)``, the largest first, and rows of the bank ``(Q, k)``, on the device.
        By cosine that is the similarity; in L2 it is ``2 q b - b b``, which orders rows as the
        distance does.
    """
    device = torch.device(device or queries.device)
    precise = torch.promote_types(queries.dtype, torch.float32)
    k = min(k, len(bank) if usable is None else int(usable.sum()))
    near: list[Tensor] = [torch.empty(0, device=device)] * -(-len(queries) // QUERIES)
    rows: list[Tensor] = list(near)
    for start in range(0, len(bank), CHUNK):
        points = _widened(bank[start : start + CHUNK].to(device))
        points = (functional.normalize(points, dim=1) if metric == "cosine" else points).to(precise)
        squares = points.square().sum(1) if metric == "L2" else None
        for number, part in enumerate(queries.split(QUERIES)):
            part = _widened(part.to(device))
            if squares is None:
                similar = functional.normalize(part, dim=1) @ points.T
            else:
                similar = 2 * part @ points.T - squares
            if usable is not None:
                similar = similar.masked_fill(~usable[start : start + CHUNK].to(device), -torch.inf)
            values, found = similar.topk(min(k, len(points)))
            if start:  # merge with the best so far
                values, found = (
                    torch.cat(both, 1)
                    for both in ((near[number], values), (rows[number], found + start))
                )
                values, best = values.topk(min(k, values.shape[1]))
                found = found.gather(1, best)
            near[number], rows[number] = values, found
    return torch.cat(near), torch.cat(rows)


def _widened(features: Tensor) -> Tensor:
    """Return features in half precision as float32, others unchanged."""
    return features.to(torch.promote_types(features.dtype, torch.float32))


def vote(
    bank: Tensor,
    labels: Tensor,
    queries: Tensor,
    classes: int,
    neighbours: Sequence[int],
    device: str | torch.device | None = None,
) -> dict[int, Tensor]:
    """Classify queries ``(Q, C)`` by the votes of the nearest rows of a bank ``(M, C)``.

    The weight of a vote is the softmax of the cosines, over the largest number of `neighbours`.

    Returns:
        for each number of neighbours the classes ``(Q,)``, on the CPU.
    """
    cosines, near = closest(bank, queries, max(neighbours), "cosine", device)
    found: dict[int, list[Tensor]] = {k: [] for k in neighbours}
    for similar, rows in zip(cosines.split(QUERIES), near.split(QUERIES), strict=True):
        votes = weighed(similar.cpu(), labels[rows.cpu()], classes, neighbours)
        for k in neighbours:
            found[k].append(votes[k].argmax(1))
    return {k: torch.cat(parts) for k, parts in found.items()}


def weighed(
    cosines: Tensor, voters: Tensor, classes: int, neighbours: Sequence[int]
) -> dict[int, Tensor]:
    """Add up the votes of neighbours with cosines and labels ``(Q, k)``, the nearest first.

    Returns:
        votes ``(Q, classes)`` in float64 by number of neighbours.
    """
    weights = (cosines.double() / TEMPERATURE).softmax(1)
    none = torch.zeros(len(cosines), classes, dtype=torch.float64)
    return {k: none.scatter_add(1, voters[:, :k], weights[:, :k]) for k in neighbours}


def nearest(bank: Tensor, labels: Tensor, classes: int, k: int) -> Classifier:
    """Return a classifier by majority of the k nearest rows of a bank: ``(Q, C)`` to ``(Q,)``.

    Nearest is in L2; of equally frequent classes the smallest is chosen.
    """

    def classify(tokens: Tensor) -> Tensor:
        _, near = closest(bank, tokens, k, "L2")
        return functional.one_hot(labels[near.cpu()], classes).sum(1).argmax(1)

    return classify


def logistic_regression(
    features: Tensor,
    labels: Tensor,
    classes: int,
    strength: float,
    iterations: int = 1000,
    device: str | torch.device | None = None,
    tolerance: float = 1e-5,
    history: int = 100,
) -> nn.Linear:
    """Fit a linear classifier to `features` ``(M, C)`` and `labels` ``(M,)``.

    Multinomial logistic regression by L-BFGS: it minimises ``strength sum CE + |W|^2 / 2``, the
    bias unpenalised. `strength` is scikit-learn's C; scikit-learn and cuML have the same objective,
    but each runs on one kind of device. Features may lie on the CPU and be in half precision:
    `CHUNK` rows at a time are on `device`, by default their own, in float32. Rows of the label
    `UNLABELLED` are left out.

    Args:
        features: of the rows to fit, ``(M, C)``.
        labels: their classes, ``(M,)``.
        classes: how many there are.
        strength: weight of the loss against the penalty.
        iterations: largest number of steps.
        device: where to compute.
        tolerance: steps end when no derivative of the objective divided by ``strength M`` is
            larger, or a step changes this quotient by less than a ten-thousandth of `tolerance`.
        history: how many earlier steps L-BFGS keeps.
    """
    device = torch.device(device or features.device)
    labels = labels.to(device)
    count = int((labels != UNLABELLED).sum())
    width, precise = features.shape[1], torch.promote_types(features.dtype, torch.float32)
    layer = nn.Linear(width, classes, device=device, dtype=precise)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(
        layer.parameters(),
        max_iter=iterations,
        tolerance_grad=tolerance,
        tolerance_change=1e-4 * tolerance,
        history_size=history,
        line_search_fn="strong_wolfe",
    )

    def objective() -> float:
        optimizer.zero_grad()
        # Divided by C M, so that the tolerance does not depend on them.
        penalty = layer.weight.square().sum() / (2 * strength * count)
        penalty.backward()
        total = penalty.item()
        for rows, truth in zip(features.split(CHUNK), labels.split(CHUNK), strict=True):
            logits = layer(_widened(rows.to(device, non_blocking=True)))
            sum_ = functional.cross_entropy(
                logits, truth.long(), reduction="sum", ignore_index=UNLABELLED
            )
            loss = sum_ / count
            loss.backward()
            total += loss.item()
        return total

    optimizer.step(objective)
    return layer.requires_grad_(False)
