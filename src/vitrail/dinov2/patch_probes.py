"""How well frozen patch tokens tell what a patch shows: the protocol of CAPI (Darcet et al., 2025).

Images are resized to the recipe's size, and so are masks. A patch's label is the most frequent of
its pixels; its prediction is that of all of them. Every tenth training image is held out to choose
the classifier, which is then judged on the validation split.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor
from torch.nn import functional

from vitrail.dinov2.neighbours import Classifier, logistic_regression, nearest
from vitrail.images.decoding import IGNORED
from vitrail.images.opening import Split, build
from vitrail.images.transforms import normalization
from vitrail.measures.context import Trained, Values

if TYPE_CHECKING:
    from vitrail.recipes import DINOv2Recipe

HELD_OUT = 10
STRENGTHS = tuple(10 ** (-6 + 11 * index / 7) for index in range(8))
NEIGHBOURS = (1, 3, 10, 30)
METRICS = ("cosine", "L2")


def patch_segmentation(
    trained: Trained[DINOv2Recipe],
    strengths: tuple[float, ...] = STRENGTHS,
    neighbours: tuple[int, ...] = NEIGHBOURS,
    iterations: int = 1000,
) -> Values:
    """Segment by logistic regression, and by nearest neighbours, of patch tokens (Table 3).

    Returns:
        ``linear`` and ``knn``, mIoU in percent; ``linear/C``, ``knn/k`` and ``knn/L2`` (1 for that
        distance, 0 for cosine), as chosen; ``images``.
    """
    classes = trained.reads.classes
    train, val = list(_seen(trained, "train")), list(_seen(trained, "val"))
    held_out = train[::HELD_OUT]
    fitted_on = [seen for index, seen in enumerate(train) if index % HELD_OUT]
    bank = torch.cat([tokens for tokens, _, _ in fitted_on])
    labels = torch.cat([patches for _, patches, _ in fitted_on])
    bank, labels = bank[labels != IGNORED], labels[labels != IGNORED]

    def best(choices: dict[Any, Classifier]) -> tuple[Any, float]:
        chosen = max(choices, key=lambda one: mean_iou(choices[one], held_out, classes))
        return chosen, mean_iou(choices[chosen], val, classes)

    strength, linear = best({s: _linear(bank, labels, classes, s, iterations) for s in strengths})
    ways = itertools.product(neighbours, METRICS)
    (k, metric), knn = best({way: nearest(bank, labels, classes, *way) for way in ways})
    of_linear = {"linear": linear, "linear/C": strength}
    of_knn = {"knn": knn, "knn/k": k, "knn/L2": float(metric == "L2")}
    return {"images": len(val), **of_linear, **of_knn}


def patch_labels(mask: Tensor, side: int) -> Tensor:
    """Return the most frequent value in each patch of a mask ``(S, S)``, ``(h w)``.

    Patches have `side` pixels; of equally frequent values the smallest counts.
    """
    patches = mask.unfold(0, side, side).unfold(1, side, side).flatten(2).flatten(0, 1)
    return functional.one_hot(patches.long(), IGNORED + 1).sum(1).argmax(1)


def mean_iou(
    classify: Classifier, seen: list[tuple[Tensor, Tensor, Tensor]], classes: int
) -> float:
    """Return the mean IoU, in percent, over the classes that masks or predictions have."""
    confusion = torch.zeros(classes, classes, dtype=torch.float64)
    for tokens, _, mask in seen:
        side = round(len(tokens) ** 0.5)
        patch = mask.new_ones(len(mask) // side, len(mask) // side)
        pixels = torch.kron(classify(tokens).cpu().view(side, side), patch)
        judged = mask != IGNORED
        pairs = mask[judged] * classes + pixels[judged]
        confusion += torch.bincount(pairs, minlength=classes**2).view(classes, classes)
    both = confusion.diagonal()
    either = confusion.sum(0) + confusion.sum(1) - both
    return 100 * (both / either)[either > 0].mean().item()


def _linear(
    bank: Tensor, labels: Tensor, classes: int, strength: float, iterations: int
) -> Classifier:
    layer = logistic_regression(bank, labels, classes, strength, iterations)
    return lambda tokens: layer(tokens).argmax(1)


def _seen(trained: Trained[DINOv2Recipe], split: Split) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Patch tokens ``(N, C)``, their labels ``(N,)`` and the mask ``(S, S)`` of each image."""
    data, model = trained.recipe.data, trained.model
    mean, std = normalization(trained.reads, data.normalization)
    view: Any = create_transform(
        data.image_size,
        is_training=False,
        interpolation=data.interpolation,
        crop_pct=1.0,
        crop_mode="squash",
        mean=mean,
        std=std,
    )
    size = (data.image_size, data.image_size)
    images: Any = build(trained.reads, split, trained.data_root)
    for index in range(len(images)):
        image, mask = images[index]
        resized = Image.fromarray(mask).resize(size, Image.Resampling.NEAREST)
        pixels = torch.from_numpy(np.array(resized)).long()
        with torch.inference_mode():
            tokens = model.forward_features(view(image)[None].to(trained.device))[0]  # type: ignore[operator]
        patches = tokens[model.num_prefix_tokens :].clone()
        yield patches, patch_labels(pixels, data.image_size // round(len(patches) ** 0.5)), pixels
