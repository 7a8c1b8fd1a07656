"""From a PIL image to a normalised tensor, as a recipe says.

Everything is built by `timm.data.create_transform`, so a name in a recipe means what it means in
timm: in particular `color_jitter` is off beside an `auto_augment` other than 3-Augment (``3a``),
and random erasing comes last, on the normalised tensor. timm imports torchvision, which does not
import beside a CPU-only torch; `torchvision_compat` mends that and so comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import vitrine.torchvision_compat  # noqa: F401  # isort: skip
from PIL import Image
from timm.data import auto_augment, create_transform
from torch import Tensor

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.data.registry import DatasetInfo
    from vitrine.recipe import Recipe

Transform = Callable[[Image.Image], Tensor]


def _posterize(image: Image.Image, bits: int, **options: Any) -> Image.Image:
    return auto_augment.posterize(image, bits) if bits else Image.new(image.mode, image.size)


# At full strength timm keeps no bit of a pixel. Pillow made that black until it came, in version
# 13, to refuse it, which ends a training in the rare step that draws it.
for _name, _operation in auto_augment.NAME_TO_OP.items():
    if _operation is auto_augment.posterize:
        auto_augment.NAME_TO_OP[_name] = _posterize


def train_transform(recipe: Recipe, info: DatasetInfo) -> Transform:
    """Return the training view: PIL image -> float (3, H, W), random per call.

    With ``crop: center`` it is the evaluation view, without flips.

    Raises:
        VitrineError: the recipe asks for the evaluation view and for augmentation of it.
    """
    augmentation = recipe.augmentation
    if augmentation.crop == "center":
        for field in ("color_jitter", "auto_augment", "erase_prob"):
            if value := getattr(augmentation, field):
                raise VitrineError(
                    f"augmentation.{field} is {value!r}, but crop 'center' trains on the plain "
                    "evaluation view; use crop 'random_resized' or leave the field out"
                )
        return eval_transform(recipe, info)
    mean, std = info.normalization(recipe.data.normalization)
    transform: Transform = create_transform(
        input_size=recipe.data.image_size,
        is_training=True,
        scale=augmentation.scale,
        ratio=augmentation.ratio,
        hflip=augmentation.hflip,
        # A jitter of 0 would still cost its random numbers and copies; timm also takes None.
        color_jitter=augmentation.color_jitter or None,  # type: ignore[arg-type]
        auto_augment=augmentation.auto_augment,
        interpolation=recipe.data.interpolation,
        mean=mean,
        std=std,
        re_prob=augmentation.erase_prob,
        re_mode=augmentation.erase_mode,
        re_count=augmentation.erase_count,
    )
    return transform


def eval_transform(recipe: Recipe, info: DatasetInfo, image_size: int | None = None) -> Transform:
    """Return the evaluation view: resize the short side to size / crop_pct, crop the centre.

    Args:
        recipe: its `data` says size, crop, interpolation and normalisation.
        info: the dataset whose mean and std normalise.
        image_size: the size to test at, where it is not the recipe's.

    Raises:
        VitrineError: `image_size` is below one pixel.
    """
    size = recipe.data.image_size if image_size is None else image_size
    if size < 1:
        raise VitrineError(f"image_size is {size}; it must be at least 1 pixel")
    mean, std = info.normalization(recipe.data.normalization)
    transform: Transform = create_transform(
        input_size=size,
        is_training=False,
        interpolation=recipe.data.interpolation,
        crop_pct=recipe.data.crop_pct,
        mean=mean,
        std=std,
    )
    return transform
