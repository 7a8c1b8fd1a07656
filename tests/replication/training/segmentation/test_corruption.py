"""A damaged scene or mask is one sentence with its path, in training and in evaluation."""

import shutil

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest

from replication.config.settings import TrainingOptions
from replication.context import Described
from replication.training.dispatch import TrainingRun
from replication.training.segmentation import training as engine
from replication.training.segmentation.accuracy import ValidationSamples
from vitrail.errors import VitrailError, sentence


@pytest.fixture
def damaged_root(data_root, tmp_path):
    """The data root with one kind of file damaged in both splits; a function of the kind."""

    def damage(info, kind, spoil):
        root = tmp_path / "data"
        shutil.copytree(data_root, root)
        for split in (info.segmentation.train, info.segmentation.val):
            for file in (root / info.folder / getattr(split, kind)).iterdir():
                file.write_bytes(spoil(file.read_bytes()))
        return root

    return damage


SPOILT = [lambda content: content[: len(content) // 2], lambda content: b"", lambda content: b"x"]
KINDS = [("img_path", "image"), ("seg_map_path", "mask")]


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize(("kind", "called"), KINDS)
def test_evaluation_names_it(recipe, info, damaged_root, kind, called, spoil):
    samples = ValidationSamples(Described("cpu", damaged_root(info, kind, spoil), 0, recipe, info))
    with pytest.raises(VitrailError, match=rf"cannot read {called} .*ADE_val_00000000\.\w+ \(.*; "):
        samples[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "called", "workers"), [("img_path", "image", 1), ("seg_map_path", "mask", 0)]
)
def test_training_names_it(recipe, info, damaged_root, tmp_path, kind, called, workers):
    root = damaged_root(info, kind, SPOILT[0])
    with pytest.raises(VitrailError) as error:
        engine.train(
            TrainingRun(
                recipe, 0, tmp_path / "run", info, root, options=TrainingOptions(workers=workers)
            )
        )
    told = sentence(error.value)
    assert told.startswith(f"cannot read {called} {root}")
    assert told.endswith("; replace it by a good copy")
    assert "\n" not in told


@pytest.mark.slow
def test_a_pipeline_that_fails_on_sound_files_names_them_too(
    make_recipe, info, data_root, tmp_path
):
    bad = {"type": "RandomCrop", "crop_size": [64, 64], "cat_max_ratio": "0.75"}
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations"}, bad]
    recipe = make_recipe({"options": {"train_dataloader": {"dataset": {"pipeline": pipeline}}}})
    with pytest.raises(
        VitrailError, match=r"image .*\.jpg with mask .*\.png cannot be used \(Type"
    ):
        engine.train(TrainingRun(recipe, 0, tmp_path / "run", info, data_root))
