"""The laptop stand-in for ADE20K as a dataset of mmseg's: see `replication.data.scenes`.

A file of its own, since numbers of real datasets do not depend on how the scenes are drawn.
"""

from __future__ import annotations

from typing import Any

from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from replication.data.scenes import CLASSES, PALETTE
from replication.data.stand_ins import patchwork, placed_scenes


@DATASETS.register_module()
class ScenesDataset(BaseSegDataset):
    """The laptop stand-in for ADE20K (`replication.data.scenes`), in files as ADE20K has them.

    A mask's 0 is unlabelled, and class c is c + 1.
    """

    METAINFO = {"classes": CLASSES, "palette": [list(color) for color in PALETTE]}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(img_suffix=".jpg", seg_map_suffix=".png", reduce_zero_label=True, **kwargs)


def _metainfo(world: placed_scenes.World) -> dict[str, Any]:
    """As many colours of the scenes' as a world of `stand_ins.placed_scenes` has classes."""
    classes = placed_scenes.classes(world)
    digits = PALETTE[-10::2]  # told apart by hue
    palette = [*PALETTE[:2], *digits][: len(classes)]
    return {"classes": classes, "palette": [list(color) for color in palette]}


@DATASETS.register_module()
class HalvesDataset(ScenesDataset):
    """Digits named by their half of the image (`replication.data.stand_ins.placed_scenes`)."""

    METAINFO = _metainfo("halves")


@DATASETS.register_module()
class ThirdsDataset(ScenesDataset):
    """Digits named by their third of the image."""

    METAINFO = _metainfo("thirds")


@DATASETS.register_module()
class QuartersDataset(ScenesDataset):
    """Digits named by their quarter of the image."""

    METAINFO = _metainfo("quarters")


@DATASETS.register_module()
class PatchworkDataset(ScenesDataset):
    """Squares of regions of photographs (`replication.data.stand_ins.patchwork`)."""

    METAINFO = {
        "classes": patchwork.CLASSES,
        "palette": [list(color) for color in PALETTE[-len(patchwork.CLASSES) :]],
    }
