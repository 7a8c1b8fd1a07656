from pathlib import Path

import pytest

from replication.images.opening import build, opened_once, stems
from vitrail.errors import VitrailError


def test_within_a_block_each_split_is_opened_once(digits):
    root = Path("nowhere")
    with opened_once():
        train = build(digits, "train", root)
        assert build(digits, "train", root) is train
        assert build(digits, "val", root) is not train
        assert build(digits, "train", Path("elsewhere")) is not train
    assert build(digits, "train", root) is not train


def test_what_cannot_be_opened_is_tried_again(digits):
    broken = digits.model_copy(update={"loader": "replication.datasets.arrays:cifar10"})
    with opened_once():
        for _ in range(2):
            with pytest.raises(VitrailError, match="cannot be read"):
                build(broken, "train", Path("nowhere"))


def test_stems_are_names_without_the_suffix_in_all_folders(tmp_path):
    (tmp_path / "cat" / "deep").mkdir(parents=True)
    for name in ("cat/1.png", "cat/deep/2.png", "cat/3.jpg"):
        (tmp_path / name).touch()
    assert stems(tmp_path, ".png") == {"cat/1", "cat/deep/2"}
