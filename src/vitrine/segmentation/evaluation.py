"""The validation images of a recipe as its segmenter sees them, with their masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.registry import DefaultScope
from mmseg.registry import DATASETS, MODELS
from mmseg.structures import SegDataSample
from torch import Tensor

from vitrine.data.layout import check_layout
from vitrine.plan.datasets import DatasetInfo
from vitrine.plan.recipe import SegmentationRecipe
from vitrine.segmentation.config import SCOPE, test_config
from vitrine.segmentation.sampling import read_sample


@dataclass(frozen=True)
class Sample:
    """One image with its mask."""

    image: Tensor  # (3, H, W) float, resized and normalised as the test pipeline says
    mask: Tensor  # (h, w) long, at the original size; 255 is not judged
    name: str  # the file's, without its suffix
    told: SegDataSample  # MMSegmentation's own record of the image, which its `predict` wants


class ValidationSamples:
    """The validation split under the recipe's test pipeline, in the order of file names.

    Raises:
        VitrineError: the dataset is not there, or the configuration cannot be used.
    """

    def __init__(self, recipe: SegmentationRecipe, info: DatasetInfo, data_root: Path) -> None:
        check_layout(info, data_root)
        config = test_config(recipe, info, data_root)
        with DefaultScope.overwrite_default_scope(SCOPE):
            self._images: Any = DATASETS.build(config.test_dataloader.dataset)
            self._preprocessor: Any = MODELS.build(config.model.data_preprocessor)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Sample:
        item = read_sample(self._images, index)
        told = item["data_samples"]
        batch = {"inputs": [item["inputs"]], "data_samples": [told]}
        image = self._preprocessor(batch, training=False)["inputs"][0]
        mask = told.gt_sem_seg.data[0].long()
        return Sample(image, mask, Path(told.img_path).stem, told)
