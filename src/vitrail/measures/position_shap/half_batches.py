"""Position-SHAP by the authors' protocol (position, App. E), with half a batch as the background.

Logits are averaged over the background, as `shapley` says; the text (position, App. A) averages
features.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm

from vitrail.errors import VitrailError
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.shapley import (
    PositionShap,
    explained_classes,
    interaction,
    logit_of_class,
    position_share,
    shapley,
)
from vitrail.measures.position_shap.sweep import (
    collate,
    draw_order,
    draw_permutations,
    logits_of,
    require_measurable,
)


@dataclass(frozen=True)
class Fold:
    """Samples that `position_shap_half_batches` explains with one background."""

    samples: Tensor  # (n,), indices in the dataset
    background: Tensor  # (m,), indices of the images X_b
    permutations: Tensor  # (m, N), the row b permutes the P_b that goes with X_b


def draw_folds(samples: int, positions: int, batch_size: int = 32, seed: int = 0) -> list[Fold]:
    """Split random batches into halves, each the background of the other (position, App. E).

    The background must be a sample of all images (position, Sec. 3), so batches do not follow the
    order of the dataset, which may be sorted by class.

    If the last batch is not full, samples of the previous batch complete the background, so that
    the last batch may have any size. `positions` is N, the number of positions that permute.

    Raises:
        VitrailError: a batch has no two halves.
    """
    if batch_size < 2:
        raise VitrailError(f"batch_size is {batch_size}; P-SHAP halves batches: give at least 2")
    folds = []
    previous = torch.empty(0, dtype=torch.long)
    for batch in draw_order(samples, seed).split(batch_size):
        halves = batch.tensor_split(2)
        for explained, background in (halves, halves[::-1]):
            if len(explained):
                missing = max(batch_size // 2 - len(background), 0)  # the first has none before it
                background = torch.cat([background, previous[:missing]])
                first = int(explained[0])
                draw = draw_permutations(len(background), positions, "P-SHAP pairs", seed, first)
                folds.append(Fold(explained, background, draw))
        previous = batch
    return folds


def position_shap_half_batches(
    model: nn.Module,
    samples: Dataset[Any],
    *,
    folds: Sequence[Fold] | None = None,
    batch_size: int = 32,
    seed: int = 0,
) -> PositionShap:
    """Measure P-SHAP by the authors' protocol: half a batch is the background of the other half.

    Source: position, App. E, for the protocol; position, App. A, Eq. 7-8, for the loss, whose
    minimum `shapley` returns.

    `model` and `samples` are as in `position_shap_sweep`. `folds` say which samples are explained
    with which background; by default `draw_folds` draws them with `batch_size` and `seed`.

    Raises:
        VitrailError: there are fewer than two samples, the folds do not explain each of them once,
            the model is in training mode or its logits are not finite, or a label is not one of
            its classes.
    """
    count, permuting = require_measurable(model, samples), permutable(model)
    folds = draw_folds(count, permuting.positions, batch_size, seed) if folds is None else folds
    explained = torch.cat([fold.samples for fold in folds])
    if not torch.equal(explained.sort().values, torch.arange(count)):
        raise VitrailError(
            f"the folds do not explain each of the {count} samples once: give every index from 0 "
            f"to {count - 1} to one of them"
        )
    begin, passes, parts = time.perf_counter(), 0, []
    for fold in tqdm(folds, desc="P-SHAP", unit="background", disable=None):
        images, labels = collate(samples, fold.samples)
        others, _ = collate(samples, fold.background)
        draws = fold.permutations.unsqueeze(1).expand(-1, len(images), -1)  # (m, n, N)
        both, *of_draws = logits_of(permuting, images, draws)  # v(N) = f(X, P)
        classes = explained_classes(both, labels)
        # v(I), v(P) and v(0), means over b: of f(X, P_b), of f(X_b, P) and of f(X_b, P_b)
        image = torch.stack(of_draws).mean(dim=0)
        background = logits_of(permuting, others, fold.permutations[None]).mean(dim=1)
        position, none = (logits.expand_as(both) for logits in background)
        values = [logit_of_class(logits, classes) for logits in (both, image, position, none)]
        correct = both.argmax(dim=1) == classes
        parts.append(torch.stack([*shapley(*values), interaction(*values), correct]))
        passes += len(images) * (1 + len(others)) + 2 * len(others)
    seconds = time.perf_counter() - begin
    ordered = torch.cat(parts, dim=1)[:, explained.argsort()]  # (4, n)
    phi_position, phi_image, together, correct = ordered
    return PositionShap(
        torch.arange(count),
        phi_position,
        phi_image,
        together,
        debiased=position_share(phi_position, phi_image),
        correct=correct.bool(),
        half_width=None,
        passes_per_sample=passes / count,
        samples_per_second=count / seconds,
    )
