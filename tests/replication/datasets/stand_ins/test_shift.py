"""The shift paper's stand-ins: a piece of a photograph on another, drawn by the seed."""

import numpy as np
import pytest

from replication.datasets.stand_ins import shift
from replication.datasets.verify import verify
from replication.images.opening import SPLITS

STAND_INS = {"two-pieces": 8, "piece-on-piece": 8, "piece-to-crop": 10}
ORDERED = [(a, b) for a in shift.KINDS for b in shift.KINDS if a != b]
UNORDERED = [(a, b) for a in shift.KINDS for b in shift.KINDS if a > b]


def opened(registry, name, split="train", seed=0):
    return getattr(shift, registry[name].loader.split(":")[1])(None, split, seed)


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_what_its_entry_says(registry, name, tmp_path):
    info = registry[name]
    assert verify(info, tmp_path) == {"train": 1500, "val": 1000}
    images = opened(registry, name).images / 255
    assert images.shape[1:] == (STAND_INS[name], STAND_INS[name], 3)
    assert info.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)
    for split in SPLITS:
        labels = opened(registry, name, split).labels
        assert len(np.unique(labels)) == info.classes
        assert np.bincount(labels).min() > 0.6 * len(labels) / info.classes


@pytest.mark.parametrize(("name", "side"), STAND_INS.items())
def test_the_class_says_which_square_lies_on_which_ground(registry, flat, name, side):
    pictures = opened(registry, name)
    rows = np.zeros(side, dtype=int)
    for image, label in zip(pictures.images[..., 0], pictures.labels, strict=True):
        values, counts = np.unique(image, return_counts=True)
        thing, ground = values[np.argsort(counts)] - 100
        pair = (thing, ground)
        assert (
            UNORDERED[label] in (pair, pair[::-1])
            if name == "two-pieces"
            else ORDERED[label] == pair
        )
        shown = image == 100 + thing
        assert counts.min() == 16
        square = np.outer(shown.any(1), shown.any(0))
        assert (square == shown).all()
        assert square.any(1).sum() == 4
        rows += shown.any(1)
    share = rows / rows.sum()  # of 6,000 rows
    assert np.abs(share - 1 / side).max() < 0.015


def test_composition_is_fixed_and_differs_between_stand_ins_splits_and_seeds(registry):
    drawn = {}
    for name in STAND_INS:
        for split in SPLITS:
            for seed in (0, 1):
                images = opened(registry, name, split, seed).images
                assert (opened(registry, name, split, seed).images == images).all()
                drawn[name, split, seed] = images[:, :8, :8].tobytes()
    assert len(set(drawn.values())) == len(drawn)
