"""CamVid as a dataset class for MMSegmentation, which does not have this dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from replication.datasets.segmentation import CAMVID_VOID
from replication.images.masks import IGNORED


@DATASETS.register_module()
class CamVidDataset(BaseSegDataset):
    """CamVid with the 11 classes and the colours of SegNet (Badrinarayanan et al., 2017).

    Pixels that its masks label as void are ignored.
    """

    METAINFO = {
        "classes": (
            *("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence"),
            *("car", "pedestrian", "bicyclist"),
        ),
        "palette": [
            *([128, 128, 128], [128, 0, 0], [192, 192, 128], [128, 64, 128], [60, 40, 222]),
            *([128, 128, 0], [192, 128, 128], [64, 64, 128], [64, 0, 128], [64, 64, 0]),
            [0, 128, 192],
        ],
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            img_suffix=".png", seg_map_suffix=".png", reduce_zero_label=False, **kwargs
        )

    @classmethod
    def get_label_map(cls, new_classes: Sequence[str] | None = None) -> dict[int, int]:
        """Map the label of void to the label that MMSegmentation ignores."""
        return {CAMVID_VOID: IGNORED}
