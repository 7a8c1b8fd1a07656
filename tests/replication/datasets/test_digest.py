"""One digest names the images and labels of a dataset, however they are kept."""

import hashlib
import json
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image
from scipy.io import loadmat, savemat

from replication.datasets.digest import check_digest, dataset_sha256
from replication.datasets.miniature import write_miniature
from replication.images.opening import build
from vitrail.image_files import read_image

TEST = "cifar-10-batches-py/test_batch"


@pytest.fixture
def cifar10(registry, tmp_path):
    """CIFAR-10's entry, and a function that returns the digest of a miniature after a change."""
    info = registry["cifar10"]
    folder = write_miniature(info, tmp_path)

    def digest(change=lambda batch: batch, protocol=2):
        batch = pickle.loads((folder / TEST).read_bytes())
        (folder / TEST).write_bytes(pickle.dumps(change(batch), protocol=protocol))
        return dataset_sha256(info, tmp_path)

    return digest


def test_it_is_that_of_sizes_pixels_and_labels_of_both_splits_in_turn(registry, tmp_path):
    info = registry["flowers102"]
    write_miniature(info, tmp_path)
    noted = b""
    for split in ("train", "val"):
        dataset = build(info, split, tmp_path)
        for image, label in map(dataset.__getitem__, range(len(dataset))):
            pixels = np.asarray(image)
            noted += struct.pack("<II", *pixels.shape[:2]) + pixels.tobytes()
            noted += struct.pack("<I", label)
    assert dataset_sha256(info, tmp_path) == hashlib.sha256(noted).hexdigest()


def test_it_does_not_depend_on_the_bytes_of_the_files(cifar10):
    assert cifar10() == cifar10(protocol=4)


def first_pixel(batch):
    batch["data"][0, 0] ^= 1
    return batch


CHANGES = {
    "a pixel": first_pixel,
    "a label": lambda batch: {**batch, "labels": [2, *batch["labels"][1:]]},
    "the order": lambda batch: {key: values[::-1] for key, values in batch.items()},
    "an image less": lambda batch: {key: values[:-1] for key, values in batch.items()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_depends_on_all_that_is_learned_from(cifar10, change):
    before = cifar10()
    assert cifar10(CHANGES[change]) != before


def test_masks_count_like_labels(registry, tmp_path):
    info = registry["cityscapes"]
    write_miniature(info, tmp_path, per_class=1, classes=1)
    before = dataset_sha256(info, tmp_path)
    masks = build(info, "val", tmp_path).masks
    changed = np.asarray(read_image(masks[0]).convert("L")).copy()
    changed[0, 0] ^= 1
    Image.fromarray(changed).save(masks[0])
    assert dataset_sha256(info, tmp_path) != before


def test_a_part_of_svhn_is_the_same_alone_and_in_the_whole_file(registry, tmp_path):
    info = registry["svhn-10k"]
    file = write_miniature(info, tmp_path) / "test_32x32.mat"
    few = loadmat(file)
    repeats = 10_000 // few["y"].size + 1
    images = np.tile(few["X"], repeats)
    labels = np.tile(few["y"], (repeats, 1))
    found = []
    for count in (10_000, len(labels)):
        savemat(file, {"X": images[..., :count], "y": labels[:count]})
        found.append(dataset_sha256(info, tmp_path))
        assert len(build(info, "train", tmp_path)) == 8000
        assert len(build(info, "val", tmp_path)) == 2000
    assert len(labels) > 10_000
    assert found[0] == found[1]


def test_no_two_datasets_have_the_same_digest(registry):
    """A dataset that extends another has images of its own, and must not inherit the digest."""
    known = [info.digest for info in registry.values() if info.digest]
    assert known
    assert len(known) == len({*known})


def test_a_dataset_without_a_known_digest_is_not_decoded(registry, tmp_path):
    check_digest(registry["imagenet"], tmp_path)  # nothing is there


@pytest.mark.slow
def test_other_images_are_refused_and_the_digest_of_the_right_ones_is_kept(registry, tmp_path):
    """The sentence names the digest that was found: so a new entry's is learned."""
    entry = {
        **registry["cifar10-miniature"].model_dump(mode="json", exclude={"name"}),
        "digest": "0" * 64,
    }
    file, receipt = tmp_path / "datasets.yaml", tmp_path / "receipt.json"

    def fetched():
        options = ("--data", tmp_path, "--registry", file, "--receipt", receipt)
        command = [sys.executable, "-m", "vitrail", "fetch", "few", *map(str, options)]
        return subprocess.run(command, capture_output=True, text=True)

    file.write_text(yaml.safe_dump({"few": entry}))
    refused = fetched()
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert not receipt.exists()
    found = dataset_sha256(registry["cifar10-miniature"], tmp_path)
    assert found in refused.stderr
    file.write_text(yaml.safe_dump({"few": {**entry, "digest": found}}))
    assert fetched().returncode == 0
    assert json.loads(receipt.read_text())["digest"] == found
