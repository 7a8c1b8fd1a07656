"""An unmodified configuration of MMSegmentation, made small, on a miniature of ADE20K."""

from pathlib import Path
from typing import Any

import pytest

from replication.config.datasets import DatasetInfo
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.datasets.miniature import write_miniature
from tests.recipes import recipe_fixtures

SWIN = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
SIZE = [64, 64]
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "LoadAnnotations", "reduce_zero_label": True},
    {"type": "RandomResize", "scale": [256, 64], "ratio_range": [0.5, 2.0], "keep_ratio": True},
    {"type": "RandomCrop", "crop_size": SIZE, "cat_max_ratio": 0.75},
    {"type": "RandomFlip", "prob": 0.5},
    {"type": "PhotoMetricDistortion"},
    {"type": "PackSegInputs"},
]
BASE: dict[str, Any] = {
    "model": {
        "name": SWIN,
        "args": {
            "data_preprocessor": {"size": SIZE},
            "backbone": {
                "embed_dims": 16,
                "depths": [1, 1, 1, 1],
                "num_heads": [1, 1, 2, 2],
                "window_size": 2,
            },
            "decode_head": {"in_channels": [16, 32, 64, 128], "channels": 8},
            "auxiliary_head": {"in_channels": 64, "channels": 8},
        },
    },
    "data": {"dataset": "ade20k"},
    "options": {"train_dataloader": {"dataset": {"pipeline": PIPELINE}}},
    "schedule": {"steps": 6},
    "batch": {"size": 2},
}


make_recipe, recipe, info = recipe_fixtures(SegmentationRecipe, BASE, "ade20k")


@pytest.fixture(scope="session")
def data_root(info: DatasetInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few images of ADE20K's format."""
    root = tmp_path_factory.mktemp("data")
    write_miniature(info, root, per_class=2, classes=3)
    return root
