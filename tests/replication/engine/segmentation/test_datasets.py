import numpy as np
from PIL import Image

import vitrail.segmentation  # noqa: F401  # isort: skip
from mmengine.registry import DefaultScope
from mmseg.registry import DATASETS

from replication.data.scenes import CLASSES, PALETTE
from replication.data.stand_ins.placed_scenes import GRIDS, classes


def test_classes_of_places_have_colours_of_their_own():
    for world in GRIDS:
        told = DATASETS.get(f"mmseg.{world.title()}Dataset").METAINFO
        assert told["classes"] == classes(world)
        assert len({tuple(colour) for colour in told["palette"]}) == len(classes(world))


def test_masks_of_scenes_are_read_as_those_of_ade20k(tmp_path):
    """0 is not judged (255), and class c is written as c + 1."""
    mask = np.arange(len(CLASSES) + 1, dtype=np.uint8)[None].repeat(4, axis=0)
    for folder, array, suffix in (("images", mask, "jpg"), ("annotations", mask, "png")):
        (tmp_path / folder).mkdir()
        Image.fromarray(array).save(tmp_path / folder / f"one.{suffix}")
    pipeline = [
        {"type": "LoadImageFromFile"},
        {"type": "LoadAnnotations"},
        {"type": "PackSegInputs"},
    ]
    config = {
        "type": "ScenesDataset",
        "data_root": str(tmp_path),
        "data_prefix": {"img_path": "images", "seg_map_path": "annotations"},
        "pipeline": pipeline,
    }
    with DefaultScope.overwrite_default_scope("mmseg"):
        scenes = DATASETS.build(config)
        read = scenes[0]["data_samples"].gt_sem_seg.data
    assert len(scenes) == 1
    assert read[0, 0].tolist() == [255, *range(len(CLASSES))]
    assert scenes.metainfo["classes"] == CLASSES
    assert scenes.metainfo["palette"] == [list(color) for color in PALETTE]
