"""The shift paper's stand-ins: pieces of photographs, of tiles of the split, drawn by the seed."""

import numpy as np
import pytest

from replication.data.layout import verify
from replication.data.stand_ins import shift
from replication.data.stand_ins.position import REGIONS
from vitrail.images.opening import SPLITS
from vitrail.images.photos import tiles

STAND_INS = {"photo-pieces": 8, "pieces-on-pieces": 8, "pieces-to-crop": 10}


def opened(registry, name, split="train", seed=0):
    return getattr(shift, registry[name].loader.split(":")[1])(None, split, seed)


@pytest.fixture
def flat(monkeypatch):
    """Photographs in which each region has one value, its index, and all else is white."""
    photo = {name: np.full((427, 640, 3), 255, dtype=np.uint8) for name in ("china", "flower")}
    for index, (name, (left, top, right, bottom)) in reversed([*enumerate(REGIONS)]):
        photo[name][top:bottom, left:right] = index
    monkeypatch.setattr(shift, "photos", lambda: photo)


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_what_its_entry_says(registry, name, tmp_path):
    info = registry[name]
    assert verify(info, tmp_path) == {"train": 3000, "val": 1000}
    images = opened(registry, name).images / 255
    assert images.shape[1:] == (STAND_INS[name], STAND_INS[name], 3)
    assert info.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)
    for split in SPLITS:
        labels = opened(registry, name, split).labels
        assert len(np.unique(labels)) == info.classes
        assert np.bincount(labels).min() > 0.6 * len(labels) / info.classes


@pytest.mark.parametrize("name", ["photo-pieces", "pieces-to-crop"])
def test_a_piece_is_of_the_region_that_its_class_says(registry, flat, name):
    pictures = opened(registry, name)
    shown = np.median(pictures.images.reshape(len(pictures.images), -1), axis=1)
    # The lake overlaps a bush by some rows, and the bush a pine by some columns.
    assert (shown == pictures.labels).mean() > 0.97


def test_a_square_of_one_region_lies_anywhere_on_another(registry, flat):
    pictures = opened(registry, "pieces-on-pieces")
    pairs = [(a, b) for a in shift.KINDS for b in shift.KINDS if a != b]
    rows = np.zeros(8, dtype=int)
    for image, label in zip(pictures.images[..., 0], pictures.labels, strict=True):
        thing, ground = pairs[label]
        shown = image == thing
        assert (shown.sum(), (image == ground).sum()) == (16, 48)
        square = np.outer(shown.any(1), shown.any(0))
        assert (square == shown).all()
        assert square.any(1).sum() == 4
        rows += shown.any(1)
    share = rows / rows.sum()  # of 12,000 rows
    assert np.abs(share - 1 / 8).max() < 0.01


@pytest.mark.parametrize("halved", [True, False])
def test_pieces_are_of_tiles_that_belong_to_the_split(monkeypatch, halved):
    for split in SPLITS:
        photo = {name: np.zeros((427, 640, 3), dtype=np.uint8) for name in ("china", "flower")}
        for name, pixels in photo.items():
            for left, top, right, bottom in tiles(name, split):
                pixels[top:bottom, left:right] = 255
        monkeypatch.setattr(shift, "photos", lambda photo=photo: photo)
        classes = np.arange(500) % len(REGIONS)
        pieces = shift._pieces(classes, split, np.random.RandomState(0), 8, halved)
        assert (pieces == 255).all()


def test_composition_is_fixed_and_differs_between_stand_ins_splits_and_seeds(registry):
    drawn = {}
    for name in STAND_INS:
        for split in SPLITS:
            for seed in (0, 1):
                images = opened(registry, name, split, seed).images
                assert (opened(registry, name, split, seed).images == images).all()
                drawn[name, split, seed] = images[:, :8, :8].tobytes()
    assert len(set(drawn.values())) == len(drawn)
