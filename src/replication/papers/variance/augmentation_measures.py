"""variance, Table 1 and Figure 3: what augmentations do to the variance of an image.

The augmentations are those of training, timm's own, on random crops; the results are compared with
the theory of Propositions 1 to 3. Mixup is a weighted sum of two images; Cutmix and random erasing
choose by a mask between an image and another image or noise. So the variance of the result follows
from the first two moments of both. All results are ratios Var[after] / Var[before]. The moments are
those of many images together (pooled) or of one image (within); the ratios differ because images
differ in their means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

import torch
from PIL import Image
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

from replication.context import Context, Values
from replication.datasets.digest import images_sha256
from replication.images.photos import photo_crops
from replication.measures.photographs import centres, crops, photographs
from vitrail.errors import VitrailError
from vitrail.seeding import derive, seed_everything
from vitrail.variance.upsampling import Mode, upsample, variance_ratio

Number = TypeVar("Number", float, Tensor)
Augmented = tuple[Tensor, float, float]
"""Images, and Var[after] / Var[before] by theory, pooled and within."""
Augment = Callable[[Tensor], Augmented]
"""Augments images ``(B, 3, H, W)``, which it must not change in place."""

QUANTITIES = ("pooled", "pooled theory", "within", "within theory", "mean shift")

# For each mode: E[e^2] of the noise e, and the variance of the mean of one erased block, which has
# three channels. The modes are timm's, whose rand draws one value for each channel, and "single",
# which is the paper's rand: one value for the whole block.
NOISE = {"const": (0.0, 0.0), "rand": (1.0, 1 / 3), "single": (1.0, 1.0), "pixel": (1.0, 0.0)}
# For so large an a, Beta(a, a) is nearly constant 0.5, which gives timm's Mixup a fixed lambda.
HALF = 1e6
PATCHES = 8  # patches on each side of the mask of Cutmix by patches
CROP_PCT = 0.9  # of test images, as in the example of "Image Classification Scenario"

DEFAULT = (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
INCEPTION = (IMAGENET_INCEPTION_MEAN, IMAGENET_INCEPTION_STD)


def mixup_variance(lam: Number, rho: float = 0.0) -> Number:
    """Return the ratio for lam * v_i + (1 - lam) * v_j (variance, Proposition 1).

    `rho` is the correlation of the two images, 0 in the paper. The ratio is below 1 for lam in
    (0, 1), unless the images are equal (rho = 1), and above 1 for lam below 0 or above 1.
    """
    return lam**2 + (1 - lam) ** 2 + 2 * lam * (1 - lam) * rho


def beta_mixup_variance(alpha: float, rho: float = 0.0) -> float:
    """Return the mean of `mixup_variance` over lam ~ Beta(alpha, alpha), as Mixup draws it.

    E[lam (1 - lam)] = alpha / (2 (2 alpha + 1)), so that rho = 0 gives
    (alpha + 1) / (2 alpha + 1).
    """
    return 1 - (1 - rho) * alpha / (2 * alpha + 1)


def cutmix_variance(area: Number, gap: Number, variance: Number) -> Number:
    """Return the ratio if the fraction `area` is from another image (variance, Proposition 2).

    `gap` is the difference of the images' means, 0 in the paper; both have the same `variance`.
    """
    return 1 + area * (1 - area) * gap**2 / variance


def erasing_variance(
    fraction: Number, mean: Number, variance: Number, power: float, shared: float = 0.0
) -> Number:
    """Return the ratio if a `fraction` f of an image is noise e (variance, Proposition 3).

    It is ((1 - f) (v + m^2) + f E[e^2] - ((1 - f) m)^2 - f^2 s) / v. This is 1 for mean m = 0,
    variance v = 1, power E[e^2] = 1 and s = 0: standardised images, and noise of unit variance with
    a new value for each pixel. The power is 0 for ``const``. `shared`, s, is the variance of the
    erased block's mean: 0 for ``pixel`` and for a batch of many blocks; within one image 1 /
    channels for timm's ``rand``, and 1 if the whole block has one value.
    """
    kept = 1 - fraction
    second = kept * (variance + mean**2) + fraction * power
    return (second - (kept * mean) ** 2 - fraction**2 * shared) / variance


def augmentation_variance(
    context: Context, image_size: int, images: int, batch_size: int, parts: int = 1
) -> Values:
    """Table 1: Var[after] / Var[before] of each augmentation, measured and in theory.

    Source: variance, Sec. "Properties of Variance", Sec. "Variance Shift Due to Mixup",
    Sec. "Variance Shift Due to Random Erasing".

    Images are random resized crops of photographs of the measure's dataset, standardised by
    ImageNet's statistics (default-mean-std), by inception-mean-std, or each image by its own mean
    and standard deviation, as the propositions assume. Upsampling is applied to the centre of the
    stored photograph under default-mean-std, as crops were resized already. If the measure names no
    dataset, images are white noise with ImageNet's statistics, for which the propositions are
    exact.

    Args:
        context: its seed decides the part of the photographs, the pairs, crops and augmentations.
        image_size: side of the images in pixels, at most that of the photographs.
        images: how many, a multiple of `batch_size`.
        batch_size: how many are in memory, and mixed with one another; a multiple of 2.
        parts: into how many parts of `images` the photographs are divided at random, one for each
            seed, so that the spread over seeds is also that of photographs and of their pairs.

    Returns:
        ``"<augmentation> <images>/<quantity>"``, where the images are default, inception, own or
        stored. The quantities are pooled and pooled theory (from the variance of all pixels of all
        images), within and within theory (from the mean variance of one image), and mean shift
        (change of the mean of all pixels, divided by their standard deviation). The theory uses the
        measured means, variances and correlations of the images. "before" is no augmentation: it
        compares the images with a mean of 0 and a variance of 1. "training crop" compares the test
        image of a photograph with its training crop; it is None for noise. For photographs also
        the number and digest of those that this seed takes.

    Raises:
        VitrailError: there are fewer parts than seeds, or fewer photographs.
    """
    photos = _part(context, images, parts) if context.datasets else []
    values: dict[str, float | str | None] = {}
    ratios = {name: _Ratio() for name in (*BEFORE, *AUGMENTATIONS, TRAINING)}
    if photos:
        digest = images_sha256((photo, b"") for photo in photos)
        values = {"photographs": len(photos), "sha256": digest}
    for number in range(images // batch_size):
        shown = photos[number * batch_size :][:batch_size]
        seed = derive("table 1", context.seed, number)
        pixels = crops(shown, image_size, seed) if shown else _noise(batch_size, image_size, seed)
        stored = centres(shown, image_size) if shown else pixels
        taken = {**_normalised(pixels), "stored": normalize(stored, *DEFAULT)}
        before = {kind: _Moments.of(each) for kind, each in taken.items()}
        for name, kind in BEFORE.items():
            ratios[name].add(_Moments.standard(batch_size), before[kind], 1.0, 1.0)
        for name, augment in AUGMENTATIONS.items():
            seed_everything(name, seed)
            kind = name.rpartition(" ")[2]
            after, pooled, within = augment(taken[kind])
            ratios[name].add(before[kind], _Moments.of(after), pooled, within)
        if shown:
            tested = normalize(centres(shown, image_size, CROP_PCT), *DEFAULT)
            ratios[TRAINING].add(_Moments.of(tested), before["default"], 1.0, 1.0)
    for name, ratio in ratios.items():
        measured = zip(QUANTITIES, ratio.values(), strict=True)
        values |= {f"{name}/{quantity}": value for quantity, value in measured}
    return values


def _part(context: Context, images: int, parts: int) -> list[Image.Image]:
    """Return the photographs of the context's seed, in a random order that decides their pairs."""
    if context.seed >= parts:
        raise VitrailError(
            f"the photographs have {parts} parts, and the seed is {context.seed}: give the measure "
            f"parts: {context.seed + 1} or more"
        )
    photos = photographs(context, images * parts)
    generator = torch.Generator().manual_seed(derive("parts of photographs"))
    order = torch.randperm(len(photos), generator=generator)
    return [photos[index] for index in order[context.seed :: parts].tolist()]


def augmentation_montage(context: Context, image_size: int) -> Values:
    """Figure 3: two photographs and augmented images of them, with the variance of each.

    Each photograph is standardised by its own mean and deviation, so that the propositions'
    conditions hold exactly: equal means, variance 1.

    Returns:
        ``"<image>/variance"``, and ``"pixels <image>"``: (H, W, 3) in 0..255 for drawing.
    """
    size = 5 * image_size  # a large part of the photograph, scaled down
    pixels = torch.from_numpy(photo_crops(2, size, context.seed)).permute(0, 3, 1, 2) / 255
    pair = _normalised(upsample(pixels, (image_size, image_size), "bilinear", antialias=True))[
        "own"
    ]
    shown = {"first image": pair[0], "second image": pair[1]}
    seed_everything("montage", context.seed)
    labels = torch.zeros(2, dtype=torch.long)
    shown["Mixup"] = Mixup(mixup_alpha=HALF)(pair.clone(), labels)[0][0]
    shown["Cutmix"] = Mixup(mixup_alpha=0, cutmix_alpha=HALF)(pair.clone(), labels)[0][0]
    for mode in ("pixel", "rand", "const"):
        erasing = RandomErasing(probability=1, min_area=0.2, mode=mode, device="cpu")
        shown[f"erasing {mode}"] = erasing(pair[0].clone())
    return {f"{name}/variance": image.var(correction=0).item() for name, image in shown.items()} | {
        f"pixels {name}": _to_bytes(image) for name, image in shown.items()
    }


@dataclass
class _Moments:
    """Sums over images of their mean, mean square and variance."""

    images: int = 0
    first: float = 0.0
    second: float = 0.0
    within: float = 0.0

    @classmethod
    def of(cls, images: Tensor) -> _Moments:
        variance, mean = torch.var_mean(images.flatten(1), 1, correction=0)
        variance, mean = variance.double(), mean.double()
        second = variance + mean.square()
        return cls(len(images), mean.sum().item(), second.sum().item(), variance.sum().item())

    @classmethod
    def standard(cls, images: int) -> _Moments:
        """Return the moments of `images` images with mean 0 and variance 1."""
        return cls(images, 0.0, images, images)

    def add(self, other: _Moments) -> None:
        self.images += other.images
        self.first += other.first
        self.second += other.second
        self.within += other.within

    @property
    def mean(self) -> float:
        return self.first / self.images

    @property
    def variance(self) -> float:
        return self.second / self.images - self.mean**2


@dataclass
class _Ratio:
    """Moments of images before and after an augmentation, and the sums that theory predicts."""

    before: _Moments = field(default_factory=_Moments)
    after: _Moments = field(default_factory=_Moments)
    pooled: float = 0.0
    within: float = 0.0

    def add(self, before: _Moments, after: _Moments, pooled: float, within: float) -> None:
        self.before.add(before)
        self.after.add(after)
        self.pooled += before.images * pooled
        self.within += before.within * within

    def values(self) -> Sequence[float | None]:
        before, after = self.before, self.after
        if not before.images:
            return [None] * len(QUANTITIES)
        return [
            after.variance / before.variance,
            self.pooled / before.images,
            after.within / before.within,
            self.within / before.within,
            (after.mean - before.mean) / before.variance**0.5,
        ]


def _noise(images: int, size: int, seed: int) -> Tensor:
    """Return white noise as pixels, with ImageNet's means and standard deviations."""
    noise = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(seed))
    mean, deviation = (torch.tensor(each)[:, None, None] for each in DEFAULT)
    return mean + deviation * noise


def _normalised(pixels: Tensor) -> dict[str, Tensor]:
    """Return the images under each normalisation; ``own`` uses each image's mean and deviation."""
    flat = pixels.flatten(1)
    mean, deviation = (each[:, None, None, None] for each in (flat.mean(1), flat.std(1)))
    return {
        "default": normalize(pixels, *DEFAULT),
        "inception": normalize(pixels, *INCEPTION),
        "own": (pixels - mean) / deviation.clamp_min(1 / 255),  # it is 0 for a constant image
    }


def _upsampled(mode: Mode) -> Augment:
    """Return upsampling to twice the size, with the theory of white noise (variance, Theorem 1)."""

    def augment(images: Tensor) -> Augmented:
        height, width = images.shape[-2:]
        old, new = (height, width), (2 * height, 2 * width)
        k = variance_ratio(old, new, mode)
        return upsample(images, new, mode), k, k

    return augment


def _cropped(images: Tensor) -> Augmented:
    """Crop the centre, half as high and wide."""
    height, width = images.shape[-2:]
    top, left = height // 4, width // 4
    return images[..., top : top + height // 2, left : left + width // 2], 1.0, 1.0


def _shuffled(images: Tensor) -> Augmented:
    flat = images.flatten(2)
    return flat[:, :, torch.randperm(flat.shape[2])], 1.0, 1.0


def _duplicated(images: Tensor) -> Augmented:
    return torch.cat([images, images], dim=-1), 1.0, 1.0


def _concatenated(images: Tensor) -> Augmented:
    """Put two images side by side (variance, Lemma 1)."""
    return torch.cat([images, images.flip(0)], dim=-1), 1.0, _masked(images, torch.tensor(0.5))


def _mixup(alpha: float) -> Augment:
    """Return Mixup with a lambda drawn for each image (variance, Proposition 1)."""

    def augment(images: Tensor) -> Augmented:
        mixup = Mixup(mixup_alpha=alpha, mode="elem", num_classes=2)
        mixed, _ = mixup(images.clone(), torch.zeros(len(images), dtype=torch.long))
        pooled, within = _correlations(images)
        return mixed, beta_mixup_variance(alpha, pooled), beta_mixup_variance(alpha, within)

    return augment


def _mixed(lam: float) -> Augment:
    """Return Mixup with a fixed lambda, also outside (0, 1) (variance, Proposition 1)."""

    def augment(images: Tensor) -> Augmented:
        mixed = lam * images + (1 - lam) * images.flip(0)
        pooled, within = _correlations(images)
        return mixed, mixup_variance(lam, pooled), mixup_variance(lam, within)

    return augment


def _cutmix(images: Tensor) -> Augmented:
    """Apply Cutmix to each image and another (variance, Proposition 2)."""
    cutmix = Mixup(
        mixup_alpha=0, cutmix_alpha=1.0, mode="elem", label_smoothing=0, num_classes=len(images)
    )
    mixed, target = cutmix(images.clone(), torch.arange(len(images)))
    area = 1 - target.diagonal()  # the weight of the other image's label is its area
    return mixed, 1.0, _masked(images, area)


def _patched(images: Tensor) -> Augmented:
    """Replace half of the patches by those of another image, as variants of Cutmix do."""
    sides = images.shape[-2:]
    grid = torch.rand(len(images), PATCHES**2).argsort(1).view(-1, 1, PATCHES, PATCHES)
    mask = upsample((grid < PATCHES**2 // 2).float(), (sides[0], sides[1]), "nearest")
    mixed = mask * images + (1 - mask) * images.flip(0)
    return mixed, 1.0, _masked(images, 1 - mask.mean((1, 2, 3)))


def _erased(mode: str) -> Augment:
    """Return random erasing of one block in every image (variance, Proposition 3)."""
    power, shared = NOISE[mode]
    erase = RandomErasing(probability=1, mode="rand" if mode == "single" else mode, device="cpu")

    def augment(images: Tensor) -> Augmented:
        erased = erase(images.clone())
        block = (erased != images).any(dim=1, keepdim=True)  # (B, 1, H, W)
        if mode == "single":
            erased = torch.where(block, torch.randn(len(images), 1, 1, 1), images)
        fraction = block.float().mean(dim=(1, 2, 3))  # (B,)
        flat = images.flatten(1)
        mean, variance = flat.mean(1), flat.var(1, correction=0)
        whole = images.mean().item(), images.var(correction=0).item()
        pooled = erasing_variance(fraction.mean().item(), *whole, power)
        each = erasing_variance(fraction, mean, variance, power, shared) * variance
        return erased, pooled, (each.mean() / variance.mean()).item()

    return augment


def _masked(images: Tensor, area: Tensor) -> float:
    """Return the mean of `cutmix_variance`; `area` of image i is from image i from the end."""
    flat = images.flatten(1)
    means, variance = flat.mean(1), flat.var(1, correction=0).mean()
    return cutmix_variance(area, means - means.flip(0), variance).mean().item()


def _correlations(images: Tensor) -> tuple[float, float]:
    """Return the correlation of each image i with image i from the end, pooled and within."""
    flat = images.flatten(1)
    return _correlation(flat - flat.mean()), _correlation(flat - flat.mean(1, keepdim=True))


def _correlation(centred: Tensor) -> float:
    return ((centred * centred.flip(0)).mean() / centred.square().mean()).item()


TRAINING = "training crop default"
BEFORE = {f"before {kind}": kind for kind in ("default", "inception", "stored")}
AUGMENTATIONS: dict[str, Augment] = {
    **{f"{mode} stored": _upsampled(mode) for mode in get_args(Mode)},
    "crop default": _cropped,
    "shuffle default": _shuffled,
    "duplicate default": _duplicated,
    "concatenate default": _concatenated,
    **{f"mixup {alpha} default": _mixup(alpha) for alpha in (0.2, 0.4, 0.8)},
    **{f"lambda {lam} default": _mixed(lam) for lam in (0.5, 1.5)},
    "cutmix default": _cutmix,
    "cutmix own": _cutmix,
    "patches default": _patched,
    **{
        f"{mode} {normalisation}": _erased(mode)
        for normalisation in ("default", "own", "inception")
        for mode in NOISE
    },
}
"""The measured augmentations; a key is name and normalisation."""


def _to_bytes(image: Tensor) -> Any:
    """Map a standardised ``(3, H, W)`` image to ``(H, W, 3)`` in 0..255, with grey for zero."""
    return (127.5 + 60 * image).clamp(0, 255).round().int().permute(1, 2, 0).tolist()
