"""The octic paper's stand-ins: classes closed under the group, exact masks, two separate splits."""

from pathlib import Path

import numpy as np
import pytest

from replication.data.arrays import scans
from replication.data.layout import verify
from replication.data.stand_ins.octic import (
    CELL_SHARES,
    KINDS,
    Objects,
    cells,
    cover,
    placed,
    things,
)
from replication.plan.datasets import load_registry
from tests.conftest import ROOT
from vitrail.images.opening import build, stream

NOWHERE = Path("nowhere")
REGISTRY = load_registry(ROOT / "configs" / "datasets.yaml")


def test_what_a_mirroring_or_half_a_turn_makes_alike_is_one_class():
    assert KINDS[2] == KINDS[5]
    assert KINDS[6] == KINDS[9]
    assert sorted(set(KINDS)) == list(range(8))


@pytest.mark.parametrize("name", ["things-and-stuff", "shapes", "species", "places"])
def test_every_class_has_its_share_of_the_images_that_the_registry_counts(name):
    info = REGISTRY[name]
    for split, count in (("train", info.train_images), ("val", info.val_images)):
        found = np.bincount(build(info, split, NOWHERE).labels, minlength=info.classes)
        assert found.sum() == count
        assert found.max() - found.min() <= 1


@pytest.mark.parametrize("name", ["things-and-stuff", "shapes"])
def test_the_registry_normalises_what_is_trained_on_by_its_own_statistics(name):
    images = build(REGISTRY[name], "train", NOWHERE).images / 255
    assert REGISTRY[name].mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert REGISTRY[name].std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)


def test_a_thing_is_brighter_than_its_ground():
    random = stream("test", "val")
    pixels, covers = things(np.arange(64) % 8, random.randint(8, size=64), "val", random)
    thing, ground = pixels[covers > 0.99], pixels[covers < 0.01]
    assert thing.min() > 0.69
    assert ground.max() < 0.31


def test_scans_are_placed_upright_and_half_of_them_mirrored():
    drawn, _ = scans("val")
    copies = placed(np.repeat(drawn[:1], 200, axis=0), np.random.RandomState(0))
    whole = np.kron(drawn[0], np.ones((2, 2)))
    agreement = [
        np.einsum("nhw,hw->n", copies, turned) for turned in (whole, whole[:, ::-1], whole[::-1])
    ]
    best = np.argmax(agreement, axis=0)
    assert (best < 2).mean() > 0.9
    assert 0.3 < (best == 0).mean() < 0.7


def test_a_scan_fills_the_share_of_the_side_that_is_asked_for_and_lies_anywhere():
    """Of a white scan as large as three quarters of 16 pixels, 12 x 12 pixels are white."""
    white = np.ones((100, 8, 8), np.float32)
    random = np.random.RandomState(0)
    copies = placed(white, random, (0.75, 0.75))
    # Some pixels of one that is turned lie outside of the frame.
    assert copies.sum((1, 2)) == pytest.approx(np.full(100, 144), rel=0.1)
    centres = np.einsum("nhw,w->n", copies, np.arange(16) - 7.5) / copies.sum((1, 2))
    assert -2.2 < centres.min() < -1.5
    assert 1.5 < centres.max() < 2.2


def test_masks_are_of_the_class_where_the_thing_is():
    objects = Objects(NOWHERE, "val")
    for index in range(8):
        image, mask = objects[index]
        assert set(np.unique(mask)) == {0, 1 + index}
        assert np.asarray(image)[mask > 0].mean() > 2 * np.asarray(image)[mask == 0].mean()


def test_a_split_is_composed_alike_whenever_it_is_opened():
    drawn = [cover(np.arange(8), "val", stream("test", "val")) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)


@pytest.fixture(scope="module")
def train_cells():
    return cells(NOWHERE, "train")


def test_cells_have_the_images_classes_and_statistics_of_their_entry(train_cells):
    info = REGISTRY["cells"]
    assert verify(info, NOWHERE) == {"train": 1200, "val": 400}
    for split in ("train", "val"):
        assert set(build(info, split, NOWHERE).labels) == set(range(info.classes))
    pixels = train_cells.images / 255
    assert info.mean == pytest.approx(pixels.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(pixels.std((0, 1, 2)), abs=1e-5)


def test_classes_of_cells_are_as_unequal_as_one_and_eight(train_cells):
    found = np.bincount(train_cells.labels) / len(train_cells)
    assert np.abs(found - CELL_SHARES).max() < 0.03


def test_no_orientation_of_cells_is_preferred(train_cells):
    """The mean of a class is nearly that of its images turned and mirrored; of digits it is not."""
    mean = train_cells.images[train_cells.labels == 6].mean((0, 3))  # sevens
    mean -= mean.mean()
    turned = [np.rot90(side, k) for side in (mean, mean.T) for k in range(4)]
    kept = np.mean(turned, axis=0)
    assert np.square(kept).sum() > 0.8 * np.square(mean).sum()
