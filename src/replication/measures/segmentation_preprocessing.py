"""The preprocessing for segmentation, as numbers for Tables A6 to A8, read from the transforms."""

from __future__ import annotations

from typing import Any

from mmcv.transforms import LoadImageFromFile, RandomFlip, RandomResize, Resize
from mmengine.registry import DefaultScope
from mmseg.datasets.transforms import (
    LoadAnnotations,
    PackSegInputs,
    PhotoMetricDistortion,
    RandomCrop,
    ResizeToMultiple,
)
from mmseg.registry import MODELS, TRANSFORMS

from replication.config.recipes.segmentation import SegmentationRecipe
from replication.context import Described, Values
from replication.training.segmentation.config import SCOPE, test_config
from vitrail.errors import VitrailError

KEYS = ("resize/long", "resize/short", "crop", "multiple", "padding", "hflip", "distortion")
NOTHING = {**dict.fromkeys(KEYS, 0.0), "resize/least": 1.0, "resize/most": 1.0}


def segmentation_preprocessing(described: Described[SegmentationRecipe]) -> Values:
    """Describe the preprocessing of images in training and evaluation (shift, Sec. A3.2).

    Returns:
        ``"train/<key>"`` and ``"eval/<key>"``. In pixels: ``resize/long`` and ``resize/short``, the
        sides of the rectangle into which an image is resized, which are multiplied by a random
        factor from ``resize/least`` to ``resize/most``; ``crop``; ``multiple``, each side is
        enlarged to a multiple of it; ``padding``, or padded to a multiple of it. As 1 or 0:
        ``hflip``, ``distortion`` (photometric) and ``normalization``. For an absent step, 0 (and 1
        for the two factors).

    Raises VitrailError if there is a transform for which there is no key.
    """
    config = test_config(described.recipe, described.info, described.data_root, described.seed)
    with DefaultScope.overwrite_default_scope(SCOPE):
        preprocessor = MODELS.build(config.model.data_preprocessor)
        views = {
            "train": _describe(config.train_dataloader.dataset.pipeline),
            "eval": _describe(config.test_dataloader.dataset.pipeline),
        }
    size = (preprocessor.size or (0,))[0]
    views["train"]["padding"] = size if size > views["train"]["crop"] else 0
    views["eval"]["padding"] = (preprocessor.test_cfg or {}).get("size_divisor") or 0
    normalization = int(preprocessor._enable_normalize)
    return {
        f"{view}/{key}": value
        for view, values in views.items()
        for key, value in {**values, "normalization": normalization}.items()
    }


def _describe(pipeline: list[Any]) -> dict[str, float]:
    found = dict(NOTHING)
    for step in map(TRANSFORMS.build, pipeline):
        found |= _describe_step(step)
    return found


def _describe_step(step: object) -> dict[str, float]:
    match step:
        case LoadImageFromFile() | LoadAnnotations() | PackSegInputs():
            return {}
        case RandomResize(scale=scale, ratio_range=(least, most)):
            return {**_fits(scale), "resize/least": least, "resize/most": most}
        case Resize(scale=scale):
            return _fits(scale)
        case RandomCrop(crop_size=(side, _)):
            return {"crop": side}
        case ResizeToMultiple(size_divisor=divisor):
            return {"multiple": divisor}
        case RandomFlip(direction="horizontal"):
            return {"hflip": 1}
        case PhotoMetricDistortion():
            return {"distortion": 1}
    raise VitrailError(
        f"the training uses {type(step).__name__}, which 'segmentation_preprocessing' has no key "
        "for; add it to replication/measures/segmentation_preprocessing.py, or take the recipe "
        "from the table"
    )


def _fits(scale: tuple[int, int]) -> dict[str, float]:
    return {"resize/long": max(scale), "resize/short": min(scale)}
