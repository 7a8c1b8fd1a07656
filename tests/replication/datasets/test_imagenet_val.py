import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import imagenet

from replication.datasets.imagenet_val import link_into_classes, main, synsets_of
from replication.datasets.miniature import write_miniature
from replication.datasets.verify import verify
from vitrail.errors import VitrailError

SYNSETS = ["n00000002", "n00000000", "n00000001", "n00000000"]
LINKED = [
    "n00000000/ILSVRC2012_val_00000002.JPEG",
    "n00000000/ILSVRC2012_val_00000004.JPEG",
    "n00000001/ILSVRC2012_val_00000003.JPEG",
    "n00000002/ILSVRC2012_val_00000001.JPEG",
]


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
    """The archive of three classes whose numbers are not in the order of their synsets."""
    monkeypatch.setattr(imagenet, "check_integrity", lambda path, md5=None: Path(path).is_file())
    numbers = enumerate(["n00000001", "n00000000", "n00000002"], start=1)
    rows = [(number, synset, "words", "gloss", 0) for number, synset in numbers]
    names = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")
    synsets = np.array(rows, dtype=[(name, object) for name in names])
    data = flat.parent / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    savemat(data / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n2\n1\n2\n")
    return Path(shutil.make_archive(data.parent, "gztar", flat.parent, data.parent.name))


def tree(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.glob("*/*"))


def test_the_devkits_numbers_become_synsets(devkit):
    before = sorted(devkit.parent.iterdir())
    assert synsets_of(devkit) == SYNSETS
    assert sorted(devkit.parent.iterdir()) == before


def test_an_interrupted_call_goes_on_and_reads_images_in_folders_too(flat, tmp_path):
    val = tmp_path / "val"
    (flat / "some").mkdir()
    first = flat / "ILSVRC2012_val_00000002.JPEG"
    first.rename(flat / "some" / first.name)
    link_into_classes(flat, val, SYNSETS)
    (val / LINKED[2]).unlink()
    assert link_into_classes(flat, val, SYNSETS) == 4
    assert tree(val) == LINKED
    assert all((val / link).read_bytes() == b"image" for link in LINKED)


def test_what_is_said_of_a_flat_folder_makes_it_pass_verification(
    registry, tmp_path, flat, devkit, monkeypatch, capsys
):
    write_miniature(registry["imagenet"], tmp_path / "other")
    (tmp_path / "other" / "imagenet" / "train").rename(tmp_path / "imagenet" / "train")
    with pytest.raises(VitrailError, match="4 images outside of class folders") as said:
        verify(registry["imagenet"], tmp_path, counts=False)
    move, command = str(said.value).split("`")[1].split(" && ")
    subprocess.run(move, shell=True, check=True)
    python, module, name, *given = command.split()
    assert (python, module, name) == ("python", "-m", "replication.datasets.imagenet_val")
    monkeypatch.chdir(devkit.parent)  # where the development kit lies
    monkeypatch.setattr(sys, "argv", [name, *given])
    main()
    assert capsys.readouterr().out == f"{flat} has links to 4 images\n"
    verify(registry["imagenet"], tmp_path, counts=False)


@pytest.mark.parametrize("number", [3, 5])
def test_another_number_of_images_is_refused_before_anything_is_made(flat, tmp_path, number):
    with pytest.raises(VitrailError, match=f"holds 4 images .* instead of {number};"):
        link_into_classes(flat, tmp_path / "val", ["n00000000"] * number)
    assert not (tmp_path / "val").exists()


def test_a_devkit_that_is_missing_or_damaged_is_named(tmp_path):
    devkit = tmp_path / "kit.tar.gz"
    with pytest.raises(VitrailError, match=f"{devkit} is not ImageNet's development kit"):
        synsets_of(devkit)
    devkit.write_bytes(b"damaged")
    with pytest.raises(VitrailError, match=f"{devkit} is not ImageNet's development kit"):
        synsets_of(devkit)


def test_a_folder_that_cannot_be_written_is_named(flat, tmp_path):
    val = tmp_path / "val"
    val.mkdir()
    (val / SYNSETS[1]).write_text("a file where the class folder should be")
    with pytest.raises(VitrailError, match=rf"cannot write to {val} \(File exists\): correct"):
        link_into_classes(flat, val, SYNSETS)
