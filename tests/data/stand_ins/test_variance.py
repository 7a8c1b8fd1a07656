"""The variance paper's few digits: as many of each class, and the test of all."""

from pathlib import Path

import numpy as np
import pytest

from vitrine.data import build


def test_twenty_scans_of_each_class_train_and_all_others_test(registry):
    few, digits = registry["digits-few"], registry["digits"]
    train, val = (build(few, split, Path()) for split in ("train", "val"))
    assert np.bincount(train.labels).tolist() == [20] * 10
    everything = {image.tobytes() for image in build(digits, "train", Path()).images}
    assert len({image.tobytes() for image in train.images} & everything) == len(train) == 200
    assert (val.images == build(digits, "val", Path()).images).all()
    pixels = train.images / 255
    assert few.mean == pytest.approx(pixels.mean((0, 1, 2)), abs=1e-5)
    assert few.std == pytest.approx(pixels.std((0, 1, 2)), abs=1e-5)
