"""The octic paper's stand-ins: classes closed under the group, exact masks, two separate splits."""

from pathlib import Path

import numpy as np
import pytest

from replication.config.datasets import load_registry
from replication.datasets.arrays import scans
from replication.datasets.stand_ins import octic
from replication.datasets.stand_ins.octic import (
    CELL_SHARES,
    CONTRAST,
    KINDS,
    THINGS,
    Objects,
    cells,
    cover,
    grey,
    squares,
    things_and_stuff,
)
from replication.datasets.verify import verify
from replication.images.opening import build, stream
from tests.conftest import ROOT

NOWHERE = Path("nowhere")
REGISTRY = load_registry(ROOT / "configs" / "datasets.yaml")
NAMES = ["things-and-stuff", "materials", "species", "places"]


def test_what_a_mirroring_or_half_a_turn_makes_alike_is_one_class():
    assert KINDS[2] == KINDS[5]
    assert KINDS[6] == KINDS[9]
    assert set(KINDS) == {-1, *range(THINGS)}


@pytest.mark.parametrize("name", NAMES)
def test_every_class_has_its_share_of_the_images_that_the_registry_counts(name):
    info = REGISTRY[name]
    for split, count in (("train", info.train_images), ("val", info.val_images)):
        found = np.bincount(build(info, split, NOWHERE).labels, minlength=info.classes)
        assert found.sum() == count
        assert found.max() - found.min() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_split_has_all_classes(name):
    """Probes halve images by their index, and searches hold out every fifth."""
    info = REGISTRY[name]
    labels = np.asarray(build(info, "train", NOWHERE).labels)
    for parts in (2, 5):
        for start in range(parts):
            assert len(set(labels[start::parts])) == info.classes


@pytest.mark.parametrize("name", ["things-and-stuff", "materials", "cells"])
def test_the_registry_normalises_what_is_trained_on_by_its_own_statistics(name):
    images = build(REGISTRY[name], "train", NOWHERE).images / 255
    assert REGISTRY[name].mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert REGISTRY[name].std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)


@pytest.mark.parametrize("name", [*NAMES, "objects", "cells"])
def test_a_seed_composes_its_own_images_and_always_the_same(name):
    first, again, other = (build(REGISTRY[name], "val", NOWHERE, seed) for seed in (1, 1, 2))
    pixels = [np.stack([np.asarray(opened[i][0]) for i in range(50)]) for opened in (first, again)]
    np.testing.assert_array_equal(*pixels)
    drawn_anew = np.stack([np.asarray(other[i][0]) for i in range(50)])
    assert all((drawn_anew != image).any((1, 2, 3)).all() for image in pixels[0])


@pytest.fixture
def marked(monkeypatch):
    """Scans that tell their split and class: white, but for one pixel of the test's."""

    def scans_of(split):
        drawn = np.ones((10, 8, 8), np.float32)
        drawn[:, 0, 0] = split == "train"
        return drawn, np.arange(10)

    monkeypatch.setattr(octic, "scans", scans_of)


def test_the_bright_thing_is_in_any_quarter_and_the_black_one_in_another(marked):
    images = things_and_stuff(NOWHERE, "train", 3).images / 255
    quarters = images.reshape(-1, 2, 8, 2, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 4, 192)
    bright, black = quarters.min(-1) > 0.69, quarters.max(-1) == 0
    assert (bright.sum(1) == 1).all()
    assert (black.sum(1) == 1).all()
    for places in (bright, black):
        assert np.abs(places.mean(0) - 1 / 4).max() < 0.03


def test_no_scan_is_in_both_splits():
    train, val = ({scan.tobytes() for scan in scans(split)[0]} for split in ("train", "val"))
    assert not train & val


def test_a_split_has_its_own_scans(marked):
    """A quarter's first pixel, or when mirrored the last of its first row, is of the test's."""
    images = things_and_stuff(NOWHERE, "val").images / 255
    corners = images[:, ::8][:, :, [0, 7, 8, 15]].reshape(-1, 2, 2, 2, 3)
    covered = (corners.min(-1) > 0.69).all(-1)
    assert not covered.any()


def test_grey_squares_have_one_mean_and_one_contrast():
    random = stream("test", "val")
    found = squares(np.arange(64) % 8, "val", random)
    assert found.mean((1, 2)) == pytest.approx(np.full(64, 0.5), abs=0.05)
    assert np.median(found.std((1, 2))) == pytest.approx(CONTRAST, rel=0.15)
    brighter = grey(np.stack([np.full((16, 16, 3), 0.2), np.full((16, 16, 3), 0.9)]))
    assert brighter == pytest.approx(np.full((2, 16, 16), 0.5))


def test_a_disc_lies_anywhere_in_the_frame_and_wholly():
    """Its centre of mass is as far from each side as its radius, which its area tells."""
    covers = cover(500, np.random.RandomState(0))
    area, along = covers.sum((1, 2)), np.arange(16) + 0.5
    radius = np.sqrt(area / np.pi)
    for middle in (covers.sum(1) @ along / area, covers.sum(2) @ along / area):
        assert (middle - radius > -0.2).all()
        assert (middle + radius < 16.2).all()
        assert middle.mean() == pytest.approx(8, abs=0.2)
        assert middle.std() > 1
    assert 3.9 < radius.min() < 4.3
    assert 6.7 < radius.max() < 7.1


def test_masks_are_of_the_class_where_the_disc_is():
    objects = Objects(NOWHERE, "val")
    shown = set()
    for index in range(len(objects)):
        image, mask = objects[index]
        assert set(np.unique(mask)) == {0, 1 + objects.images[index][1]}
        assert np.asarray(image)[mask > 0].mean() > 1.5 * np.asarray(image)[mask == 0].mean()
        shown |= set(np.unique(mask))
    assert shown == set(range(9))


@pytest.fixture(scope="module")
def train_cells():
    return cells(NOWHERE, "train")


def test_cells_have_the_images_and_classes_of_their_entry():
    info = REGISTRY["cells"]
    assert verify(info, NOWHERE) == {"train": info.train_images, "val": info.val_images}
    for split in ("train", "val"):
        assert set(build(info, split, NOWHERE).labels) == set(range(info.classes))


def test_classes_of_cells_are_as_unequal_as_one_and_eight(train_cells):
    found = np.bincount(train_cells.labels) / len(train_cells)
    assert np.abs(found - CELL_SHARES).max() < 0.03


def test_no_orientation_of_cells_is_preferred(train_cells):
    """Waves lie along rows; in cells of water rows and columns differ alike."""
    of_water = train_cells.images[train_cells.labels == 1].mean(-1)
    down, across = (np.abs(np.diff(of_water, axis=axis)).mean() for axis in (1, 2))
    assert down == pytest.approx(across, rel=0.1)
    upright = squares(np.full(200, 1), "train", stream("test", "train"))
    down, across = (np.abs(np.diff(upright, axis=axis)).mean() for axis in (1, 2))
    assert down > 1.3 * across
