import pickle

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat

from replication.datasets.fetch import fetch
from replication.datasets.miniature import WRITERS, write_miniature
from replication.datasets.placed_images import DEPENDENT
from replication.datasets.verify import verify
from replication.images.opening import build
from vitrail.errors import VitrailError

ON_DISK = [
    *("cifar10", "cifar100", "svhn", "eurosat", "flowers102", "flower-data"),
    *("imagenette", "imagenet", "tiny-imagenet", "tiny-imagenet-20", "svhn-10k"),
    *("bmc", "bccd", "cifar10-10k"),
]


def test_every_dataset_that_is_downloaded_or_placed_has_a_miniature(registry):
    """Or else `fast_dev_run` could not put one in its place."""
    of_files = [info for info in registry.values() if info.source in ("download", "manual")]
    assert [
        info.name for info in of_files if not (info.loader in WRITERS or info.segmentation)
    ] == []


@pytest.mark.parametrize("name", ON_DISK)
def test_a_miniature_is_read_like_the_dataset(registry, tmp_path, name):
    info = registry[name]
    write_miniature(info, tmp_path, per_class=2, classes=4)
    verify(info, tmp_path, counts=False)
    classes = min(4, info.classes)
    for split in ("train", "val"):
        dataset = build(info, split, tmp_path)
        pairs = [dataset[index] for index in range(len(dataset))]
        assert {label for _, label in pairs} == set(range(classes))
        assert all(type(label) is int for _, label in pairs)
        assert all(isinstance(image, Image.Image) and image.mode == "RGB" for image, _ in pairs)
    assert len(pairs) == classes * 2


@pytest.mark.parametrize("name", ON_DISK)
def test_a_miniature_does_not_pass_for_the_dataset(registry, tmp_path, name):
    write_miniature(registry[name], tmp_path)
    with pytest.raises(VitrailError, match=r"(has|have) \d+ (images|class folders) instead of"):
        verify(registry[name], tmp_path)


@pytest.mark.parametrize("name", ON_DISK)
def test_images_of_a_class_look_alike_and_those_of_others_do_not(registry, tmp_path, name):
    write_miniature(registry[name], tmp_path, per_class=2, classes=3)
    dataset = build(registry[name], "val", tmp_path)
    colours = [np.asarray(image).mean((0, 1)) for image, _ in map(dataset.__getitem__, range(6))]
    labels = [dataset[index][1] for index in range(6)]
    for a in range(6):
        for b in range(a):
            distance = np.abs(colours[a] - colours[b]).max()
            assert (distance < 10) == (labels[a] == labels[b])


def test_a_miniature_is_always_the_same(registry, tmp_path):
    def first_image(folder):
        write_miniature(registry["cifar10"], tmp_path / folder)
        return build(registry["cifar10"], "train", tmp_path / folder)[0][0].tobytes()

    assert first_image("a") == first_image("b")


def test_svhn_writes_zero_as_ten_and_reads_it_as_zero(registry, tmp_path):
    folder = write_miniature(registry["svhn"], tmp_path, per_class=1, classes=2)
    assert loadmat(folder / "train_32x32.mat")["y"].tolist() == [[10], [1]]
    dataset = build(registry["svhn"], "train", tmp_path)
    assert [dataset[index][1] for index in range(2)] == [0, 1]


def test_cifar_keeps_its_channels_apart(registry, tmp_path):
    folder = write_miniature(registry["cifar10"], tmp_path, per_class=1, classes=1)
    dataset = build(registry["cifar10"], "val", tmp_path)
    with (folder / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        row = pickle.load(file)["data"][0]
    assert (np.asarray(dataset[0][0])[..., 2].ravel() == row[2048:]).all()


def test_eurosat_splits_each_class_four_to_one_without_overlap(registry, tmp_path):
    write_miniature(registry["eurosat"], tmp_path, per_class=3, classes=2)
    train, val = (build(registry["eurosat"], split, tmp_path) for split in ("train", "val"))
    assert (len(train), len(val)) == (24, 6)
    assert not set(train.indices) & set(val.indices)
    assert sorted(val[index][1] for index in range(6)) == [0, 0, 0, 1, 1, 1]


def test_two_classes_of_cifar10_position_have_both_kinds(registry, tmp_path):
    """`fast_dev_run` has no more, and the controlled test compares the kinds."""
    info = registry["cifar10-position"]
    write_miniature(info, tmp_path, per_class=1, classes=2)
    for split in ("train", "val"):
        kinds = {label in DEPENDENT for label in build(info, split, tmp_path).labels}
        assert kinds == {True, False}


def test_a_bundled_dataset_has_no_miniature(registry, tmp_path):
    with pytest.raises(VitrailError, match="'digits' has no format on disk"):
        write_miniature(registry["digits"], tmp_path)


def test_few_images_still_fill_every_batch_of_cifar10(registry, tmp_path):
    write_miniature(registry["cifar10"], tmp_path, per_class=1, classes=2)
    train = build(registry["cifar10"], "train", tmp_path)
    assert sorted(label for _, label in train) == [0, 0, 0, 1, 1]


def test_every_dataset_of_files_has_an_entry_that_is_made_without_them(registry, tmp_path):
    of_files = [info for info in registry.values() if info.source in ("download", "manual")]
    for info in of_files:
        miniature = registry[f"{info.name}-miniature"]
        counts = {"train": miniature.train_images, "val": miniature.val_images}
        assert fetch(miniature, tmp_path) == counts
        for split, images in counts.items():
            assert len(build(miniature, split, tmp_path)) == images
        same = ("classes", "mean", "std", "loader", "segmentation", "version")
        assert all(getattr(miniature, field) == getattr(info, field) for field in same)
