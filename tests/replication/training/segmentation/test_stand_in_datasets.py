from pathlib import Path

import numpy as np
import pytest

import vitrail.segmentation  # noqa: F401  # isort: skip
from mmengine.registry import DefaultScope
from mmseg.registry import DATASETS

from replication.datasets.scenes import CLASSES, PALETTE
from replication.datasets.stand_ins.placed_scenes import GRIDS, classes
from replication.images.opening import build
from replication.training.segmentation.stand_in_datasets import composed_root


def test_classes_of_places_have_colours_of_their_own():
    for world in GRIDS:
        told = DATASETS.get(f"mmseg.{world.title()}Dataset").METAINFO
        assert told["classes"] == classes(world)
        assert len({tuple(colour) for colour in told["palette"]}) == len(classes(world))


@pytest.mark.parametrize(
    ("name", "split", "part"),
    [
        ("scenes", "train", "all"),
        ("scenes", "train", "tuning"),
        ("patchwork", "val", "tuning"),
        *(
            (name, "val", "all")
            for name in ("scenes", "patchwork", *(f"scenes-{w}" for w in GRIDS))
        ),
    ],
)
def test_mmsegmentation_reads_the_scenes_that_a_seed_draws(registry, name, split, part):
    info = registry[name].of_part(part)
    config = {
        "type": info.segmentation.type,
        "data_root": composed_root(info, 5),
        "data_prefix": getattr(info.segmentation, split).model_dump(),
        "pipeline": [
            {"type": "LoadImageFromFile"},
            {"type": "LoadAnnotations"},
            {"type": "PackSegInputs"},
        ],
    }
    with DefaultScope.overwrite_default_scope("mmseg"):
        scenes = DATASETS.build(config)
        read = [scenes[index] for index in range(len(scenes))]
    composed = build(info, split, Path(), 5)
    assert len(composed) == len(read) == getattr(info, f"{split}_images")
    for index, sample in enumerate(read):
        image, mask = composed[index]
        assert (sample["inputs"].flip(0).permute(1, 2, 0).numpy() == np.asarray(image)).all()
        assert (sample["data_samples"].gt_sem_seg.data[0].numpy() == mask).all()


def test_scenes_have_the_classes_and_colours_of_their_stand_in():
    told = DATASETS.get("mmseg.ScenesDataset").METAINFO
    assert told == {"classes": CLASSES, "palette": [list(color) for color in PALETTE]}
