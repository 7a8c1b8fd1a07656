"""Table 1 and Figure 3: what Mixup, Cutmix and random erasing do to the variance of an image.

What is measured is what is trained with, timm's own augmentations, on two real photographs. Beside
it stands the theory, Propositions 1 to 3, filled with the photographs' own means, variances and
correlations: each makes a new image from an image and something else, by weights or by a mask, so
its variance follows from the first two moments of both. All results are ratios
Var[after] / Var[before]. Moments may be those of a whole batch (pooled) or of one image (within);
the formulas are the same, and the two answers differ because images differ in their means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import torch
from timm.data import Mixup
from timm.data.constants import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    IMAGENET_INCEPTION_MEAN,
    IMAGENET_INCEPTION_STD,
)
from timm.data.random_erasing import RandomErasing
from torch import Tensor
from torchvision.transforms.functional import normalize

from vitrail.images.photos import photo_crops
from vitrail.measures.context import Context, Values
from vitrail.seeding import seed_everything
from vitrail.variance.upsampling import Mode, upsample, variance_ratio

Number = TypeVar("Number", float, Tensor)
Augment = Callable[[Tensor], Tensor]
Row = tuple[float, float, float, float]
QUANTITIES = ("pooled", "pooled theory", "within", "within theory")

# E[e^2] of the noise, and the variance of its mean over one block's three channels.
NOISE = {"const": (0.0, 0.0), "rand": (1.0, 1 / 3), "pixel": (1.0, 0.0)}
# Beta(a, a) for so large an a is 0.5: timm's way to a fixed lambda.
HALF = 1e6


def mixup_variance(lam: Number, rho: float = 0.0) -> Number:
    """The ratio for lam * v_i + (1 - lam) * v_j of correlation `rho` (variance, Proposition 1).

    The paper has rho = 0. Below 1 for every lam in (0, 1), unless the images are equal (rho = 1).
    """
    return lam**2 + (1 - lam) ** 2 + 2 * lam * (1 - lam) * rho


def beta_mixup_variance(alpha: float, rho: float = 0.0) -> float:
    """Mean of `mixup_variance` over lam ~ Beta(alpha, alpha), which is how Mixup draws it.

    E[lam (1 - lam)] = alpha / (2 (2 alpha + 1)), so that rho = 0 gives
    (alpha + 1) / (2 alpha + 1).
    """
    return 1 - (1 - rho) * alpha / (2 * alpha + 1)


def cutmix_variance(area: Number, gap: Number, variance: Number) -> Number:
    """The ratio where `area`, a fraction, comes from the other image (variance, Proposition 2).

    The two means differ by `gap`, 0 in the paper; `variance` is that of either image.
    """
    return 1 + area * (1 - area) * gap**2 / variance


def erasing_variance(
    fraction: Number, mean: Number, variance: Number, power: float, shared: float = 0.0
) -> Number:
    """The ratio where a `fraction` f of an image is noise e (variance, Proposition 3).

    ((1 - f) (v + m^2) + f E[e^2] - ((1 - f) m)^2 - f^2 s) / v is 1 for mean m = 0, variance v = 1,
    power E[e^2] = 1 and s = 0: standardised images, noise of unit variance, a new value for each
    pixel. The power is 0 for ``const``. The variance s of the erased block's mean is 0 for
    ``pixel`` and for a batch of many blocks; within one image ``rand`` has 1 / channels.
    """
    kept = 1 - fraction
    second = kept * (variance + mean**2) + fraction * power
    return (second - (kept * mean) ** 2 - fraction**2 * shared) / variance


def augmentation_variance(context: Context, image_size: int, images: int, batches: int) -> Values:
    """Table 1: Var[after] / Var[before] of each augmentation, measured and in theory.

    Source: variance, Sec. "Variance Shift Due to Mixup" and
    Sec. "Variance Shift Due to Random Erasing".

    Args:
        context: its seed decides crops and augmentations.
        image_size: side of the crops in pixels.
        images: crops in a batch, half of each photograph.
        batches: how often the batch is augmented.

    Returns:
        ``"<augmentation>/<quantity>"`` with the quantities pooled, pooled theory (the variance of
        a whole batch), within, within theory (the mean variance of one image).
    """
    pixels = _crops(images, image_size, context.seed)
    photos = pixels.unflatten(0, (-1, 2))  # crops come from the two photographs in turn
    own = (photos - photos.mean((0, 3, 4), keepdim=True)) / photos.std((0, 3, 4), keepdim=True)
    own = own.flatten(0, 1)
    generator = torch.Generator().manual_seed(context.seed)
    noise = torch.randn(own.shape, generator=generator)
    normalized = {
        "own": own,
        "default": normalize(pixels, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
        "inception": normalize(pixels, IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD),
    }

    rows = {mode: _upsampling(own, mode) for mode in get_args(Mode)}
    modes: tuple[Mode, ...] = ("bilinear", "bicubic")
    rows |= {f"{mode} noise": _upsampling(noise, mode) for mode in modes}
    for name, alpha in {"0.2": 0.2, "0.4": 0.4, "0.8": 0.8, "half": HALF}.items():
        seed_everything(f"mixup {name}", context.seed)
        rows[f"mixup {name}"] = _mixup(own, alpha, batches)
    for normalization in ("own", "default"):
        seed_everything(f"cutmix {normalization}", context.seed)
        rows[f"cutmix {normalization}"] = _cutmix(normalized[normalization], batches)
    for normalization, batch in normalized.items():
        for mode in NOISE:
            seed_everything(f"erasing {mode} {normalization}", context.seed)
            rows[f"{mode} {normalization}"] = _erasing(batch, mode, batches)
    return {
        f"{row}/{quantity}": value
        for row, values in rows.items()
        for quantity, value in zip(QUANTITIES, values, strict=True)
    }


def augmentation_montage(context: Context, image_size: int) -> Values:
    """Figure 3: two photographs and what becomes of them, with the variance of each.

    Each photograph is standardised by its own mean and deviation, so that the propositions'
    conditions hold exactly: equal means, variance 1.

    Returns:
        ``"<image>/variance"``, and ``"pixels <image>"``: (H, W, 3) in 0..255 for drawing.
    """
    size = 5 * image_size  # a large part of the photograph, scaled down
    crops = _crops(2, size, context.seed)
    crops = upsample(crops, (image_size, image_size), "bilinear", antialias=True)
    flat = crops.flatten(1)
    pair = (crops - flat.mean(1)[:, None, None, None]) / flat.std(1)[:, None, None, None]
    shown = {"first image": pair[0], "second image": pair[1]}
    seed_everything("montage", context.seed)
    labels = torch.zeros(2, dtype=torch.long)
    shown["Mixup"] = Mixup(mixup_alpha=HALF)(pair.clone(), labels)[0][0]
    shown["Cutmix"] = Mixup(mixup_alpha=0, cutmix_alpha=HALF)(pair.clone(), labels)[0][0]
    for mode in ("pixel", "rand", "const"):
        erasing = RandomErasing(probability=1, min_area=0.2, mode=mode, device="cpu")
        shown[f"erasing {mode}"] = erasing(pair[0].clone())
    return {f"{name}/variance": _variance(image) for name, image in shown.items()} | {
        f"pixels {name}": _to_bytes(image) for name, image in shown.items()
    }


def _upsampling(batch: Tensor, mode: Mode) -> Row:
    """Twice the size; the theory is that of white noise (variance, Theorem 1)."""
    old = (batch.shape[-2], batch.shape[-1])
    new = (2 * old[0], 2 * old[1])
    pooled, within = _measure(batch, lambda images: upsample(images, new, mode), 1)
    k = variance_ratio(old, new, mode)
    return pooled, k, within, k


def _mixup(batch: Tensor, alpha: float, batches: int) -> Row:
    """Mixup, with the mean correlation of all pairs of these images (variance, Proposition 1)."""
    mixup = Mixup(mixup_alpha=alpha, num_classes=2)
    labels = torch.zeros(len(batch), dtype=torch.long)
    pooled, within = _measure(
        batch, lambda images: mixup(images[torch.randperm(len(images))], labels)[0], batches
    )
    flat = batch.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    rho = (_mean_product(flat) - batch.mean().item() ** 2) / _variance(batch)
    rho_within = _mean_product(centred) / _within(batch)
    theory = mixup_variance if alpha == HALF else beta_mixup_variance
    drawn = 0.5 if alpha == HALF else alpha
    return pooled, theory(drawn, rho), within, theory(drawn, rho_within)


def _cutmix(batch: Tensor, batches: int) -> Row:
    """Cutmix; images of unequal means gain variance, each in itself (variance, Proposition 2)."""
    cutmix = Mixup(mixup_alpha=0, cutmix_alpha=1.0, label_smoothing=0, num_classes=2)
    half = len(batch) // 2
    labels = torch.tensor([0] * half + [1] * half)
    areas, gaps = [], []

    def augment(images: Tensor) -> Tensor:
        images = images[torch.randperm(len(images))]
        means = images.flatten(1).mean(1)
        gaps.append(means - means.flip(0))  # timm mixes image i with image B - 1 - i, in place
        mixed, target = cutmix(images, labels)
        areas.append(target[0, 1])  # the weight of the other image's label is its area
        return mixed

    pooled, within = _measure(batch, augment, batches)
    area, gap = torch.stack(areas)[:, None], torch.stack(gaps)
    theory = cutmix_variance(area, gap, torch.tensor(_within(batch))).mean().item()
    return pooled, 1.0, within, theory


def _erasing(batch: Tensor, mode: str, batches: int) -> Row:
    """Random erasing, every image erased once (variance, Proposition 3)."""
    erasing = RandomErasing(probability=1, mode=mode, device="cpu")
    fractions = []

    def augment(images: Tensor) -> Tensor:
        erased = erasing(images)
        fractions.append((erased != batch).any(dim=1).float().mean(dim=(1, 2)))  # (B,)
        return erased

    pooled, within = _measure(batch, augment, batches)
    power, shared = NOISE[mode]
    fraction, flat = torch.stack(fractions), batch.flatten(1)
    mean, variance = flat.mean(1), flat.var(1, correction=0)
    each = erasing_variance(fraction, mean, variance, power, shared) * variance
    share, mean_of_all = fraction.mean().item(), batch.mean().item()
    theory = erasing_variance(share, mean_of_all, _variance(batch), power)
    return pooled, theory, within, each.mean().item() / _within(batch)


def _mean_product(rows: Tensor) -> float:
    """Mean over pairs of different rows ``(B, n)`` of the mean of their products."""
    pairs = len(rows) * (len(rows) - 1)
    products: Tensor = rows.sum(0).square() - rows.square().sum(0)
    return products.mean().item() / pairs


def _measure(batch: Tensor, augment: Augment, batches: int) -> tuple[float, float]:
    """Augment a batch several times; return Var[after] / Var[before], pooled and within."""
    first, second, within = 0.0, 0.0, 0.0
    for _ in range(batches):
        after = augment(batch.clone())  # timm augments in place
        first += after.mean().item() / batches
        second += after.square().mean().item() / batches
        within += _within(after) / batches
    return (second - first**2) / _variance(batch), within / _within(batch)


def _variance(batch: Tensor) -> float:
    return batch.var(correction=0).item()


def _within(batch: Tensor) -> float:
    """Mean over images of the variance of one: ``(B, C, H, W)``."""
    return batch.flatten(1).var(1, correction=0).mean().item()


def _crops(images: int, size: int, seed: int) -> Tensor:
    """Photo crops as ``(images, 3, size, size)`` in [0, 1]."""
    return torch.from_numpy(photo_crops(images, size, seed)).permute(0, 3, 1, 2) / 255


def _to_bytes(image: Tensor) -> Any:
    """Map a standardised ``(3, H, W)`` image to what a screen shows, mid-grey for zero."""
    return (127.5 + 60 * image).clamp(0, 255).round().int().permute(1, 2, 0).tolist()
