"""The laptop stand-in for ADE20K as a dataset of mmseg's: see `vitrine.data.scenes`.

A file of its own, since numbers of real datasets do not depend on how the scenes are drawn.
"""

from __future__ import annotations

from typing import Any

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from vitrine.data.scenes import CLASSES, PALETTE


@DATASETS.register_module()
class ScenesDataset(BaseSegDataset):
    """The laptop stand-in for ADE20K (`vitrine.data.scenes`), in files as ADE20K has them.

    A mask's 0 is unlabelled, and class c is c + 1.
    """

    METAINFO = {"classes": CLASSES, "palette": [list(color) for color in PALETTE]}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(img_suffix=".jpg", seg_map_suffix=".png", reduce_zero_label=True, **kwargs)
