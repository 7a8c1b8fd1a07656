"""Pieces of regions: of tiles of the split, at either scale."""

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from replication.datasets.stand_ins import regions
from replication.datasets.stand_ins.regions import REGIONS, pieces
from replication.images.opening import SPLITS
from replication.images.photos import photos, tiles

CLASSES = np.arange(500) % len(REGIONS)


@pytest.mark.parametrize("halved", [True, False])
def test_pieces_are_of_tiles_that_belong_to_the_split(monkeypatch, halved):
    for split in SPLITS:
        photo = {name: np.zeros((427, 640, 3), dtype=np.uint8) for name in ("china", "flower")}
        for name, pixels in photo.items():
            for left, top, right, bottom in tiles(name, split):
                pixels[top:bottom, left:right] = 255
        monkeypatch.setattr(regions, "photos", lambda photo=photo: photo)
        assert (pieces(CLASSES, split, np.random.RandomState(0), 8, halved=halved) == 255).all()


def test_a_piece_is_of_its_region(flat):
    cut = pieces(CLASSES, "train", np.random.RandomState(0), 8, halved=True)
    shown = np.median(cut[..., 0].reshape(len(cut), -1), axis=1) - 100
    # The lake overlaps a bush by some rows, and the bush a pine by some columns.
    assert (shown == CLASSES).mean() > 0.97


def test_two_thirds_of_the_tiles_that_train_can_be_asked_for(monkeypatch):
    """Photographs that number their pixels show which were cut."""
    numbers = np.arange(427 * 640, dtype=np.int64).reshape(427, 640)
    coded = np.stack([numbers // 65536, numbers // 256 % 256, numbers % 256], -1).astype(np.uint8)
    monkeypatch.setattr(regions, "photos", lambda: {"china": coded, "flower": coded})
    sky = np.zeros(2000, int)
    for split, share in (("train", 2 / 3), ("val", 1)):
        every, fewer = (
            pieces(sky, split, np.random.RandomState(0), 16, halved=False, two_thirds=fewer)
            for fewer in (False, True)
        )
        seen, left = ({*map(bytes, found.reshape(-1, 3))} for found in (every, fewer))
        assert len(left - seen) < 0.05 * len(left)
        assert len(left) / len(seen) == pytest.approx(share, abs=0.05)


def test_halved_pieces_are_means_of_two_by_two_pixels():
    """Each is found at some place of the photograph, at one of four phases of halving."""
    cut = pieces(np.full(5, 8), "val", np.random.RandomState(0), 4, halved=True)
    left, top, right, bottom = REGIONS[8][1]
    petals = photos()["flower"][top:bottom, left:right].astype(float)
    height, width = (side // 2 for side in petals.shape[:2])
    for piece in cut:
        found = []
        for top, left in itertools.product(range(2), range(2)):
            part = petals[top:, left:][: 2 * height - 2, : 2 * width - 2]
            means = part.reshape(height - 1, 2, width - 1, 2, 3).mean((1, 3))
            windows = sliding_window_view(means, (4, 4), axis=(0, 1)).transpose(0, 1, 3, 4, 2)
            found.append((abs(windows - piece).max((2, 3, 4)) <= 0.5).any())
        assert any(found)
