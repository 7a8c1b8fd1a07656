"""The transforms of a recipe, from a PIL image to a normalised tensor.

`timm.data.create_transform` builds them, so a name in a recipe means the same as in timm:
`color_jitter` has no effect together with an `auto_augment` other than 3-Augment (``3a``), and
random erasing comes after normalisation. Transforms that timm does not have are composed of its
parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from PIL import Image
from timm.data import auto_augment, create_transform
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import MaybeToTensor
from torch import Tensor
from torchvision.transforms import (
    Compose,
    Pad,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    functional,
)

from vitrail.measures.loading import evaluation_view

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import EpochTraining, TimmTraining

Transform = Callable[[Image.Image], Tensor]
Channels = tuple[float, float, float]
"""One number for each of red, green and blue."""


def _posterize(image: Image.Image, bits: int, **options: Any) -> Image.Image:
    return auto_augment.posterize(image, bits) if bits else Image.new(image.mode, image.size)


# At full strength timm's posterize keeps no bit of a pixel. Until version 13 Pillow made such an
# image black; since then it raises an error, which would end a training in a rare step.
for _name, _operation in auto_augment.NAME_TO_OP.items():
    if _operation is auto_augment.posterize:
        auto_augment.NAME_TO_OP[_name] = _posterize


FLIPS = (RandomHorizontalFlip, RandomVerticalFlip)

SPATIAL = {"Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"}
"""The operations of timm's RandAugment that move pixels."""


@dataclass
class CircularShift:
    """Roll ``(C, H, W)`` by a random offset, uniform in [-limit, limit] on each axis."""

    limit: int

    def __call__(self, image: Tensor) -> Tensor:
        """Return the rolled image; torch's global generator draws the offset."""
        offset = torch.randint(-self.limit, self.limit + 1, (2,)).tolist()
        return image.roll(offset, (-2, -1))


class SteppedCrop:
    """Pad an image (`pad`), then crop at a random position on a grid of `step` pixels (`cut`)."""

    def __init__(self, size: int, padding: int, step: int):
        self.pad, self.cut = Pad(padding), Cut(size, step)

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the crop; torch's global generator draws the position."""
        return self.cut(self.pad(image))


@dataclass
class Cut:
    """Crop a square of `size` pixels at a random position on a grid of `step` pixels."""

    size: int
    step: int

    def __call__(self, image: Any) -> Any:
        """Return the crop of a PIL image or a tensor ``(C, H, W)``; torch draws row and column."""
        sides = functional.get_dimensions(image)[1:]
        counts = ((side - self.size) // self.step + 1 for side in sides)
        top, left = (self.step * int(torch.randint(count, ())) for count in counts)
        return functional.crop(image, top, left, self.size, self.size)


def normalization(
    info: DatasetInfo, kind: Literal["dataset", "inception", "none"]
) -> tuple[Channels, Channels]:
    """Return mean and standard deviation of each channel, for images with values in [0, 1].

    They are the dataset's, 0.5 and 0.5 for ``inception``, or 0 and 1 for ``none``.
    """
    if kind == "dataset":
        return info.mean, info.std
    return ((0.5,) * 3, (0.5,) * 3) if kind == "inception" else ((0.0,) * 3, (1.0,) * 3)


def train_transform(recipe: EpochTraining, info: DatasetInfo) -> Compose:
    """Return the random training transform, from a PIL image to float (3, H, W).

    With ``crop: center``, the image is resized and cropped as in evaluation, then flipped,
    jittered, auto-augmented and erased as a random crop would be. ``crop: random`` also pads it
    and crops its size at a random position, as is usual for images of 32 pixels. In both cases
    `scale` and `ratio` have no effect. With `resize_last`, auto-augmentation, random crops and
    flips, in this order, come before the resizing.
    """
    augmentation = recipe.augmentation
    mean, std = normalization(info, recipe.data.normalization)
    random_crop, *steps = create_transform(
        input_size=recipe.data.image_size,
        is_training=True,
        scale=augmentation.scale,
        ratio=augmentation.ratio,
        hflip=augmentation.hflip,
        vflip=augmentation.vflip,
        auto_augment=augmentation.auto_augment,
        # With 0 the transform would still draw numbers and copy images; timm also accepts None.
        color_jitter=augmentation.color_jitter or None,  # type: ignore[arg-type]
        interpolation=recipe.data.interpolation,
        mean=mean,
        std=std,
        re_prob=augmentation.erase_prob,
        re_mode=augmentation.erase_mode,
        re_count=augmentation.erase_count,
    ).transforms
    for step in steps:
        if isinstance(step, auto_augment.RandAugment) and not augmentation.auto_augment_spatial:
            step.ops = [operation for operation in step.ops if operation.name not in SPATIAL]
        elif isinstance(step, RandomErasing):
            step.min_area, step.max_area = augmentation.erase_scale
    resize, crops = [random_crop], []
    if augmentation.crop != "random_resized":
        resize = eval_transform(recipe, info).transforms[:2]  # resize, central crop
    if augmentation.crop == "random":
        crop = SteppedCrop(
            recipe.data.image_size, augmentation.crop_padding, augmentation.crop_step
        )
        crops = [crop] * augmentation.crop_count
    shift = [CircularShift(augmentation.circular_shift)] if augmentation.circular_shift else []
    if not augmentation.resize_last:
        return Compose([*resize, *crops, *steps, *shift])
    to_tensor = next(i for i, step in enumerate(steps) if isinstance(step, MaybeToTensor))
    policy = [step for step in steps[:to_tensor] if not isinstance(step, FLIPS)]
    flips = [step for step in steps[:to_tensor] if isinstance(step, FLIPS)]
    return Compose([*policy, *crops, *flips, *resize, *steps[to_tensor:], *shift])


def eval_transform(
    recipe: TimmTraining,
    info: DatasetInfo,
    image_size: int | None = None,
    margin: int = 0,
) -> Compose:
    """Return the recipe's `evaluation_view`, by default at its `image_size`.

    Raises VitrailError as `evaluation_view`.
    """
    mean, std = normalization(info, recipe.data.normalization)
    return evaluation_view(
        recipe.data.image_size if image_size is None else image_size,
        interpolation=recipe.data.interpolation,
        crop_pct=recipe.data.crop_pct,
        crop_mode=recipe.data.crop_mode,
        mean=mean,
        std=std,
        margin=margin,
    )
