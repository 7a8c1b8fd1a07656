from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitrine.data import build
from vitrine.data.splits import stratified_split


def test_digits_are_rgb_images_with_integer_labels(digits):
    image, label = build(digits, "train", Path("nowhere"))[0]
    assert isinstance(image, Image.Image)
    assert (image.mode, image.size, type(label)) == ("RGB", (8, 8), int)


def test_no_scan_of_the_validation_split_is_in_the_training_split(digits):
    train, val = (build(digits, split, Path("nowhere")) for split in ("train", "val"))
    assert (len(train), len(val)) == (digits.train_images, digits.val_images)
    scans = {image.tobytes() for image in train.images}
    assert len(scans) == len(train)
    assert not scans & {image.tobytes() for image in val.images}


def test_each_digit_keeps_two_thirds_of_its_scans(digits):
    train, val = (
        np.bincount(build(digits, split, Path("nowhere")).labels) for split in ("train", "val")
    )
    assert train / (train + val) == pytest.approx(2 / 3, abs=0.005)


def test_the_registry_normalises_digits_by_their_own_statistics(digits):
    images = build(digits, "train", Path("nowhere")).images / 255
    assert digits.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert digits.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)


def test_a_stratified_split_is_fixed_by_its_seed():
    labels = [0] * 30 + [1] * 60
    train, val = stratified_split(labels, 0.8, seed=3)
    assert (train, val) == stratified_split(labels, 0.8, seed=3)
    assert train != stratified_split(labels, 0.8, seed=4)[0]
    assert sorted(train + val) == list(range(90))
    assert sum(index < 30 for index in train) == 24
