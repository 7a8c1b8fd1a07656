"""Measures of the paper's tables and figures, which `artifacts.yaml` names.

`upsampling` is Table 2, `rescaling` Table 3; `amplification` tests whether the gain in Table 3
comes from the variance; `embedding_variance` and `position_maps` are Figures 1 and 2;
`normalisation_gradient` is the gradient in the paper's problem statement. Table 1 and Figure 3 are
in `augmentation_measures`; Tables 5 and 6 only need accuracy.

Test sizes are given as in the paper (224 ... 864, trained at 224). A recipe trained on images of n
pixels is tested at n / 224 times the given size, so that the ratio to the training size is the
paper's. For models that are not in the paper, published for other sizes, sizes are pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from replication.context import Context, Passes, Trained, Values, passes
from replication.images.loading import EvaluationSamples, TrainingSamples
from replication.images.opening import build
from replication.images.transforms import eval_transform, train_transform
from replication.measures.packed_scores import BY_IMAGE, pack
from replication.measures.resume import kept_rows
from vitrail.errors import VitrailError
from vitrail.measures.loading import eval_loader, evenly_spread
from vitrail.measures.outputs import require_logits
from vitrail.variance.rescaling import (
    adds_table,
    at_image_size,
    patch_positions,
    rescale_pos_embed,
)
from vitrail.variance.upsampling import (
    Mode,
    axis_variance_ratio,
    sampled_variance_ratio,
    weight_matrix,
)

RIGHT = "right"
"""The name of the saved rows that say which images are classified correctly."""
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {"calibration": "none"},
    # Table 3 applies its constant at 224 pixels too, where nothing is upsampled.
    "iid": {"calibration": "constant", "also_at_train_size": True},
    "empirical": {"calibration": "empirical"},
}


def upsampling(
    context: Context,
    modes: Sequence[Mode],
    cases: Mapping[str, Mapping[str, Any]],
    monte_carlo: Mapping[str, Any],
) -> Values:
    """Table 2: the variance ratio k of white noise, exact and by sampling as in the paper.

    `cases` are arguments of `axis_variance_ratio` (``old``, ``new``, ``antialias``) by name;
    `monte_carlo` names the ``case`` to sample and the number of ``maps`` of noise.

    Returns:
        ``"<mode> <case>/<quantity>"`` for k2D, k1D, 1/sqrt(k2D), 1/sqrt(k1D) and mean, which is
        E[UP(v)] / E[v], the mean over outputs of the sum of their weights. The sampled case is
        called ``monte carlo`` and has no mean, as that of its noise is 0.
    """
    values: dict[str, float | None] = {}
    for mode in modes:
        for name, case in cases.items():
            k1d = axis_variance_ratio(mode=mode, **case)
            mean = weight_matrix(mode=mode, **case).sum(dim=1).mean().item()
            values |= _ratios(f"{mode} {name}", k1d**2, k1d, mean**2)  # of both axes
        sampled = cases[monte_carlo["case"]]
        old, new = sampled["old"], sampled["new"]
        generator = torch.Generator().manual_seed(context.seed)
        options = {"maps": monte_carlo["maps"], "generator": generator}
        k2d, k1d = (
            sampled_variance_ratio((old, old), size, mode, **options)
            for size in ((new, new), (new, old))
        )
        values |= _ratios(f"{mode} monte carlo", k2d, k1d)
    return values


def _ratios(name: str, k2d: float, k1d: float, mean: float | None = None) -> dict[str, Any]:
    ratios = {"k2D": k2d, "k1D": k1d, "1/sqrt(k2D)": k2d**-0.5, "1/sqrt(k1D)": k1d**-0.5}
    return {f"{name}/{quantity}": value for quantity, value in {**ratios, "mean": mean}.items()}


def normalisation_gradient(context: Context, channels: int, ratios: Sequence[float]) -> Values:
    """Measure the gradient d LN(X+P)/dP of one token for several Var[X], with Var[P] = 1.

    Source: variance, Sec. "Problem Statement". With z = LN(X+P) the gradient is
    (I - 11'/n - zz'/n) / sqrt(Var[X+P]): a projection on n - 2 dimensions, divided by the standard
    deviation. So its Frobenius norm over sqrt(n - 2) is 1 / sqrt(Var[X+P]). The paper's
    1 / sqrt(Var[X]) is the limit for Var[X] much larger than Var[P].

    Args:
        context: its seed draws X and P.
        channels: n, the channels of a token.
        ratios: values of Var[X] / Var[P].

    Returns:
        ``"<ratio>/..."``: gradient, this norm by automatic differentiation; exact,
        1 / sqrt(Var[X+P]); paper, 1 / sqrt(Var[X]); gradient/paper.
    """
    generator = torch.Generator().manual_seed(context.seed)
    drawn = torch.randn(2, channels, generator=generator, dtype=torch.float64)
    x, p = torch.linalg.qr((drawn - drawn.mean(1, keepdim=True)).T).Q.T * channels**0.5
    values: dict[str, float] = {}
    for ratio in ratios:
        patch = ratio**0.5 * x  # not correlated with p, which has variance 1

        def normalised(positions: Tensor, patch: Tensor = patch) -> Tensor:
            return nn.functional.layer_norm(patch + positions, (channels,), eps=0)

        jacobian: Any = torch.autograd.functional.jacobian(normalised, p)
        gradient = (jacobian.norm() / (channels - 2) ** 0.5).item()
        values |= {
            f"{ratio:g}/gradient": gradient,
            f"{ratio:g}/exact": (patch + p).var(correction=0).item() ** -0.5,
            f"{ratio:g}/paper": ratio**-0.5,
            f"{ratio:g}/gradient/paper": gradient * ratio**0.5,
        }
    return values


def _passes_by_size(given: Mapping[str, Any], models: int) -> Passes:
    """Return the forward passes of an image: one by each model at each test size not skipped."""
    sizes = {*given["sizes"]} - {*given.get("skipped", ())}
    trained_at = given["trained_at"] or given["side"]
    return {size / trained_at: models for size in sorted(sizes)}


@passes(lambda given: _passes_by_size(given, len(METHODS)))
def rescaling(
    trained: Trained,
    sizes: Sequence[int],
    trained_at: int | None,
    mode: Mode,
    antialias: bool,
    batch_size: int,
    images: int | None = None,
    skipped: Sequence[int] = (),
) -> Values:
    """Table 3: top-1 accuracy (percent) at larger test sizes, for each calibration of P.

    Source: variance, Sec. "Rescaling Positional Embedding".

    Args:
        trained: the model and its dataset.
        sizes: test sizes, relative to `trained_at`, or in pixels if that is None.
        trained_at: the paper's training size.
        mode: of the interpolation of P.
        antialias: of the interpolation of P.
        batch_size: images of a batch.
        images: how many, spread evenly over the validation split; None is all.
        skipped: sizes that are not measured.

    Returns:
        ``"<size>/<method>"`` for the methods baseline, iid (the paper's) and empirical, and
        ``"<size>/<method>-baseline"``, the gain on the same images; each also by image. Values of
        `skipped` sizes are None. If the model adds no table of positions to its patches (for
        example with RoPE only), all methods but the baseline are None.
    """
    gained = ("iid", "empirical")
    names = (*METHODS, *(f"{name}-baseline" for name in gained))
    methods = METHODS if adds_table(trained.model) else {"baseline": METHODS["baseline"]}
    values: dict[str, float | str | None] = {}
    for size in sizes:
        values |= {f"{size}/{name}": None for name in names}
        if size in skipped:
            continue
        pixels, models = _enlarged(trained, size, trained_at, mode, antialias, methods)
        decided = {"mode": mode, "antialias": antialias}
        right = _right(trained, models, pixels, batch_size, images, decided)
        values |= _with_gains(right, "baseline", [*models][1:], size)
    return values


def _with_gains(
    right: Mapping[str, Tensor], base: str, names: Iterable[str], size: int
) -> dict[str, float | str]:
    """Return the accuracy of each model in percent, and the gain of `names` over `base`."""
    gains = {f"{name}-{base}": right[name] - right[base] for name in names}
    values: dict[str, float | str] = {}
    for name, scores in {**right, **gains}.items():
        values[f"{size}/{name}"] = 100 * scores.sum().item() / len(scores)
        values[f"{size}/{name}{BY_IMAGE}"] = pack(scores.tolist())
    return values


@passes(lambda given: _passes_by_size(given, len({1.0, *given["factors"]})))
def amplification(
    trained: Trained,
    sizes: Sequence[int],
    factors: Sequence[float],
    trained_at: int,
    mode: Mode,
    antialias: bool,
    batch_size: int,
    images: int | None = None,
    skipped: Sequence[int] = (),
) -> Values:
    """Measure top-1 accuracy (percent) with s * UP(P) for factors s; arguments as in `rescaling`.

    The paper's method is one such factor. If it helps because it restores the variance, then the
    best factor is the one that restores it, sqrt(Var P / Var UP(P)).

    Returns:
        ``"<size>/<factor>"``, the factor with two decimals, and ``"<size>/<factor>-1.00"``, the
        gain over plain UP(P) on the same images; each also by image.
    """
    methods = {f"{factor:.2f}": {"scale": factor} for factor in sorted({1.0, *factors})}
    values: dict[str, float | str | None] = {}
    for size in sizes:
        if size in skipped:
            values |= {f"{size}/{name}{end}": None for name in methods for end in ("", "-1.00")}
            continue
        pixels, models = _enlarged(trained, size, trained_at, mode, antialias, methods)
        decided = {"mode": mode, "antialias": antialias}
        right = _right(trained, models, pixels, batch_size, images, decided)
        values |= _with_gains(right, "1.00", models, size)
    return values


def _passes_of_embeddings(given: Mapping[str, Any]) -> Passes:
    """Return the cost as forward passes: one per image, whose reading takes most of the time."""
    trained_at = given["trained_at"] or given["side"]
    passes = {size / trained_at: 1.0 for size in given["sizes"]}
    passes[1] = passes.get(1, 0) + given["train_images"] / given["images"]
    return passes


@passes(_passes_of_embeddings)
@torch.inference_mode()
def embedding_variance(
    trained: Trained,
    sizes: Sequence[int],
    trained_at: int | None,
    mode: Mode,
    antialias: bool,
    batch_size: int,
    images: int | None = None,
) -> Values:
    """Figure 1: Var[X] and Var[P] in training and at each test size (variance, Eq. 1-6).

    Arguments are as in `rescaling`. X is the patch embedding of images under the recipe's training
    transform (``training``) or evaluation transform; P is the position embedding of the patches.

    Returns:
        ``"training/..."`` and ``"<size>/..."`` with patch (Var[X]), and baseline, iid and empirical
        (Var[P] under each calibration).
    """
    model: Any = trained.model
    train = TrainingSamples(
        build(trained.info, "train", trained.data_root, trained.seed),
        train_transform(trained.recipe, trained.info),
        trained.seed,
    )
    first_epoch = [(0, index) for index in evenly_spread(len(train), images)]
    starts = range(0, len(first_epoch), batch_size)
    batches = (train.__getitems__(first_epoch[start : start + batch_size]) for start in starts)
    seen = (torch.stack([image for image, _ in batch]) for batch in batches)
    unscaled = patch_positions(model).var(correction=0).item()
    values: dict[str, float] = {
        "training/patch": _patch_variance(trained, model, seen),
        **{f"training/{name}": unscaled for name in METHODS},
    }
    for size in sizes:
        pixels, models = _enlarged(trained, size, trained_at, mode, antialias)
        shown = (batch for batch, _ in _test_batches(trained, pixels, batch_size, images))
        values[f"{size}/patch"] = _patch_variance(trained, models["baseline"], shown)
        for name, resized in models.items():
            values[f"{size}/{name}"] = patch_positions(resized).var(correction=0).item()
    return values


@passes(0)
def position_maps(
    trained: Trained, size: int, trained_at: int | None, mode: Mode, antialias: bool
) -> Values:
    """Figure 2: the variance of P over channels at every position; arguments as in `rescaling`.

    Returns:
        for P and each method (baseline, iid, empirical): ``"<table>/variance"``, of the whole
        table; ``"<table>/ratio"``, this over P's; and ``"map <table>"``, (rows, columns).
    """
    _, models = _enlarged(trained, size, trained_at, mode, antialias)
    values: dict[str, Any] = {}
    for name, model in {"P": trained.model, **models}.items():
        grid = patch_positions(model)  # (1, C, h, w)
        values[f"{name}/variance"] = grid.var(correction=0).item()
        values[f"{name}/ratio"] = values[f"{name}/variance"] / values["P/variance"]
        values[f"map {name}"] = grid[0].var(dim=0, correction=0).tolist()
    return values


def _enlarged(
    trained: Trained,
    size: int,
    trained_at: int | None,
    mode: Mode,
    antialias: bool,
    methods: Mapping[str, Mapping[str, Any]] = METHODS,
) -> tuple[int, dict[str, nn.Module]]:
    """Return the test size in pixels, and the model at that size with P calibrated by each method.

    A model without a table of position embeddings is the same for all methods.
    """
    trained_at = trained_at or trained.recipe.data.image_size
    pixels, rest = divmod(size * trained.recipe.data.image_size, trained_at)
    if rest:
        raise VitrailError(
            f"test size {size} is not a whole number of pixels for training at "
            f"{trained.recipe.data.image_size} instead of {trained_at}; choose another size"
        )
    if not adds_table(trained.model):
        return pixels, dict.fromkeys(methods, at_image_size(trained.model, pixels))
    return pixels, {
        name: rescale_pos_embed(trained.model, pixels, mode, antialias=antialias, **method)
        for name, method in methods.items()
    }


def _test_batches(
    trained: Trained, pixels: int, batch_size: int, images: int | None, done: int = 0
) -> Iterable[tuple[Tensor, Tensor]]:
    """Return batches of the test images, without the first `done` images."""
    dataset: Any = build(trained.info, "val", trained.data_root, trained.seed)
    chosen = Subset(dataset, evenly_spread(len(dataset), images)[done:])
    samples = EvaluationSamples(chosen, eval_transform(trained.recipe, trained.info, pixels))
    return eval_loader(samples, batch_size, trained.workers, trained.device)


@torch.inference_mode()
def _right(
    trained: Trained,
    models: Mapping[str, nn.Module],
    pixels: int,
    batch_size: int,
    images: int | None,
    decided: Mapping[str, Any],
) -> dict[str, Tensor]:
    """Return for each model which images it classifies correctly: (N,) of 1 or 0.

    Each image is decoded and resized once for all models. An interrupted measurement resumes after
    its saved rows; `decided` and the names of the models identify these.
    """
    how = {"pixels": pixels, "batch": batch_size, "images": images, "by": [*models], **decided}
    with kept_rows(trained, RIGHT, **how) as rows:
        found = rows.read(batch_size)  # (n, models) int8
        done = sum(map(len, found))
        for batch, labels in _test_batches(trained, pixels, batch_size, images, done):
            batch = batch.to(trained.device, non_blocking=True)
            logits = [require_logits(model(batch).cpu()) for model in models.values()]
            hits = [of_model.argmax(dim=1) == labels for of_model in logits]
            found.append(torch.stack(hits, dim=1).to(torch.int8))
            rows.append(found[-1])
    return dict(zip(models, torch.cat(found).int().unbind(dim=1), strict=True))


def _patch_variance(trained: Trained, model: Any, batches: Iterable[Tensor]) -> float:
    """Return Var[X] over all values of the patch embeddings of these images, as in the paper."""
    total, first, second = 0, 0.0, 0.0
    for batch in batches:
        embedded = model.patch_embed(batch.to(trained.device, non_blocking=True)).double()
        total += embedded.numel()
        first += embedded.sum().item()
        second += embedded.square().sum().item()
    return second / total - (first / total) ** 2
