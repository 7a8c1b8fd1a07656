"""The octic paper's stand-in: classes closed under the group, two separate splits."""

from pathlib import Path

import numpy as np
import pytest

from replication.config.datasets import load_registry
from replication.datasets.arrays import scans
from replication.datasets.stand_ins import octic
from replication.datasets.stand_ins.octic import KINDS, THINGS, things_and_stuff
from replication.images.opening import build
from tests.conftest import ROOT

NOWHERE = Path("nowhere")
INFO = load_registry(ROOT / "configs" / "datasets.yaml")["things-and-stuff"]


def test_what_a_mirroring_or_half_a_turn_makes_alike_is_one_class():
    assert KINDS[2] == KINDS[5]
    assert KINDS[6] == KINDS[9]
    assert set(KINDS) == {-1, *range(THINGS)}


def test_every_class_has_its_share_of_the_images_that_the_registry_counts():
    for split, count in (("train", INFO.train_images), ("val", INFO.val_images)):
        found = np.bincount(build(INFO, split, NOWHERE).labels, minlength=INFO.classes)
        assert found.sum() == count
        assert found.max() - found.min() <= 1


def test_every_part_of_a_split_has_all_classes():
    """Probes halve images by their index, and searches hold out every fifth."""
    labels = np.asarray(build(INFO, "train", NOWHERE).labels)
    for parts in (2, 5):
        for start in range(parts):
            assert len(set(labels[start::parts])) == INFO.classes


def test_the_registry_normalises_what_is_trained_on_by_its_own_statistics():
    images = build(INFO, "train", NOWHERE).images / 255
    assert INFO.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert INFO.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)


def test_a_seed_composes_its_own_images_and_always_the_same():
    first, again, other = (build(INFO, "val", NOWHERE, seed).images[:50] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert all((other != image).any((1, 2, 3)).all() for image in first)


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
