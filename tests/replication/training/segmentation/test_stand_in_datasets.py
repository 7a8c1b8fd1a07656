from pathlib import Path

import numpy as np
import pytest

import vitrail.segmentation  # noqa: F401  # isort: skip
from mmengine.registry import DefaultScope
from mmseg.registry import DATASETS

from replication.images.opening import SPLITS, build
from replication.training.segmentation.stand_in_datasets import composed_root


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("part", ["all", "tuning"])
def test_mmsegmentation_reads_the_scenes_that_a_seed_draws(registry, split, part):
    info = registry["patchwork"].of_part(part)
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
