"""Position-SHAP of a model by one sweep over its data: our estimator (position, Sec. 3).

For each class, v(P) and v(0) are means over the data. So one sweep over the data, with 1 + K
forward passes per sample, gives them for all samples and classes at once. The background of a
sample is all other samples: only its own term is left out of the means (`shapley.coalitions`). Here
logits are collected; `shapley.estimate` computes P-SHAP from them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset
from tqdm import tqdm

from vitrail.errors import TRAINING_MODE, VitrailError
from vitrail.measures.loading import eval_loader
from vitrail.measures.outputs import device_of, require_logits
from vitrail.measures.permutable import Permutable, permutable
from vitrail.measures.position_shap.shapley import PositionShap, estimate, explained_classes
from vitrail.measures.resume import ResumeFile
from vitrail.seeding import derive

PERMUTATIONS, MANY = (4, 2), 5000  # K up to MANY samples, and for more samples
FEWEST = 100  # a sweep does not stop by its interval before this many samples


def default_permutations(samples: int) -> int:
    """Return K for a number of samples, so that permutations add less variance than sampling."""
    return PERMUTATIONS[samples > MANY]


def position_shap_sweep(
    model: nn.Module,
    samples: Dataset[Any],
    *,
    permutations: int | None = None,
    max_half_width: float | None = None,
    batch_size: int = 128,
    seed: int = 0,
    workers: int = 0,
    resume: Path | None = None,
    data_digest: str = "",
) -> PositionShap:
    """Measure P-SHAP with all other samples as the background of each.

    Sample i is passed through the model once unchanged and `permutations` times with its positions
    permuted. Its permutations depend on the seed and i only, and differ between samples: errors of
    common permutations would not average out over samples.

    Args:
        model: a classifier in evaluation mode that `permutable` takes. On CUDA call
            `vitrail.measures.outputs.without_tf32` first, as the commands do.
        samples: a sized dataset of (image ``(3, H, W)``, int label); `UNKNOWN` is a label too.
        permutations: K, for each sample; 1 or an even number. None: `default_permutations`.
        max_half_width: stop when the interval's half width is at most this. Samples then are taken
            in an order drawn from the seed, and only those that were taken are in the result.
        batch_size: images at a time; it does not change what is drawn.
        seed: of the permutations and that order.
        workers: processes that load samples; 0 does it here.
        resume: a file from which a later call resumes; it is deleted at the end.
        data_digest: digest of samples and labels; a file with another digest is refused.

    Raises:
        VitrailError: the model's positions cannot be permuted, there are fewer than two samples,
            `permutations` is odd and not 1, `max_half_width` is not positive, the model is in
            training mode or its logits are not finite, a label is not one of its classes, or
            `resume` is of another measurement or cannot be written.
    """
    count, permuting = require_measurable(model, samples), permutable(model)
    permutations = default_permutations(count) if permutations is None else permutations
    require_halves(permutations)
    if max_half_width is not None and max_half_width <= 0:
        raise VitrailError(f"the half width to stop at is {max_half_width:g}; give one above 0")
    order = torch.arange(count) if max_half_width is None else draw_order(count, seed)
    identity: dict[str, Any] = {"samples": count, "permutations": permutations, "seed": seed}
    identity |= {"positions": permuting.positions, "images and labels": data_digest}
    rows = ResumeFile(resume, identity | {"order": "drawn" if max_half_width else "as given"})
    begun = rows.read()
    labels, logits = begun[:1], begun[1:]  # of batches: (B,), and (B, 1 + halves, classes)
    start = done = sum(map(len, labels))
    if start:
        if not logits[0].isfinite().all():
            raise rows.damaged
        ends = [0, start - 1]
        images, _ = collate(samples, order[ends])
        found, kept = logits_of(permuting, images)[0], logits[0][ends, 0]
        if kept.shape != found.shape or not torch.allclose(kept, found, rtol=1e-3, atol=1e-3):
            raise VitrailError(
                f"{resume} was begun with another model or other images: delete it to begin anew"
            )
    begin = time.perf_counter()

    def estimated() -> PositionShap:
        taken, ascending = order[:done].sort()
        given = torch.cat(labels)[ascending], torch.cat(logits)[ascending]
        speed = (done - start) / (time.perf_counter() - begin)
        return estimate(taken, *given, 1 + permutations, speed)

    rest = Subset(samples, order[start:].tolist())
    with tqdm(total=count, initial=start, desc="P-SHAP", unit="image", disable=None) as bar:
        for images, truth in eval_loader(rest, batch_size, workers, device_of(model)):
            trusted = max_half_width is not None and done >= FEWEST
            if trusted and cast(float, estimated().half_width) <= cast(float, max_half_width):
                break
            indices = order[done : done + len(truth)]
            draws = draws_of(indices, permutations, permuting.positions, seed)
            clean, permuted = logits_of(permuting, images, draws).split([1, permutations])
            explained_classes(clean[0], truth)  # raises for a wrong label before it is saved
            means = [_mean(half) for half in permuted.tensor_split(min(2, permutations))]
            labels.append(truth)
            logits.append(torch.stack([clean[0], *means], dim=1))  # f(X, P), mean_k f(X, P_k)
            rows.append(labels[-1], logits[-1])
            done += len(truth)
            bar.update(len(truth))
    result = estimated()
    if resume is not None:
        resume.unlink(missing_ok=True)
    return result


def require_halves(permutations: int) -> None:
    """Raise a VitrailError unless the number of permutations is 1 or even."""
    if permutations < 1 or (permutations % 2 and permutations != 1):
        raise VitrailError(f"permutations is {permutations}; give 1 or an even number")


def draw_order(samples: int, seed: int) -> Tensor:
    """Return a random order ``(samples,)`` in which P-SHAP takes its samples."""
    generator = torch.Generator().manual_seed(derive("P-SHAP order", seed))
    return torch.randperm(samples, generator=generator)


def draw_permutations(count: int, positions: int, purpose: str, *counters: int) -> Tensor:
    """Draw permutations ``(count, positions)``; they depend on `purpose` and the counters only."""
    generator = torch.Generator().manual_seed(derive(purpose, *counters))
    # Ranks of uniform numbers: one draw for all rows.
    return torch.rand(count, positions, dtype=torch.float64, generator=generator).argsort(dim=1)


def draws_of(samples: Tensor, permutations: int, positions: int, seed: int) -> Tensor:
    """Return the permutations of samples by their indices ``(B,)``, ``(K, B, N)``."""
    purpose = "P-SHAP sweep"
    each = [draw_permutations(permutations, positions, purpose, seed, i) for i in samples.tolist()]
    return torch.stack(each, dim=1)


def logits_of(model: Permutable, images: Tensor, draws: Tensor | None = None) -> Tensor:
    """Return the logits of images, unpermuted and under each permutation, float64 on the CPU.

    Images are copied to the device once and all logits are copied back together, since at each copy
    CPU and GPU wait for each other.

    Args:
        model: in evaluation mode.
        images: ``(B, 3, H, W)``.
        draws: ``(K, B, N)`` permutations, or None for K = 0.

    Returns:
        ``(1 + K, B, classes)``, first those without a permutation.

    Raises:
        VitrailError: as `require_logits`.
    """
    device = device_of(cast(nn.Module, model))
    images = images.to(device, non_blocking=True)
    permutations = [None, *(() if draws is None else draws.to(device, non_blocking=True))]
    with torch.inference_mode():
        logits = torch.stack([model(images, permutation) for permutation in permutations])
    return require_logits(logits.cpu().double())


def require_measurable(model: nn.Module, samples: Any) -> int:
    """Return the number of samples.

    Raises:
        VitrailError: there are fewer than two, or the model is in training mode.
    """
    count = len(samples)
    if count < 2:
        raise VitrailError(
            f"P-SHAP of {count} image{'s' * (count != 1)} has no background: give at least two"
        )
    if any(module.training for module in model.modules()):
        raise VitrailError(TRAINING_MODE)
    return count


def collate(samples: Any, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return images ``(B, 3, H, W)`` and labels ``(B,)`` of samples by their indices."""
    images, labels = zip(*(samples[index] for index in indices.tolist()), strict=True)
    return torch.stack(images), torch.tensor(labels)


def _mean(logits: Tensor) -> Tensor:
    """v(I) of all classes: the mean of ``(K, B, classes)`` over permutations, ``(B, classes)``."""
    mean = torch.zeros((), dtype=torch.float64)
    for k, of_draw in enumerate(logits, start=1):
        # A running mean, since the mean of equal numbers then is that number, bit for bit.
        mean = mean + (of_draw - mean) / k
    return mean
