"""Cells: no side of one is up, and classes are unequal."""

from pathlib import Path

import numpy as np
import pytest

from vitrine.data import build, verify
from vitrine.data.stand_ins.cells import SHARES, cells


@pytest.fixture(scope="module")
def train():
    return cells(Path(), "train")


def test_cells_have_the_images_classes_and_statistics_of_their_entry(registry, train):
    info = registry["cells"]
    assert verify(info, Path()) == {"train": 1200, "val": 400}
    for split in ("train", "val"):
        assert set(build(info, split, Path()).labels) == set(range(info.classes))
    pixels = train.images / 255
    assert info.mean == pytest.approx(pixels.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(pixels.std((0, 1, 2)), abs=1e-5)


def test_classes_are_as_unequal_as_one_and_eight(train):
    found = np.bincount(train.labels) / len(train)
    assert np.abs(found - SHARES).max() < 0.03


def test_no_orientation_is_preferred(train):
    """The mean of a class is nearly that of its images turned and mirrored; of digits it is not."""
    mean = train.images[train.labels == 6].mean((0, 3))  # sevens
    mean -= mean.mean()
    turned = [np.rot90(side, k) for side in (mean, mean.T) for k in range(4)]
    kept = np.mean(turned, axis=0)
    assert np.square(kept).sum() > 0.8 * np.square(mean).sum()
