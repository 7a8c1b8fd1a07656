"""Position-SHAP: how much of a prediction is owed to position (position, Sec. 3).

A sample's logit f of its own class is shared between two players, the image x and the position
embedding P. A player who is absent is replaced by a background: other images x_b, and embeddings
P_b whose tokens are permuted. The values of the four coalitions,

    v(N) = f(x, P)            v(I) = mean_b f(x, P_b)
    v(P) = mean_b f(x_b, P)   v(0) = mean_b f(x_b, P_b)

give each player's Shapley value: phi_P + phi_I = v(N) - v(0). Kernel SHAP, which the paper runs,
solves a least-squares problem whose solution with two players is this closed form. P-SHAP is
``|phi_P| / (|phi_P| + |phi_I|)``, with the absolute values that the authors' code takes and the
paper does not print: only then it lies between 0 and 1. A model's P-SHAP is the mean over the
samples that it classifies correctly.

The one idea: v(P) and v(0) do not depend on the sample, so one `sweep` over the data gives them for
all samples and classes at once, at 1 + K forward passes a sample, with all of the data as the
background. A sample then is the n-th part of its own background, which raises P-SHAP a little where
n is below a hundred. `paired` is the authors' protocol, whose background is half a batch of 32.

Absolute values of noise are not 0 on average, so P-SHAP S(K) of K permutations is too high, by
about b / K, and that of half of them by 2 b / K. The mean P-SHAP of a `sweep` is therefore
2 S(K) - (S of one half + S of the other) / 2, at no further pass (Quenouille, 1956).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from tqdm import tqdm

from vitrail.errors import VitrailError
from vitrail.images.loading import EvaluationSamples, evenly_spread
from vitrail.images.opening import build
from vitrail.images.transforms import eval_transform
from vitrail.measures.context import Trained, Values
from vitrail.measures.permutable import Permutable, permutable
from vitrail.seeding import derive

UNKNOWN = -1
"""The label of a sample whose predicted class is explained in the place of its true one."""
RESAMPLES = 1000
DRAWN_TOGETHER = 50
TAILS = torch.tensor([(1 - 0.95) / 2, (1 + 0.95) / 2], dtype=torch.float64)


@dataclass(frozen=True)
class PositionShap:
    """P-SHAP of n samples, in their order; all tensors are ``(n,)``, float64, on the CPU."""

    phi_position: Tensor  # the Shapley value of the position embedding
    phi_image: Tensor  # that of the image
    debiased: Tensor  # P-SHAP corrected for few permutations, which may leave 0 to 1
    correct: Tensor  # booleans, which samples are classified correctly
    interval: tuple[float, float] | None  # the bootstrap's, 95 %, of `mean`; None of `paired`
    passes_per_sample: float
    samples_per_second: float  # of this call; a resumed one counts its own samples

    @property
    def values(self) -> Tensor:
        """P-SHAP from 0 to 1, without that correction."""
        return position_share(self.phi_position, self.phi_image)

    @property
    def mean(self) -> float:
        """The model's P-SHAP: the debiased mean over correct samples, NaN if there are none."""
        return self.debiased[self.correct].mean().item()


@dataclass(frozen=True)
class Fold:
    """Samples that `paired` explains with one background."""

    samples: Tensor  # (n,), indices in the dataset
    background: Tensor  # (m,), indices of the images x_b
    permutations: Tensor  # (m, N), the row b permutes the P_b that goes with x_b


def shapley(both: Tensor, image: Tensor, position: Tensor, none: Tensor) -> tuple[Tensor, Tensor]:
    """Return phi_P and phi_I of the coalition values v(N), v(I), v(P) and v(0), elementwise.

    Source: position, Eq. 3-4.
    """
    phi_position = ((position - none) + (both - image)) / 2
    phi_image = ((image - none) + (both - position)) / 2
    return phi_position, phi_image


def position_share(phi_position: Tensor, phi_image: Tensor) -> Tensor:
    """Return P-SHAP of Shapley values, 0 where both are 0: what moves nothing is no position.

    Source: position, Eq. 5.
    """
    total = phi_position.abs() + phi_image.abs()
    return torch.where(total == 0, 0, phi_position.abs() / total)


def greater(first: Tensor, second: Tensor) -> float:
    """Test by Mann and Whitney's U whether ``(n,)`` `first` is greater than ``(m,)`` `second`.

    Return the one-sided p-value in float64 (in float32 one below 1e-45 would be 0); by the null
    hypothesis both are distributed alike. Raises a VitrailError if one is empty.
    """
    if not len(first) or not len(second):
        sizes = f"{len(first)} against {len(second)} samples"
        raise VitrailError(
            f"a Mann-Whitney test of {sizes} says nothing: give at least one of each"
        )
    from scipy.stats import mannwhitneyu  # here, since P-SHAP itself needs torch and timm alone

    test = mannwhitneyu(first.double().numpy(), second.double().numpy(), alternative="greater")
    return float(test.pvalue)


def sweep(
    model: Permutable,
    samples: Dataset[Any],
    *,
    permutations: int = 16,
    batch_size: int = 128,
    seed: int = 0,
    device: str = "cpu",
    workers: int = 0,
    resume: Path | None = None,
    digest: str = "",
) -> PositionShap:
    """Measure P-SHAP with all samples as the background of each.

    Sample i is passed through the model once as it is and `permutations` times with its positions
    permuted. Its permutations follow from the seed and i alone, and no two samples share them:
    permutations common to all would not average out over samples.

    Args:
        model: what is measured, in evaluation mode on `device`.
        samples: a sized dataset of (image ``(3, H, W)``, int label); `UNKNOWN` is a label too.
        permutations: K, for each sample.
        batch_size: images at a time; it does not change what is drawn.
        seed: of the permutations and the bootstrap.
        device: where the model is.
        workers: processes that load samples; 0 does it here.
        resume: a file that a later call goes on from; it is deleted at the end.
        digest: of the samples and labels; a file of another one is not resumed.

    Raises:
        VitrailError: there are fewer than two samples or no permutations, the model is in training
            mode or its logits are not finite, a label is not one of its classes, or `resume` is of
            another sweep or cannot be written.
    """
    count = _require(model, samples)
    if permutations < 1:
        raise VitrailError(f"permutations is {permutations}; give at least 1")
    identity: dict[str, Any] = {"samples": count, "permutations": permutations, "seed": seed}
    identity |= {"positions": model.positions, "images and labels": digest}
    progress = _Progress(resume, identity)
    start = len(progress)
    if start:
        ends = _collate(samples, torch.tensor([0, start - 1]))[0]
        progress.require_same(_logits(model, ends, None, device))
    loader = _loader(samples, start, batch_size, workers)
    begin = time.perf_counter()
    with tqdm(total=count, initial=start, desc="P-SHAP", unit="image", disable=None) as bar:
        for images, labels in loader:
            clean = _logits(model, images, None, device)
            _classes(clean, labels)  # refused before they cost passes
            draws = _draws(permutations, model.positions, seed, len(progress), len(labels))
            halves = draws.tensor_split(min(2, permutations))  # the first one is the larger
            means = [_mean_logits(model, images, half, device) for half in halves]
            progress.add(labels, torch.stack([clean, *means], dim=1))
            bar.update(len(labels))
    seconds = time.perf_counter() - begin
    labels, (clean, *parts) = progress.joined()
    classes, weights = _classes(clean, labels), extrapolation(permutations)
    # The mean over all K permutations: that of equal numbers is that number, bit for bit.
    whole = parts[0] + (parts[-1] - parts[0]) * (permutations // 2 / permutations)
    permuted = [whole, *parts][: len(weights)]
    of_each = [_swept(clean, one, classes, clean.mean(dim=0), one.mean(dim=0)) for one in permuted]
    result = PositionShap(
        *of_each[0],
        debiased=weights @ torch.stack([position_share(*phi) for phi in of_each]),
        correct=clean.argmax(dim=1) == classes,
        interval=bootstrap_interval(clean, permuted, classes, seed, weights),
        passes_per_sample=1 + permutations,
        samples_per_second=(count - start) / seconds,
    )
    if resume is not None:
        resume.unlink(missing_ok=True)
    return result


def extrapolation(permutations: int) -> Tensor:
    """How P-SHAP S of K permutations, and of each half of them, weigh in the debiased estimate.

    What is S + b / K for every K then is S: (1 + w) S(K) - w (S of a half + S of the other) / 2,
    with w = 1 for an even K. A single permutation has no halves, and its P-SHAP stays as it is.

    Returns:
        ``(3,)``, or ``(1,)`` for K = 1.
    """
    if permutations == 1:
        return torch.ones(1, dtype=torch.float64)
    small, large = permutations // 2, (permutations + 1) // 2
    weight = 1 / (permutations * (1 / small + 1 / large) / 2 - 1)
    return torch.tensor([1 + weight, -weight / 2, -weight / 2], dtype=torch.float64)


def bootstrap_interval(
    clean: Tensor, permuted: Sequence[Tensor], classes: Tensor, seed: int, weights: Tensor
) -> tuple[float, float]:
    """Return the 95 % interval of the mean P-SHAP of correct samples, by drawing samples anew.

    A draw of samples, with replacement, draws their share in the background too. Both bounds are
    NaN if no sample is classified correctly.

    `clean` are the logits f(x_i, P), each of `permuted` f(x_i, P_ik) averaged over some k,
    ``(n, classes)``, with its weight in the estimate, as `extrapolation` has them; `classes`
    ``(n,)`` are those explained.
    """
    count = len(clean)
    generator = torch.Generator().manual_seed(derive("P-SHAP bootstrap", seed))
    correct = clean.argmax(dim=1) == classes
    means = []
    for _ in range(RESAMPLES // DRAWN_TOGETHER):
        drawn = torch.randint(count, (DRAWN_TOGETHER, count), generator=generator)
        ones = torch.ones(drawn.shape, dtype=torch.float64)
        share = torch.zeros_like(ones).scatter_add_(1, drawn, ones) / count  # of each sample
        position = share @ clean
        values = torch.zeros_like(share)
        for weight, one in zip(weights, permuted, strict=True):
            phi = _swept(clean, one, classes, position, share @ one)
            values += weight * position_share(*phi)
        share = share * correct
        means.append((share * values).sum(dim=1) / share.sum(dim=1))
    # A draw without any correct sample has no mean.
    low, high = torch.cat(means).nanquantile(TAILS).tolist()
    return low, high


def bias_of_few(
    model: Permutable,
    samples: Dataset[Any],
    permutations: Sequence[int],
    *,
    reference: int = 512,
    batch_size: int = 128,
    seed: int = 0,
    device: str = "cpu",
    workers: int = 0,
) -> tuple[float, dict[int, tuple[float, float]]]:
    """Measure how much too high P-SHAP of few permutations is, against `reference` of them.

    Each sample is permuted `reference` times. Groups of K of these permutations are as many sweeps
    of K, and all together are the reference. Other arguments and errors are those of `sweep`.

    Returns:
        The reference's mean P-SHAP; for each K of `permutations` the mean over groups less the
        reference, of P-SHAP as it is and of the debiased one.

    Raises:
        VitrailError: as `sweep`, or a K is above `reference`.
    """
    count = _require(model, samples)
    if not 1 <= min(permutations) <= max(permutations) <= reference:
        raise VitrailError(f"permutations are {[*permutations]}; give 1 to reference = {reference}")
    cleans, labelled, owns = [], [], []
    none = torch.zeros((), dtype=torch.float64)  # (reference, classes), v(0) of each permutation
    done = 0
    for images, labels in _loader(samples, 0, batch_size, workers):
        clean = _logits(model, images, None, device)
        draws = _draws(reference, model.positions, seed, done, len(labels))
        logits = torch.stack([_logits(model, images, draw, device) for draw in draws])
        classes = _classes(clean, labels)
        owns.append(torch.stack([_own(one, classes) for one in logits]))  # (reference, B)
        none = none + logits.sum(dim=1) / count
        cleans.append(clean)
        labelled.append(classes)
        done += len(labels)
    clean, classes, v_image = torch.cat(cleans), torch.cat(labelled), torch.cat(owns, dim=1)
    both, position = _own(clean, classes), clean.mean(dim=0)[classes]
    correct = clean.argmax(dim=1) == classes
    coalitions = torch.stack([v_image, none[:, classes]])  # v(I) and v(0), (2, reference, n)

    def estimates(size: int) -> tuple[float, float]:
        groups = coalitions[:, : reference // size * size].unflatten(1, (-1, size))
        weights, half = extrapolation(size), (size + 1) // 2
        shares = []
        for part in (slice(None), slice(half), slice(half, None))[: len(weights)]:
            image, nothing = groups[:, :, part].mean(dim=2)
            phi = shapley(both, image, position, nothing)
            shares.append(position_share(*phi)[:, correct].mean())
        return shares[0].item(), (weights @ torch.stack(shares)).item()

    _, truth = estimates(reference)
    each = {size: estimates(size) for size in permutations}
    return truth, {size: (raw - truth, mended - truth) for size, (raw, mended) in each.items()}


def draw_folds(samples: int, positions: int, batch_size: int = 32, seed: int = 0) -> list[Fold]:
    """Split batches into random halves, each the background of the other (position, App. E).

    In a last batch that is not full, samples of the batch before complete the background, so that
    it may have any size. `positions` is N, how many of the model's positions permute.

    Raises:
        VitrailError: a batch has no two halves.
    """
    if batch_size < 2:
        raise VitrailError(f"batch_size is {batch_size}; P-SHAP halves batches: give at least 2")
    folds = []
    previous = torch.empty(0, dtype=torch.long)
    for number, batch in enumerate(torch.arange(samples).split(batch_size)):
        generator = torch.Generator().manual_seed(derive("P-SHAP halves", seed, number))
        batch = batch[torch.randperm(len(batch), generator=generator)]
        halves = batch.tensor_split(2)
        for explained, background in (halves, halves[::-1]):
            if len(explained):
                missing = max(batch_size // 2 - len(background), 0)  # the first has none before it
                background = torch.cat([background, previous[:missing]])
                own = ("P-SHAP pairs", seed, int(explained[0]))
                draw = draw_permutations(len(background), positions, *own)
                folds.append(Fold(explained, background, draw))
        previous = batch
    return folds


def paired(
    model: Permutable,
    samples: Dataset[Any],
    *,
    folds: Sequence[Fold] | None = None,
    batch_size: int = 32,
    seed: int = 0,
    device: str = "cpu",
) -> PositionShap:
    """Measure P-SHAP by the authors' protocol: half a batch is the background of the other half.

    Source: position, App. A, Eq. 7-8.

    `model`, `samples` and `device` are as of `sweep`. `folds` say what is explained with which
    background; by default `draw_folds` draws them with `batch_size` and `seed`.

    Raises:
        VitrailError: there are fewer than two samples, the folds do not explain each of them once,
            the model is in training mode or its logits are not finite, or a label is not one of
            its classes.
    """
    count = _require(model, samples)
    folds = draw_folds(count, model.positions, batch_size, seed) if folds is None else folds
    explained = torch.cat([fold.samples for fold in folds])
    if not torch.equal(explained.sort().values, torch.arange(count)):
        raise VitrailError(
            f"the folds do not explain each of the {count} samples once: give every index from 0 "
            f"to {count - 1} to one of them"
        )
    begin, passes, parts = time.perf_counter(), 0, []
    for fold in tqdm(folds, desc="P-SHAP", unit="background", disable=None):
        images, labels = _collate(samples, fold.samples)
        others, _ = _collate(samples, fold.background)
        both = _logits(model, images, None, device)
        draws = (draw.expand(len(images), -1) for draw in fold.permutations)
        image = torch.stack([_logits(model, images, draw, device) for draw in draws]).mean(dim=0)
        of_others = [_logits(model, others, draw, device) for draw in (None, fold.permutations)]
        position, none = (logits.mean(dim=0).expand_as(both) for logits in of_others)
        classes = _classes(both, labels)
        coalitions = [_own(logits, classes) for logits in (both, image, position, none)]
        parts.append(torch.stack([*shapley(*coalitions), both.argmax(dim=1) == classes]))
        passes += len(images) * (1 + len(others)) + 2 * len(others)
    seconds = time.perf_counter() - begin
    phi_position, phi_image, correct = torch.cat(parts, dim=1)[:, explained.argsort()]  # (3, n)
    return PositionShap(
        phi_position,
        phi_image,
        debiased=position_share(phi_position, phi_image),
        correct=correct.bool(),
        interval=None,
        passes_per_sample=passes / count,
        samples_per_second=count / seconds,
    )


def position_shap(
    trained: Trained, permutations: int = 16, batch_size: int = 128, images: int | None = None
) -> Values:
    """Measure P-SHAP of a run on its validation split by a `sweep`.

    Its model is one that `permutable` knows. `permutations` is K, for each sample; `images` is how
    many are used, spread evenly over the split; None is all.

    Returns:
        ``top1`` (percent); ``p_shap``, the mean over correctly classified samples, with ``ci_low``
        and ``ci_high`` (bootstrap, 95 %) and ``std`` over these samples, all None where there are
        too few; ``images`` and ``passes_per_sample``.

    Raises:
        VitrailError: as `sweep_run`.
    """
    return summary(sweep_run(trained, validation(trained, images), permutations, batch_size))


def validation(trained: Trained, images: int | None = None) -> Subset[Any]:
    """So many samples of a run's validation split, spread evenly over it; None is all."""
    dataset: Any = build(trained.info, "val", trained.data_root)
    return Subset(dataset, evenly_spread(len(dataset), images))


def transformed(trained: Trained, chosen: Dataset[Any]) -> EvaluationSamples:
    """Show samples as a run's recipe evaluates them."""
    return EvaluationSamples(chosen, eval_transform(trained.recipe, trained.info))


def sweep_run(
    trained: Trained,
    chosen: Dataset[Any],
    permutations: int,
    batch_size: int,
    seed: int | None = None,
) -> PositionShap:
    """Measure P-SHAP of a run on samples of its dataset by a `sweep`, by default of its own seed.

    Raises:
        VitrailError: as `sweep`, or the model's positions cannot be permuted.
    """
    return sweep(
        permutable(trained.model),
        transformed(trained, chosen),
        permutations=permutations,
        batch_size=batch_size,
        seed=trained.seed if seed is None else seed,
        device=trained.device,
        workers=trained.workers,
    )


def summary(result: PositionShap) -> dict[str, Any]:
    """What `position_shap` says of a sweep."""
    right = result.values[result.correct]
    low, high = result.interval if result.interval and len(right) else (None, None)
    return {
        "top1": 100 * result.correct.double().mean().item(),
        "p_shap": result.mean if len(right) else None,
        "ci_low": low,
        "ci_high": high,
        "std": right.std().item() if len(right) > 1 else None,
        "images": len(result.values),
        "passes_per_sample": result.passes_per_sample,
    }


def draw_permutations(count: int, positions: int, purpose: str, *counters: int) -> Tensor:
    """Draw ``(count, positions)`` permutations that follow from `purpose` and the counters."""
    generator = torch.Generator().manual_seed(derive(purpose, *counters))
    # Ranks of uniform numbers: one draw for all rows.
    return torch.rand(count, positions, dtype=torch.float64, generator=generator).argsort(dim=1)


def _draws(permutations: int, positions: int, seed: int, first: int, count: int) -> Tensor:
    """The permutations of `count` samples from the `first` on, ``(K, count, N)``."""
    indices = range(first, first + count)
    each = [draw_permutations(permutations, positions, "P-SHAP sweep", seed, i) for i in indices]
    return torch.stack(each, dim=1)


def _mean_logits(model: Permutable, images: Tensor, draws: Tensor, device: str) -> Tensor:
    """Logits averaged over permutations ``(K, B, N)``, ``(B, classes)``."""
    mean = torch.zeros((), dtype=torch.float64)
    for k, draw in enumerate(draws, start=1):
        # A running mean, since the mean of equal numbers then is that number, bit for bit.
        mean = mean + (_logits(model, images, draw, device) - mean) / k
    return mean


def _swept(
    clean: Tensor, permuted: Tensor, classes: Tensor, position: Tensor, none: Tensor
) -> tuple[Tensor, Tensor]:
    """Shapley values ``(..., n)`` from v(P) and v(0) of each class, ``(..., classes)``."""
    both, image = _own(clean, classes), _own(permuted, classes)
    return shapley(both, image, position[..., classes], none[..., classes])


def _own(logits: Tensor, classes: Tensor) -> Tensor:
    """Each row's logit of its own class: ``(n, classes)`` to ``(n,)``."""
    return logits.gather(1, classes[:, None])[:, 0]


def _classes(logits: Tensor, labels: Tensor) -> Tensor:
    """The class whose logit is explained: the label, or the prediction where that is unknown."""
    wrong = labels[(labels >= logits.shape[1]) | (labels < UNKNOWN)]
    if len(wrong):
        raise VitrailError(
            f"a sample's label is {wrong[0]}, but the model has {logits.shape[1]} classes: "
            "measure it on a dataset with its own classes"
        )
    return torch.where(labels == UNKNOWN, logits.argmax(dim=1), labels)


def _loader(samples: Any, start: int, batch_size: int, workers: int) -> DataLoader[Any]:
    rest = Subset(samples, range(start, len(samples)))
    return DataLoader(rest, batch_size, num_workers=workers, generator=torch.Generator())


def _collate(samples: Any, indices: Tensor) -> tuple[Tensor, Tensor]:
    images, labels = zip(*(samples[index] for index in indices.tolist()), strict=True)
    return torch.stack(images), torch.tensor(labels)


def _logits(model: Permutable, images: Tensor, permutation: Tensor | None, device: str) -> Tensor:
    """Logits as float64 on the CPU, ``(B, classes)``."""
    if permutation is not None:
        permutation = permutation.to(device)
    with torch.inference_mode():
        logits = model(images.to(device), permutation).cpu().double()
    if not logits.isfinite().all():
        raise VitrailError(
            "the model's logits are not finite, so they cannot be explained: check its weights and "
            "the normalisation of the images"
        )
    return logits


def _require(model: Permutable, samples: Any) -> int:
    """The number of samples, if they and the model can be measured."""
    count = len(samples)
    if count < 2:
        raise VitrailError(f"P-SHAP of {count} images has no background: give at least two")
    if isinstance(model, nn.Module) and any(module.training for module in model.modules()):
        raise VitrailError(
            "the model is in training mode, where dropout changes its logits: call model.eval()"
        )
    return count


class _Progress:
    """Labels and logits of the samples done so far, and the file that each batch is appended to.

    The file begins with a line of JSON: what the sweep is of, and its classes. A row of float64
    follows for each sample: its index, its label, and its logits as they are and averaged over
    each half of the permutations. A row that a killed process left half written is cut off.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self.path, self.identity = path, identity
        self.rows: list[Tensor] = []  # (B, 2), index and label, and the logits behind them
        self.logits = 1 + min(2, identity["permutations"])
        if path is not None:
            with self._writable():
                path.open("ab").close()  # before it is needed
                self._load(path)

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def add(self, labels: Tensor, logits: Tensor) -> None:
        """Append a batch: ``(B,)`` labels and ``(B, 1 + halves, classes)`` logits."""
        indices = torch.arange(len(self), len(self) + len(labels))
        leading = torch.stack([indices, labels], dim=1).double()
        self.rows.append(torch.cat([leading, logits.flatten(1)], dim=1))
        if self.path is not None:
            with self._writable(), self.path.open("ab") as file:
                header = json.dumps(self.identity | {"classes": logits.shape[2]}) + "\n"
                begun = b"" if file.tell() else header.encode()
                file.write(begun + self.rows[-1].numpy().tobytes())

    def require_same(self, ends: Tensor) -> None:
        """Refuse the file if its first and last sample have other logits: ``(2, classes)``."""
        _, (clean, *_) = self.joined()
        kept = clean[[0, -1]]
        if kept.shape != ends.shape or not torch.allclose(kept, ends, rtol=1e-3, atol=1e-3):
            raise VitrailError(
                f"{self.path} was begun with another model or other images: delete it to begin anew"
            )

    def joined(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Labels ``(n,)`` and logits ``(n, classes)``: as they are, averaged over each half."""
        self.rows = [torch.cat(self.rows)]
        rows = self.rows[0]
        return rows[:, 1].long(), rows[:, 2:].unflatten(1, (self.logits, -1)).unbind(dim=1)

    def _load(self, path: Path) -> None:
        damaged = VitrailError(f"{path} is damaged or no sweep's: delete it to begin anew")
        content = path.read_bytes()
        if not content:
            return
        header, _, body = content.partition(b"\n")
        try:
            identity = json.loads(header)
            columns = 2 + self.logits * identity.pop("classes")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged from None
        keys = identity | self.identity
        if changed := [key for key in keys if identity.get(key) != self.identity.get(key)]:
            there, wanted = (
                {key: one.get(key) for key in changed} for one in (identity, self.identity)
            )
            raise VitrailError(
                f"{path} is of a sweep with {there}, not {wanted}: delete it to begin anew"
            )
        whole = len(body) // (8 * columns)
        os.truncate(path, len(header) + 1 + whole * 8 * columns)
        rows = torch.from_numpy(np.frombuffer(body, count=whole * columns).copy())
        rows = rows.view(whole, columns)
        if not torch.equal(rows[:, 0], torch.arange(whole).double()) or not rows.isfinite().all():
            raise damaged
        self.rows = [rows] if whole else []

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise VitrailError(
                f"cannot write {self.path} ({error.strerror or error}): make room or name another"
            ) from None
