from pathlib import Path

import pytest

from replication.images.opening import build, opened_once, stems
from vitrail.errors import VitrailError
from vitrail.image_files import visible_files


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


def test_hidden_files_and_folders_are_none_of_a_datasets(tmp_path):
    seen = ["cat/1.png", "cat/deep/2.png"]
    unseen = ["cat/.ipynb_checkpoints/1-checkpoint.png", "__MACOSX/cat/._1.png", ".DS_Store"]
    for name in [*seen, *unseen, "cat/._1.png"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(visible_files(tmp_path)) == [str(tmp_path / name) for name in seen]
    assert stems(tmp_path, ".png") == {"cat/1", "cat/deep/2"}


def test_a_link_to_a_folder_that_holds_it_is_not_followed(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").touch()
    (tmp_path / "one" / "around").symlink_to(tmp_path)
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert stems(tmp_path, "") == {"one/file", "two/file"}


def test_folders_that_link_to_each_other_are_listed_once_on_each_way(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        (tmp_path / name / other).symlink_to(tmp_path / other)
    assert stems(tmp_path, "") == {"one/file", "one/two/file", "two/file", "two/one/file"}
