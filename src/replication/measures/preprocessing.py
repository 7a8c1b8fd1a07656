"""The preprocessing of images in training and evaluation, as numbers for a table.

The transforms are built as training and evaluation build them, and the numbers are read from these
objects, not from the recipe. So the table shows the preprocessing that is really used.
"""

from __future__ import annotations

from collections.abc import Iterable

from timm.data.auto_augment import RandAugment
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import MaybeToTensor, RandomResizedCropAndInterpolation
from torchvision.transforms import CenterCrop, ColorJitter, Normalize, RandomHorizontalFlip, Resize

from replication.context import Described, Values
from replication.images.transforms import CircularShift, eval_transform, train_transform
from vitrail.errors import VitrailError

RANDAUGMENT = (
    *("randaugment", "randaugment/magnitude", "randaugment/mstd", "randaugment/layers"),
    *("randaugment/increasing", "randaugment/operations"),
)
KEYS = (
    *(
        "resize/short",
        "resize/long",
        "center_crop",
        "random_resized_crop",
        "hflip",
        "hflip/probability",
    ),
    *("color_jitter", *RANDAUGMENT, "normalization"),
    *("erasing", "erasing/probability", "circular_shift"),
)


def preprocessing(described: Described) -> Values:
    """Describe a recipe's preprocessing in training and in evaluation.

    Source: shift, Sec. A3.1.

    Returns:
        the values of `describe`, as ``"train/<key>"`` and ``"eval/<key>"``.

    Raises:
        VitrailError: there is a transform for which `describe` has no key.
    """
    recipe, info = described.recipe, described.info
    views = {"train": train_transform(recipe, info), "eval": eval_transform(recipe, info)}
    return {
        f"{view}/{key}": value
        for view, transform in views.items()
        for key, value in describe(transform.transforms).items()
    }


def describe(steps: Iterable[object]) -> dict[str, float]:
    """Describe a sequence of transforms by numbers; those of absent transforms are 0.

    Returns:
        in pixels: ``resize/short`` and ``resize/long``, the sides of the resized image
        (``resize/long`` is 0 if it depends on the image's aspect ratio), ``center_crop``,
        ``random_resized_crop`` and ``circular_shift``, the largest shift. As 1 or 0: ``hflip``,
        ``color_jitter``, ``randaugment``, ``normalization``, ``erasing``. Probabilities:
        ``hflip/probability``, ``erasing/probability``. Of RandAugment, ``randaugment/...``:
        ``magnitude`` and its standard deviation ``mstd``, ``layers`` (augmentations of an image),
        ``increasing`` (1 if the severity of all operations grows with the magnitude, else 0),
        ``operations`` (number of different operations).

    Raises:
        VitrailError: there is a transform for which there is no key.
    """
    found: dict[str, float] = dict.fromkeys(KEYS, 0)
    for step in steps:
        match step:
            case Resize(size=int(short)):
                found["resize/short"] = short
            case Resize(size=sides):
                found |= {"resize/short": min(sides), "resize/long": max(sides)}
            case CenterCrop(size=(side, _)):
                found["center_crop"] = side
            case RandomResizedCropAndInterpolation(size=(side, _)):
                found["random_resized_crop"] = side
            case RandomHorizontalFlip(p=probability):
                found |= {"hflip": 1, "hflip/probability": probability}
            case ColorJitter():
                found["color_jitter"] = 1
            case RandAugment(ops=operations, num_layers=layers):
                first, names = operations[0], {operation.name for operation in operations}
                increasing = int("ColorIncreasing" in names)
                numbers = (first.magnitude, first.magnitude_std, layers, increasing, len(names))
                found |= dict(zip(RANDAUGMENT, (1, *numbers), strict=True))
            case MaybeToTensor():
                pass
            case Normalize():
                found["normalization"] = 1
            case RandomErasing(probability=probability):
                found |= {"erasing": 1, "erasing/probability": probability}
            case CircularShift(limit=limit):
                found["circular_shift"] = limit
            case _:
                raise VitrailError(
                    f"the training uses {type(step).__name__}, which the measure 'preprocessing' "
                    "has no key for; add it to replication/measures/preprocessing.py, or take the "
                    "recipe from the table"
                )
    return found
