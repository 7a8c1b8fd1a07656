"""Datasets of mmseg's: how a sample is read, and the laptop stand-in for ADE20K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from vitrine.data.folders import read_image, read_mask
from vitrine.data.scenes import CLASSES, PALETTE
from vitrine.errors import VitrineError, first_line


@DATASETS.register_module()
class ScenesDataset(BaseSegDataset):
    """The scenes, in the files of ADE20K: a mask's 0 is unlabelled, and class c is c + 1."""

    METAINFO = {"classes": CLASSES, "palette": [list(color) for color in PALETTE]}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(img_suffix=".jpg", seg_map_suffix=".png", reduce_zero_label=True, **kwargs)


def read_sample(dataset: Any, index: int) -> Any:
    """Return one sample of a dataset of mmseg's, as its pipeline makes it.

    Raises:
        VitrineError: its image or its mask cannot be read, or the pipeline fails on them.
    """
    try:
        return dataset[index]
    except Exception as error:  # OpenCV and mmseg fail in many ways, none of which names the file
        told = dataset.get_data_info(index)
        image, mask = Path(told["img_path"]), told.get("seg_map_path")
        read_image(image)
        if mask:
            read_mask(Path(mask))
        raise VitrineError(
            f"image {image} with mask {mask} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): restore them, or correct the pipeline of the configuration"
        ) from error
