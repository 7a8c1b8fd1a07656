"""Tables A6 to A8 print what the transforms that run are."""

import re

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest

from replication.context import Described
from replication.measures.segmentation_preprocessing import segmentation_preprocessing
from tests.conftest import ROOT
from vitrail.errors import VitrailError


@pytest.fixture
def describe(make_recipe, info, data_root):
    def describe(*deltas):
        recipe = make_recipe(*deltas)
        return segmentation_preprocessing(Described("cpu", data_root, 0, recipe=recipe, info=info))

    return describe


def of(view, values):
    return {key.removeprefix(f"{view}/"): value for key, value in values.items() if view in key}


def test_it_tells_training_from_evaluation(describe):
    values = describe()
    assert of("train", values) == {
        "resize/long": 256,
        "resize/short": 64,
        "resize/least": 0.5,
        "resize/most": 2.0,
        "crop": 64,
        "multiple": 0,
        "padding": 0,
        "hflip": 1,
        "distortion": 1,
        "normalization": 1,
    }
    assert of("eval", values) == {
        "resize/long": 2048,
        "resize/short": 512,
        "resize/least": 1,
        "resize/most": 1,
        "crop": 0,
        "multiple": 0,
        "padding": 0,
        "hflip": 0,
        "distortion": 0,
        "normalization": 1,
    }


def test_padding_is_the_preprocessors(describe):
    values = describe(
        {
            "model": {
                "args": {"data_preprocessor": {"size": [96, 96], "test_cfg": {"size_divisor": 32}}}
            }
        }
    )
    assert (values["train/padding"], values["eval/padding"]) == (96, 32)


def test_a_transform_without_a_key_is_named(describe):
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "CLAHE"}]
    expected = "uses CLAHE, which 'segmentation_preprocessing' has no"
    with pytest.raises(VitrailError, match=expected) as error:
        describe({"options": {"train_dataloader": {"dataset": {"pipeline": pipeline}}}})
    place = re.search(r"add it to (\S+\.py)", str(error.value))
    assert (ROOT / "src" / place[1]).is_file()
