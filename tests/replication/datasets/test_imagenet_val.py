import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import imagenet

from replication.datasets.imagenet_val import labels_from_devkit, main, sort_into_classes
from replication.datasets.miniature import write_miniature
from replication.datasets.verify import verify
from vitrail.errors import VitrailError

LABELS = ["n00000002", "n00000000", "n00000001", "n00000000"]


@pytest.fixture
def flat(tmp_path):
    """A val folder as the official archive unpacks it."""
    folder = tmp_path / "imagenet" / "val"
    folder.mkdir(parents=True)
    for number in range(1, 5):
        (folder / f"ILSVRC2012_val_{number:08d}.JPEG").write_bytes(b"image")
    return folder


@pytest.fixture
def devkit(flat, monkeypatch):
    """The archive of four classes whose numbers are not in the order of their synsets."""
    monkeypatch.setattr(imagenet, "check_integrity", lambda path, md5=None: Path(path).is_file())
    numbers = enumerate(["n00000001", "n00000000", "n00000002"], start=1)
    rows = [(number, synset, "words", "gloss", 0) for number, synset in numbers]
    names = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")
    synsets = np.array(rows, dtype=[(name, object) for name in names])
    data = flat.parent / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    savemat(data / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n2\n1\n2\n")
    shutil.make_archive(data.parent, "gztar", flat.parent, data.parent.name)
    return flat.parent


def tree(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.glob("*/*"))


SORTED = [
    "n00000000/ILSVRC2012_val_00000002.JPEG",
    "n00000000/ILSVRC2012_val_00000004.JPEG",
    "n00000001/ILSVRC2012_val_00000003.JPEG",
    "n00000002/ILSVRC2012_val_00000001.JPEG",
]


def test_the_devkits_numbers_become_synsets(devkit):
    assert labels_from_devkit(devkit) == LABELS


def test_images_move_to_the_folders_of_their_synsets(flat):
    assert sort_into_classes(flat, LABELS) == 4
    assert tree(flat) == SORTED


def test_an_interrupted_sorting_goes_on(flat):
    (flat / "n00000000").mkdir()
    first = flat / "ILSVRC2012_val_00000002.JPEG"
    first.rename(flat / "n00000000" / first.name)
    assert sort_into_classes(flat, LABELS) == 3
    assert tree(flat) == SORTED


def test_the_command_makes_a_flat_folder_pass_verification(
    registry, tmp_path, flat, devkit, monkeypatch, capsys
):
    write_miniature(registry["imagenet"], tmp_path / "other")
    (tmp_path / "other" / "imagenet" / "train").rename(tmp_path / "imagenet" / "train")
    monkeypatch.setattr(sys, "argv", ["imagenet_val", str(flat)])
    main()
    assert capsys.readouterr().out == "sorted 4 images into class folders\n"
    verify(registry["imagenet"], tmp_path, counts=False)


def test_too_few_labels_are_refused_before_anything_moves(flat):
    with pytest.raises(VitrailError, match="an image 4 but there are only 3 labels"):
        sort_into_classes(flat, LABELS[:3])
    assert tree(flat) == []


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(VitrailError, match="holds no ILSVRC2012_val_"):
        sort_into_classes(tmp_path, LABELS)


def test_without_the_development_kit_one_is_told_to_place_it(flat):
    with pytest.raises(VitrailError, match=rf"devkit_t12\.tar\.gz .* place it in {flat.parent}"):
        labels_from_devkit(flat.parent)


def test_a_folder_that_cannot_be_written_is_named(flat):
    (flat / LABELS[0]).write_text("a file where the class folder should be")
    with pytest.raises(VitrailError, match=rf"cannot sort {flat} \(File exists\): correct"):
        sort_into_classes(flat, LABELS)
