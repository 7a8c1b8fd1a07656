import os
import re
import shutil
import subprocess
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


@pytest.mark.parametrize("linked", ["imagenet", "imagenet/val"])
def test_links_are_sorted_in_place_of_a_shared_copy(
    registry, tmp_path, flat, devkit, monkeypatch, linked
):
    """The command refuses what a link leads to; what it says to do instead leaves the copy."""
    write_miniature(registry["imagenet"], tmp_path / "other")
    (tmp_path / "other" / "imagenet" / "train").rename(devkit / "train")
    theirs = devkit / "meta.bin"
    theirs.write_bytes(b"theirs")
    data = tmp_path / "my data"
    (data / linked).parent.mkdir(parents=True)
    if linked != "imagenet":
        for name in ("train", imagenet.ARCHIVE_META["devkit"][0]):
            (data / "imagenet" / name).symlink_to(devkit / name)
    (data / linked).symlink_to(tmp_path / linked)
    monkeypatch.setattr(sys, "argv", ["imagenet_val", str(data / "imagenet" / "val")])
    before = sorted(flat.iterdir())
    with pytest.raises(VitrailError, match="may be those of other people") as refused:
        main()
    with pytest.raises(VitrailError) as missing:
        verify(registry["imagenet"], data, counts=False)
    for told in (refused, missing):
        link, *steps = str(told.value).split("`")[1].split(" && ")
        assert steps[-1].startswith("python -m replication.datasets.imagenet_val ")
    subprocess.run(" && ".join([link, *steps[:-1]]), shell=True, check=True)
    main()
    assert tree(data / "imagenet" / "val") == SORTED
    assert sorted(flat.iterdir()) == before
    assert theirs.read_bytes() == b"theirs"
    verify(registry["imagenet"], data, counts=False)


def test_a_folder_of_somebody_else_is_not_sorted(registry, tmp_path, flat, monkeypatch):
    """What is said to do instead leads to the sorting of links."""
    monkeypatch.setattr(sys, "argv", ["imagenet_val", str(flat)])
    write_miniature(registry["imagenet"], tmp_path / "other")
    (tmp_path / "other" / "imagenet" / "train").rename(flat.parent / "train")
    with monkeypatch.context() as somebody:
        somebody.setattr(os, "getuid", lambda: flat.stat().st_uid + 1)
        with pytest.raises(VitrailError, match="not yours to change") as refused:
            main()
    assert tree(flat) == []
    (command,) = re.findall(r"run `(ln .*?)`", str(refused.value))
    own = tmp_path / "own"
    own.mkdir()
    subprocess.run(command.replace("FOLDER", str(own)), shell=True, check=True)
    with pytest.raises(VitrailError, match="a link leads to them, so sort links"):
        verify(registry["imagenet"], own, counts=False)


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
