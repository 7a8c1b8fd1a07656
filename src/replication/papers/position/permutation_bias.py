"""Measure the bias of P-SHAP with few permutations, the evidence for the choice of K (Table E)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from vitrail.errors import VitrailError
from vitrail.measures.loading import eval_loader
from vitrail.measures.outputs import device_of
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.shapley import (
    explained_classes,
    logit_of_class,
    position_share,
    shapley,
)
from vitrail.measures.position_shap.sweep import (
    draws_of,
    logits_of,
    require_halves,
    require_measurable,
)


def bias_of_few(
    model: nn.Module,
    samples: Dataset[Any],
    permutations: Sequence[int],
    *,
    reference: int = 512,
    batch_size: int = 128,
    seed: int = 0,
    workers: int = 0,
) -> tuple[float, dict[int, tuple[float, float]]]:
    """Measure the bias of P-SHAP with few permutations, relative to `reference` permutations.

    Each sample is permuted `reference` times. Each group of K of these permutations is one sweep
    with K, and all together are the reference. Other arguments and errors: `position_shap`.

    Returns:
        the reference's mean P-SHAP, and for each K of `permutations` two biases: of the uncorrected
        and of the debiased P-SHAP. A bias is the mean over groups minus the reference.

    Raises:
        VitrailError: as `position_shap`, or a K is above `reference`.
    """
    count, permuting = require_measurable(model, samples), permutable(model)
    for size in (*permutations, reference):
        require_halves(size)
    if not permutations:
        raise VitrailError("permutations is empty; give K of at least one sweep, such as [4]")
    if max(permutations) > reference:
        raise VitrailError(
            f"permutations are {[*permutations]}; give at most reference = {reference}"
        )
    cleans, labelled, images_of = [], [], []
    total = torch.zeros((), dtype=torch.float64)  # (reference, classes), over samples
    loader = eval_loader(samples, batch_size, workers, device_of(model))
    indices = torch.arange(count).split(batch_size)
    for part, (images, labels) in zip(indices, loader, strict=True):
        draws = draws_of(part, reference, permuting.positions, seed)
        clean, *of_draws = logits_of(permuting, images, draws)
        logits = torch.stack(of_draws)
        classes = explained_classes(clean, labels)
        images_of.append(torch.stack([logit_of_class(of_draw, classes) for of_draw in logits]))
        total = total + logits.sum(dim=1)
        cleans.append(clean)
        labelled.append(classes)
    clean, classes, image = torch.cat(cleans), torch.cat(labelled), torch.cat(images_of, dim=1)
    both = logit_of_class(clean, classes)
    position = (clean.sum(dim=0)[classes] - both) / (count - 1)  # over the other samples
    none = (total[:, classes] - image) / (count - 1)
    correct = clean.argmax(dim=1) == classes

    def mean_share(permuted: slice, groups: Tensor) -> float:
        v_image, v_none = groups[:, :, permuted].mean(dim=2)
        phi = shapley(both, v_image, position, v_none)
        return position_share(*phi)[:, correct].mean().item()

    def estimates(size: int) -> tuple[float, float]:
        groups = torch.stack([image, none])  # v(I) and v(0), (2, reference, n)
        groups = groups[:, : reference // size * size].unflatten(1, (-1, size))
        plain = mean_share(slice(None), groups)
        if size == 1:
            return plain, plain
        halves = [mean_share(half, groups) for half in (slice(size // 2), slice(size // 2, None))]
        return plain, 2 * plain - sum(halves) / 2

    _, truth = estimates(reference)
    each = {size: estimates(size) for size in permutations}
    return truth, {size: (raw - truth, mended - truth) for size, (raw, mended) in each.items()}
