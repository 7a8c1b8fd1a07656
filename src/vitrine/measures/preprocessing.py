"""What training and evaluation really do to an image, as numbers for a table of preprocessing.

The one idea: nothing is read off the recipe. The transforms are built as training and evaluation
build them, and the objects that then process images are asked. So a table can only print what runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from timm.data.auto_augment import RandAugment
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import MaybeToTensor, RandomResizedCropAndInterpolation
from torchvision.transforms import (
    CenterCrop,
    ColorJitter,
    Normalize,
    RandomHorizontalFlip,
    Resize,
)

from vitrine.data.transforms import CircularShift, eval_transform, train_transform
from vitrine.errors import VitrineError
from vitrine.measures.context import Described, Values

RANDAUGMENT = ("magnitude", "mstd", "layers", "increasing", "operations")
KEYS = (
    *("resize", "center_crop", "random_resized_crop", "hflip", "hflip/probability"),
    *("color_jitter", "randaugment", *(f"randaugment/{name}" for name in RANDAUGMENT)),
    *("normalization", "erasing", "erasing/probability", "circular_shift"),
)


def preprocessing(described: Described) -> Values:
    """Give the keys of `describe` in training, ``"train/<key>"``, and evaluation, ``"eval/<key>"``.

    Source: shift, Sec. A3.1.

    Raises:
        VitrineError: the training uses a transform that no key stands for.
    """
    recipe, info = described.recipe, described.info
    views = {"train": train_transform(recipe, info), "eval": eval_transform(recipe, info)}
    return {
        f"{view}/{key}": value
        for view, transform in views.items()
        for key, value in describe(transform.transforms).items()
    }


def describe(steps: Iterable[object]) -> dict[str, float]:
    """Say what a sequence of transforms does.

    Returns:
        ``resize`` (of the short side), ``center_crop``, ``random_resized_crop``,
        ``circular_shift`` (at most) in pixels; ``hflip``, ``color_jitter``, ``randaugment``,
        ``normalization``, ``erasing`` as 1 or 0; ``hflip/probability``, ``erasing/probability``;
        of RandAugment ``/magnitude`` and its standard deviation ``/mstd``, ``/layers``
        (augmentations of an image), ``/increasing`` (whether severity grows with magnitude in all
        of them, 1 or 0), ``/operations`` (drawn from). 0 is also what an absent step has.

    Raises:
        VitrineError: there is a transform that no key stands for.
    """
    found: dict[str, float] = dict.fromkeys(KEYS, 0)
    for step in steps:
        found |= _describe(step)
    return found


def _describe(step: object) -> dict[str, float]:
    match step:
        case Resize(size=size):
            return {"resize": size}
        case CenterCrop(size=(side, _)):
            return {"center_crop": side}
        case RandomResizedCropAndInterpolation(size=(side, _)):
            return {"random_resized_crop": side}
        case RandomHorizontalFlip(p=probability):
            return {"hflip": 1, "hflip/probability": probability}
        case ColorJitter():
            return {"color_jitter": 1}
        case RandAugment(ops=operations, num_layers=layers):
            first = operations[0]
            names = {operation.name for operation in operations}
            return {
                "randaugment": 1,
                "randaugment/magnitude": first.magnitude,
                "randaugment/mstd": first.magnitude_std,
                "randaugment/layers": layers,
                "randaugment/increasing": int("ColorIncreasing" in names),
                "randaugment/operations": len(names),
            }
        case MaybeToTensor():
            return {}
        case Normalize():
            return {"normalization": 1}
        case RandomErasing(probability=probability):
            return {"erasing": 1, "erasing/probability": probability}
        case CircularShift(limit=limit):
            return {"circular_shift": limit}
    raise VitrineError(
        f"the training uses {type(step).__name__}, which the measure 'preprocessing' has no key "
        "for; add it to vitrine/measures/preprocessing.py, or take the recipe from the table"
    )
