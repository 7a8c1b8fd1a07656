"""Evaluate frozen patch tokens by segmentation: the protocol of CAPI (Darcet et al., 2025).

As the octic paper's released code has it: images and masks are resized to the recipe's size, and
tokens are standardised channel by channel. A random tenth of the training images is held out to
choose the classifier, which then is fitted to all of them and judged on the validation split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor
from torch.utils.data import Dataset, Subset

from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.context import Trained, Values, passes
from replication.images.masks import IGNORED
from replication.images.opening import Split, build
from replication.images.transforms import normalization
from replication.measures.resume import kept_rows
from replication.papers.octic.dinov2.feature_classifiers import (
    CHUNK,
    QUERIES,
    UNLABELLED,
    Metric,
    closest,
    logistic_regression,
)
from replication.training.model_factory import HALF, Precision, autocast
from vitrail.measures.loading import eval_loader
from vitrail.measures.outputs import require_finite
from vitrail.measures.resume import ResumeFile
from vitrail.seeding import derive

HELD_OUT = 10
STRENGTHS = tuple(10 ** (-6 + 11 * index / 7) for index in range(8))
NEIGHBOURS = (1, 3, 10, 30)
ROWS = 1 << 12  # rows that are processed at a time, in float64 or by their pixels
TOLERANCE, HISTORY = 1e-12, 5  # of L-BFGS, the released code's
METRICS: tuple[Metric, ...] = ("cosine", "L2")


@dataclass(frozen=True)
class Patches:
    """Patches of images on the CPU: tokens ``(M, C)`` and the masks of their pixels ``(M, P)``.

    `labels` ``(M,)`` are the most frequent label of each patch, `UNLABELLED` if it is `IGNORED`.
    """

    tokens: Tensor
    pixels: Tensor
    labels: Tensor

    def __getitem__(self, part: slice) -> Patches:
        """Return a slice of the patches, without copying."""
        return Patches(self.tokens[part], self.pixels[part], self.labels[part])


@passes(lambda given: (given["train_images"] + given["images"]) / given["images"])
def patch_segmentation(
    trained: Trained[SelfSupervisionRecipe],
    strengths: Sequence[float] = STRENGTHS,
    neighbours: Sequence[int] = NEIGHBOURS,
    iterations: int = 1000,
    precision: Precision = "fp32",
    batch_size: int = 64,
) -> Values:
    """Segment by logistic regression and by nearest neighbours on patch tokens (Table 3).

    The model runs in `precision`, in which tokens are stored, too; classifiers compute in float32.
    An interrupted measurement resumes with the scores of the classifiers so far; tokens are
    computed again.

    Returns:
        ``linear`` and ``knn``, mIoU in percent; the chosen ``linear/C``, ``knn/k`` and ``knn/L2``
        (1 for L2 distance, 0 for cosine); ``images``.
    """
    classes, device = trained.reads.classes, trained.device
    shown = {split: ProbedImages(trained, split) for split in ("train", "val")}
    count = len(shown["train"])
    generator = torch.Generator().manual_seed(derive("patch probe", trained.seed))
    order = torch.randperm(count, generator=generator).tolist()
    train = _patches(trained, Subset(shown["train"], order), precision, batch_size)
    val = _patches(trained, shown["val"], precision, batch_size)
    first = max(1, count // HELD_OUT) * len(train.labels) // count
    held_out, fitted = train[:first], train[first:]
    standardize(fitted.tokens, [train.tokens, val.tokens])

    def by_regression(strength: float, bank: Patches, judged: Patches) -> float:
        layer = logistic_regression(
            bank.tokens, bank.labels, classes, strength, iterations, device, TOLERANCE, HISTORY
        )
        parts = [
            layer(part.to(device, layer.weight.dtype)).argmax(1).cpu()
            for part in judged.tokens.split(CHUNK)
        ]
        return mean_iou(torch.cat(parts)[:, None].expand_as(judged.pixels), judged.pixels, classes)

    def by_neighbours(
        metric: Metric, numbers: Sequence[int], bank: Patches, judged: Patches
    ) -> list[float]:
        usable = bank.labels != UNLABELLED
        _, near = closest(bank.tokens, judged.tokens, max(numbers), metric, device, usable)
        rows = near.cpu()
        return [
            mean_iou(votes_by_pixel(bank.pixels, rows[:, :k]), judged.pixels, classes)
            for k in numbers
        ]

    decided = {"precision": precision, "batch": batch_size}
    ends = {"iterations": iterations, "tolerance": TOLERANCE, "history": HISTORY}
    by_strength = {"strengths": list(strengths), **ends, **decided}
    with kept_rows(trained, "segmented-linear", **by_strength) as rows:
        score = _resumed(rows, by_regression)
        strength = max(strengths, key=lambda given: score(given, fitted, held_out))
        linear = score(strength, train, val)
    with kept_rows(trained, "segmented-knn", neighbours=list(neighbours), **decided) as rows:
        scored = _resumed(rows, by_neighbours)
        scores = {
            (k, metric): found
            for metric in METRICS
            for k, found in zip(
                neighbours, scored(metric, neighbours, fitted, held_out), strict=True
            )
        }
    k, metric = max(scores, key=lambda way: scores[way])
    return {
        "images": len(shown["val"]),
        "linear": linear,
        "linear/C": strength,
        "knn": by_neighbours(metric, [k], train, val)[0],
        "knn/k": k,
        "knn/L2": float(metric == "L2"),
    }


Score = TypeVar("Score", float, list[float])


def _resumed(rows: ResumeFile, judge: Callable[..., Score]) -> Callable[..., Score]:
    """Return a function like `judge`, whose first calls return the scores saved in `rows`."""
    done: Iterator[Any] = iter([scores for column in rows.read() for scores in column.tolist()])

    def score(*given: Any) -> Score:
        found: Score | None = next(done, None)
        if found is None:
            found = judge(*given)
            rows.append(torch.tensor([found], dtype=torch.float64))
        return found

    return score


def standardize(fitted: Tensor, features: Sequence[Tensor]) -> None:
    """Subtract the mean of `fitted` ``(M, C)`` and divide by its deviation, channel by channel.

    In place, in all `features`; as scikit-learn's StandardScaler, a constant channel is only
    centred. Sums are in float64.
    """
    none = torch.zeros(fitted.shape[1], dtype=torch.float64)
    mean = sum((part.double().sum(0) for part in fitted.split(ROWS)), none) / len(fitted)
    squares = ((part.double() - mean).square().sum(0) for part in fitted.split(ROWS))
    deviation = (sum(squares, none) / len(fitted)).sqrt()
    deviation[deviation <= 1e-12 * mean.abs()] = 1
    for each in features:
        for part in each.split(ROWS):
            part.copy_((part.double() - mean) / deviation)


def votes_by_pixel(pixels: Tensor, near: Tensor) -> Tensor:
    """Return for each pixel the most frequent value over the near patches; if equal, the smallest.

    Args:
        pixels: labels of the patches of a bank, ``(M, P)``.
        near: the k nearest rows of the bank for each query, ``(Q, k)``.

    Returns:
        ``(Q, P)``.
    """
    return torch.cat([pixels[rows].mode(dim=1).values for rows in near.split(QUERIES)])


def patch_labels(pixels: Tensor) -> Tensor:
    """Return the most frequent label of each patch ``(M, P)``; if equal, the smallest."""
    return torch.cat([part.mode(dim=1).values for part in pixels.split(ROWS)])


def mean_iou(predicted: Tensor, truth: Tensor, classes: int) -> float:
    """Return the mean IoU in percent, over the classes in the truth or the prediction.

    Both are ``(M, P)``; pixels whose truth is `IGNORED` do not count. A predicted `IGNORED` counts
    as one more class, with an IoU of 0, as in the released code.
    """
    confusion = torch.zeros(classes + 1, classes + 1, dtype=torch.float64)
    for found, wanted in zip(predicted.split(ROWS), truth.split(ROWS), strict=True):
        judged = wanted != IGNORED
        pairs = wanted[judged].long() * (classes + 1) + found[judged].long().clamp(max=classes)
        confusion += torch.bincount(pairs, minlength=confusion.numel()).view_as(confusion)
    both = confusion.diagonal()
    either = confusion.sum(0) + confusion.sum(1) - both
    return 100 * (both / either)[either > 0].mean().item()


class ProbedImages(Dataset[tuple[Tensor, Tensor]]):
    """Images ``(3, S, S)`` and masks ``(S, S)`` uint8 of a split, squashed to the recipe's side."""

    def __init__(self, trained: Trained[SelfSupervisionRecipe], split: Split) -> None:
        data = trained.recipe.data
        mean, std = normalization(trained.reads, data.normalization)
        self.view: Callable[[Any], Tensor] = create_transform(
            data.image_size,
            is_training=False,
            interpolation=data.interpolation,
            crop_pct=1.0,
            crop_mode="squash",
            mean=mean,
            std=std,
        )
        self.size = (data.image_size, data.image_size)
        self.images: Any = build(trained.reads, split, trained.data_root, trained.seed)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, mask = self.images[index]
        resized = Image.fromarray(mask).resize(self.size, Image.Resampling.NEAREST)
        return self.view(image), torch.from_numpy(np.array(resized))


def _patches(
    trained: Trained[SelfSupervisionRecipe],
    samples: Dataset[Any],
    precision: Precision,
    batch_size: int,
) -> Patches:
    """Run the model on images; return all patches, in the images' order."""
    model: Any = trained.model
    count: int = len(samples)  # type: ignore[arg-type]  # torch's Dataset declares no length
    done, tokens, pixels = 0, torch.empty(0), torch.empty(0)
    for images, masks in eval_loader(samples, batch_size, trained.workers, trained.device):
        with torch.inference_mode(), autocast(trained.device, precision):
            images = images.to(trained.device, non_blocking=True)
            found = model.forward_features(images)[:, model.num_prefix_tokens :]
        require_finite(found, "features")
        side = masks.shape[-1] // round(found.shape[1] ** 0.5)
        shown = masks.unfold(1, side, side).unfold(2, side, side).flatten(3).flatten(0, 2)
        if not done:
            rows = count * found.shape[1]
            kept = HALF.get(precision, torch.float32)
            pinned = torch.device(trained.device).type == "cuda"
            tokens = torch.empty(rows, found.shape[2], dtype=kept, pin_memory=pinned)
            pixels = torch.empty(rows, shown.shape[1], dtype=torch.uint8)
        stop = done + len(shown)
        tokens[done:stop], pixels[done:stop] = found.flatten(0, 1), shown
        done = stop
    labels = patch_labels(pixels).long()
    return Patches(tokens, pixels, labels.masked_fill_(labels == IGNORED, UNLABELLED))
