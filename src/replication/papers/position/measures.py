"""Measures of a trained model: how much it depends on position, what its embedding has learned.

A single sweep of P-SHAP gives all of them. Its logits without permutation give the accuracy, and
its P-SHAP values the position bias. If it is known which samples depend on position, they also give
the controlled test (position, Sec. 5.1) and the histograms (position, App. D).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from replication.context import Context, Described, Trained, Values, passes
from replication.datasets.placed_images import DEPENDENT, ORIGINALS, PlacedImages, original_of
from replication.images.loading import EvaluationSamples
from replication.images.opening import build
from replication.images.transforms import eval_transform
from replication.measures.packed_scores import BY_IMAGE, pack
from replication.papers.position.permutation_bias import bias_of_few
from vitrail.errors import VitrailError
from vitrail.measures.loading import eval_loader, evenly_spread
from vitrail.measures.permutable import Permutable, permutable
from vitrail.measures.position_shap.measure import position_shap
from vitrail.measures.position_shap.shapley import PositionShap
from vitrail.measures.position_shap.sweep import default_permutations
from vitrail.position.embeddings.auto import AutoPE, AutoRoPE
from vitrail.position.embeddings.base import AdditiveEmbedding
from vitrail.position.embeddings.rope import RoPE
from vitrail.seeding import derive

CLASSES = len(DEPENDENT) + len(ORIGINALS) - 2
"""Number of classes of a Position dataset: those that depend on position, and the others."""


@passes(lambda given: 1 + (given["permutations"] or default_permutations(given["images"] or 0)))
def position_bias(
    trained: Trained,
    permutations: int | None = None,
    batch_size: int = 128,
    images: int | None = None,
) -> Values:
    """Measure accuracy, P-SHAP and what the embedding learned (Figs. 3, 4, 6 to 9, all tables).

    Source: position, Sec. 5.2, Sec. 5.3, Sec. 5.4. P-SHAP is `position_shap` over the validation
    split. `permutations` is K, the permutations of each sample, by default `default_permutations`;
    `images` is their number, spread evenly over the split; None is all.

    Returns:
        the values of `summary` and `learned`.

    Raises:
        VitrailError: as `position_shap`, or the model's positions cannot be permuted.
    """
    result = _sweep(trained, validation(trained, images), permutations, batch_size)
    return {**summary(result), **learned(trained.model)}


@passes(lambda given: 3 + given["batch_size"] / 2)
def paired_bias(trained: Trained, batch_size: int = 32, images: int | None = None) -> Values:
    """Measure P-SHAP by the paper's protocol: half a batch is the background of the other half.

    Source: position, App. E. `images` are as in `position_bias`.

    Returns:
        ``p_shap``, the mean over correctly classified samples, None if there is none.

    Raises:
        VitrailError: as `position_shap`, or the model's positions cannot be permuted.
    """
    result = position_shap(
        trained.model,
        transformed(trained, validation(trained, images)),
        estimator="half-batches",
        batch_size=batch_size,
        seed=trained.seed,
    )
    return {"p_shap": result.mean if result.correct.any() else None}


def summary(result: PositionShap) -> dict[str, Any]:
    """Return the values of a sweep.

    Returns:
        ``top1`` (percent); ``p_shap``, the mean over correctly classified samples, with ``ci_low``
        and ``ci_high`` (95 %) and ``std`` over these samples, all None if there are too few;
        ``interaction``, the `mean_interaction` of position and image, None if it is not defined;
        ``images`` and ``passes_per_sample``; ``top1 by image``.
    """
    right = result.values[result.correct]
    low, high = result.interval if result.interval and len(right) else (None, None)
    return {
        "top1": 100 * result.correct.double().mean().item(),
        "top1" + BY_IMAGE: pack(result.correct.int().tolist()),
        "p_shap": result.mean if len(right) else None,
        "ci_low": low,
        "ci_high": high,
        "interaction": result.mean_interaction if isfinite(result.mean_interaction) else None,
        "std": right.std().item() if len(right) > 1 else None,
        "images": len(result.values),
        "passes_per_sample": result.passes_per_sample,
    }


def learned(model: nn.Module) -> dict[str, Any]:
    """Return the norm, factors and angles that a model's embedding has learned (Fig. 9).

    Source: position, App. I.

    Returns:
        for an embedding that is added to patches ``norm``, the root mean square over positions of
        the norm of what is added to a patch, a factor of Auto-PE included;
        for Auto-PE ``gamma``, the mean absolute factor; ``gamma/signed``, the mean factor; and
        ``gamma/layers``, a list of factors: one for Auto-APE, one for each layer for Auto-RoPE. For
        RoPE and Auto-RoPE ``angle``, in radians, by which a pair of channels turns from one patch
        to the next along the direction of its frequency, with the factor: the mean of
        ``|gamma theta|`` over layers, heads and pairs; and ``angle/layers``, for each layer.
    """
    embedding = getattr(model, "pos_embed", None)
    values: dict[str, Any] = {}
    with torch.no_grad():
        if isinstance(embedding, AdditiveEmbedding):
            added = embedding.table(1)[..., -embedding.layout.num_patches :, :].double()
            values["norm"] = added.square().sum(dim=-1).mean().sqrt().item()
        if isinstance(embedding, AutoPE | AutoRoPE):
            gamma = embedding.gamma.double().flatten()
            values |= {
                "gamma": gamma.abs().mean().item(),
                "gamma/signed": gamma.mean().item(),
                "gamma/layers": gamma.tolist(),
            }
        if isinstance(embedding, RoPE):
            # The length of (x, y) does not depend on the rotation of a head's random axes; x and y
            # do.
            angles = [
                embedding.effective_frequencies(layer).double().norm(dim=0).mean().item()
                for layer in range(embedding.layout.depth)
            ]
            values |= {"angle": statistics.fmean(angles), "angle/layers": angles}
    return values


@passes(lambda given: sum(1 + count for count in given["permutations"]))
def controlled_test(
    trained: Trained,
    permutations: Sequence[int] = (1, 4),
    bins: int = 40,
    batch_size: int = 128,
    images: int | None = None,
) -> Values:
    """Test if samples that depend on position have higher P-SHAP (position, Sec. 5.1, App. D).

    There is a sweep with each K of `permutations`; other arguments are as in `position_bias`.
    Histograms have `bins` bins over [0, 1].

    Returns:
        for each K: ``k<K>/p_value``, of Mann and Whitney's one-sided test over all samples;
        ``k<K>/correct/p_value``, over correctly classified samples (None if a kind has none);
        ``k<K>/p_shap``; ``k<K>/dependent`` and ``k<K>/independent``, the mean uncorrected P-SHAP of
        all samples of the kind. For the last K also the values of `position_bias`, and for each
        group ``<correct|incorrect>/<dependent|independent>/`` its ``images``, ``mean``, ``std``
        (None if there are too few) and ``histogram``, the number of samples in each bin between
        ``edges``.

    Raises:
        VitrailError: the run's dataset is not a Position dataset, `permutations` is empty, or as
            `position_bias`.
    """
    if not permutations:
        raise VitrailError("permutations is empty; give K of at least one sweep, such as [1, 4]")
    chosen = validation(trained, images)
    placed = require_position_dataset(chosen.dataset, trained)
    labels = torch.as_tensor(placed.labels)[list(chosen.indices)]
    dependent = torch.isin(labels, torch.tensor(DEPENDENT))
    values: dict[str, Any] = {}
    for count in permutations:
        result = _sweep(trained, chosen, count, batch_size)
        right = result.correct
        first, second = result.values[dependent & right], result.values[~dependent & right]
        known = len(first) and len(second)
        values |= {
            f"k{count}/p_value": greater(result.values[dependent], result.values[~dependent]),
            f"k{count}/correct/p_value": greater(first, second) if known else None,
            f"k{count}/p_shap": result.mean if right.any() else None,
            f"k{count}/dependent": result.values[dependent].mean().item(),
            f"k{count}/independent": result.values[~dependent].mean().item(),
        }
    values |= summary(result) | learned(trained.model)
    values["edges"] = torch.linspace(0, 1, bins + 1, dtype=torch.float64).tolist()
    for outcome, of_outcome in (("correct", right), ("incorrect", ~right)):
        for kind, of_kind in (("dependent", dependent), ("independent", ~dependent)):
            group = result.values[of_outcome & of_kind]
            values |= {
                f"{outcome}/{kind}/images": len(group),
                f"{outcome}/{kind}/mean": group.mean().item() if len(group) else None,
                f"{outcome}/{kind}/std": group.std().item() if len(group) > 1 else None,
                f"{outcome}/{kind}/histogram": group.histc(bins, min=0, max=1).int().tolist(),
            }
    return values


def require_position_dataset(dataset: Any, described: Described) -> PlacedImages:
    """Return `dataset` if it is a Position dataset, in which half of the classes need position.

    Raises:
        VitrailError: it is not.
    """
    if not isinstance(dataset, PlacedImages) or described.info.classes != CLASSES:
        raise VitrailError(
            f"which samples of '{described.info.name}' depend on position is not known: give a "
            "recipe on a Position dataset, such as cifar10-position or pieces-in-corners"
        )
    return dataset


def _passes_of_estimates(given: Mapping[str, Any]) -> float:
    """Return the forward passes of an image: estimates, the reference and a timed pass.

    For the sweep that may stop early it is an upper bound.
    """
    images, counts = (
        given["images"],
        [*given["permutations"], default_permutations(given["images"])],
    )
    each = sum(1 + count for count in counts)
    each += sum(3 + batch / 2 for batch in given["paired_batches"])
    warm = min(given["batch_size"], images) / images
    return given["estimates"] * each + 1 + given["reference"] + 1 + warm


@passes(_passes_of_estimates)
def estimator_spread(
    trained: Trained,
    estimates: int = 6,
    permutations: Sequence[int] = (1, 2, 4, 16),
    half_width: float = 0.005,
    paired_batches: Sequence[int] = (32,),
    batch_size: int = 128,
    images: int | None = None,
    reference: int = 512,
) -> Values:
    """Estimate P-SHAP of one checkpoint several times; measure spread and cost (position, App. E).

    The `estimates` differ only in the random numbers of the estimator. The estimators are: a sweep
    with each K of `permutations`; a sweep that stops when the half width of its interval is at most
    `half_width`; and the authors' protocol with each batch size of `paired_batches`, half of which
    is background. Biases are relative to a sweep with K = `reference`. Other arguments are as in
    `position_bias`.

    Returns:
        for each estimator, ``sweep <K>``, ``stopped`` and ``paired <batch>``: ``<estimator>/mean``
        and ``/std`` over its estimates; ``/passes``, forward passes for each of the ``images``;
        ``/cost``, its time divided by that of plain inference, both with loading; ``/bias``, its
        mean minus the reference (for a sweep the mean over all groups of K of the reference's
        permutations); ``/bias/plain``, the same without the correction for few permutations. Also
        ``seconds``, of plain inference on all ``images``, and ``reference``, the P-SHAP of that
        sweep.

    Raises:
        VitrailError: there are fewer than two estimates, no sample is classified correctly, or as
            `position_bias`.
    """
    if estimates < 2:
        raise VitrailError(f"estimates is {estimates}; a spread needs at least 2")
    chosen = validation(trained, images)
    samples, model = transformed(trained, chosen), permutable(trained.model)

    estimators: Mapping[str, Callable[..., PositionShap]] = (
        {
            f"sweep {count}": partial(_sweep, trained, chosen, count, batch_size)
            for count in permutations
        }
        | {
            "stopped": partial(
                _sweep, trained, chosen, None, batch_size, max_half_width=half_width
            ),
        }
        | {
            f"paired {batch}": partial(
                position_shap,
                trained.model,
                samples,
                estimator="half-batches",
                batch_size=batch,
            )
            for batch in paired_batches
        }
    )
    seconds = _seconds_of_inference(trained, model, samples, batch_size)
    truth, biases = bias_of_few(
        trained.model,
        samples,
        permutations,
        reference=reference,
        batch_size=batch_size,
        seed=trained.seed,
        workers=trained.workers,
    )
    bias_of_sweeps = {f"sweep {count}": bias for count, bias in biases.items()}
    values: dict[str, Any] = {"seconds": seconds, "images": len(samples), "reference": truth}
    for name, estimate in estimators.items():
        results = [
            estimate(seed=derive("P-SHAP estimate", trained.seed, number))
            for number in range(estimates)
        ]
        if not results[0].correct.any():
            raise VitrailError(
                f"'{trained.recipe.model.name}' classifies none of {len(samples)} images "
                "correctly, so its P-SHAP has no spread: train it longer or give more images"
            )
        means = [result.mean for result in results]
        mean = statistics.fmean(means)
        uncorrected = statistics.fmean(
            result.values[result.correct].mean().item() for result in results
        )
        plain, mended = bias_of_sweeps.get(name, (uncorrected - truth, mean - truth))
        taken = statistics.fmean(len(result.samples) for result in results)
        rate = statistics.median(result.samples_per_second for result in results)
        values |= {
            f"{name}/mean": mean,
            f"{name}/std": statistics.stdev(means),
            f"{name}/bias": mended,
            f"{name}/bias/plain": plain,
            f"{name}/passes": results[0].passes_per_sample * taken / len(samples),
            f"{name}/cost": taken / rate / seconds,
        }
    return values


def validation(trained: Trained, images: int | None = None) -> Subset[Any]:
    """Return `images` samples of a run's validation split, spread evenly over it; None is all."""
    dataset: Any = build(trained.info, "val", trained.data_root, trained.seed)
    return Subset(dataset, evenly_spread(len(dataset), images))


def transformed(trained: Trained, chosen: Dataset[Any]) -> EvaluationSamples:
    """Return the samples under the evaluation transform of the run's recipe."""
    return EvaluationSamples(chosen, eval_transform(trained.recipe, trained.info))


def _sweep(
    trained: Trained,
    chosen: Dataset[Any],
    permutations: int | None,
    batch_size: int,
    seed: int | None = None,
    max_half_width: float | None = None,
) -> PositionShap:
    """Measure P-SHAP by a sweep over `chosen` samples, by default with the run's seed."""
    return position_shap(
        trained.model,
        transformed(trained, chosen),
        permutations=permutations,
        max_half_width=max_half_width,
        batch_size=batch_size,
        seed=trained.seed if seed is None else seed,
        workers=trained.workers,
    )


def greater(first: Tensor, second: Tensor) -> float:
    """Test by Mann and Whitney's U whether ``(n,)`` `first` is greater than ``(m,)`` `second`.

    The null hypothesis is that both have the same distribution. Returns the one-sided p-value, in
    float64, as float32 would round values below 1e-45 to 0. Raises VitrailError if one is empty.
    """
    if not len(first) or not len(second):
        sizes = f"{len(first)} against {len(second)} samples"
        raise VitrailError(
            f"a Mann-Whitney test of {sizes} says nothing: give at least one of each"
        )
    from scipy.stats import mannwhitneyu  # imported here: P-SHAP itself only needs torch and timm

    test = mannwhitneyu(first.double().numpy(), second.double().numpy(), alternative="greater")
    return float(test.pvalue)


def _seconds_of_inference(
    trained: Trained, model: Permutable, samples: EvaluationSamples, batch_size: int
) -> float:
    """Return the seconds of plain inference on the samples, after a first batch as warm-up."""
    with torch.inference_mode():
        warm, _ = next(iter(eval_loader(samples, batch_size)))
        model(warm.to(trained.device)).cpu()
        start = time.perf_counter()
        for images, _ in eval_loader(samples, batch_size, trained.workers, trained.device):
            model(images.to(trained.device, non_blocking=True)).cpu()
    return time.perf_counter() - start


def dataset_samples(context: Context, image_size: int, samples: int = 8) -> Values:
    """Return training samples of the measure's datasets, spread evenly over each (Fig. 1).

    Images are resized to `image_size` pixels a side, as in the recipes.

    Returns:
        for each dataset, with its index from 0 as `place`: ``<place>/images``, the number of
        training images; ``<place>/classes``; ``<place>/pixels``, ``(samples, H, W, 3)`` bytes.

    Raises:
        VitrailError: a dataset is not there.
    """
    values: dict[str, Any] = {}
    for place, info in enumerate(context.datasets):
        dataset: Any = build(info, "train", context.data_root, context.seed)
        shown = [dataset[index][0] for index in evenly_spread(len(dataset), samples)]
        size = (image_size, image_size)
        values |= {
            f"{place}/images": len(dataset),
            f"{place}/classes": info.classes,
            f"{place}/pixels": [
                np.asarray(image.resize(size, Image.Resampling.BILINEAR)).tolist()
                for image in shown
            ],
        }
    return values


def position_samples(described: Described, samples: int = 3) -> Values:
    """Return the first training samples of every class of a Position dataset (Fig. 2).

    Returns:
        ``samples``, the number of samples shown for each class. For each class c: ``<c>/original``,
        its class in the original dataset; ``<c>/dependent``, 1 or 0; ``<c>/images``, the number of
        its training images; ``<c>/share``, ``(2, 2)``, percent of them in each corner;
        ``<c>/content``, ``(s, s, 3)`` bytes of the first image without its frame, black if there is
        none; ``<c>/pixels``, ``(n, 2s, 2s, 3)`` bytes of the samples.

    Raises:
        VitrailError: the recipe's dataset is not a Position dataset, or is not there.
    """
    dataset = build(described.info, "train", described.data_root)
    placed = require_position_dataset(dataset, described)
    corners = placed.places // placed.places.max()  # (N, 2), row and column
    nothing = np.zeros_like(placed.images[0])  # for a class without images
    values: dict[str, Any] = {"samples": samples}
    for label in range(CLASSES):
        own = np.flatnonzero(placed.labels == label)
        counts = np.zeros((2, 2))
        np.add.at(counts, tuple(corners[own].T), 1)
        values |= {
            f"{label}/original": original_of(label),
            f"{label}/dependent": int(label in DEPENDENT),
            f"{label}/images": len(own),
            f"{label}/share": (100 * counts / max(1, len(own))).tolist(),
            f"{label}/content": (placed.images[own[0]] if len(own) else nothing).tolist(),
            f"{label}/pixels": [np.asarray(placed[index][0]).tolist() for index in own[:samples]],
        }
    return values
