"""The variance paper's stand-ins of ImageNet: composed as they say, by each seed anew."""

from pathlib import Path

import numpy as np
import pytest

from replication.datasets.arrays import scans
from replication.datasets.stand_ins import variance
from replication.datasets.verify import verify
from replication.images.opening import SPLITS, build

FEW_PLACES = range(0, 13, 4)


def opened(registry, split="train", seed=0):
    return build(registry["digits-few"], split, Path("nowhere"), seed)


def test_a_stand_in_is_what_its_entry_says_and_the_same_each_time(registry):
    info = registry["digits-few"]
    verify(info, Path("nowhere"))
    first, again = opened(registry), opened(registry)
    assert np.array_equal(first.images, again.images)
    assert info.mean == pytest.approx((first.images / 255).mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx((first.images / 255).std((0, 1, 2)), abs=1e-5)


@pytest.mark.parametrize("split", SPLITS)
def test_each_seed_draws_other_images_of_the_same_number(registry, split):
    first, other = opened(registry, split), opened(registry, split, seed=1)
    assert first.images.shape == other.images.shape
    assert np.mean((first.images == other.images).all((1, 2, 3))) < 0.01


def test_each_test_image_has_a_scan_of_its_own(registry):
    labels = opened(registry, "val").labels
    assert np.bincount(labels).tolist() == np.bincount(scans("val")[1]).tolist()


def pasted(image, digits):
    """Where which of some scans (N, 8, 8) may be pasted in an image of `digits-few`: (n, 3)."""
    places = [(row, column) for row in FEW_PLACES for column in FEW_PLACES]
    seen = np.stack([image[row : row + 8, column : column + 8] for row, column in places]) / 255
    lowest = digits[:, None, ..., None] - 1 / 255  # on black, and on the brightest ground
    highest = lowest + variance.GROUND * (1 - digits[:, None, ..., None]) + 2 / 255
    found = ((seen >= lowest) & (seen <= highest)).all((2, 3, 4))
    return [(scan, *places[place]) for scan, place in np.argwhere(found)]


@pytest.mark.parametrize("seed", [0, 1])
def test_at_most_twenty_scans_of_each_class_train_at_sixteen_places(registry, seed):
    pictures, (digits, labels) = opened(registry, seed=seed), scans("train")
    used, places = set(), set()
    for image, label in zip(pictures.images[::10], pictures.labels[::10], strict=True):
        of_class = np.flatnonzero(labels == label)
        found = pasted(image, digits[of_class])
        assert found
        if len(found) == 1:
            used.add(of_class[found[0][0]])
            places.add(found[0][1:])
    assert places == {(row, column) for row in FEW_PLACES for column in FEW_PLACES}
    assert 10 < np.bincount(labels[sorted(used)]).max() <= variance.FEW


def test_no_test_scan_trains_and_each_seed_draws_others(registry):
    images = {seed: opened(registry, seed=seed) for seed in (0, 1)}
    (train, labels), (test, test_labels) = scans("train"), scans("val")
    drawn = {}
    for seed, pictures in images.items():
        zeros = pictures.images[pictures.labels == 0]
        found = [pasted(image, train[labels == 0]) for image in zeros]
        drawn[seed] = {tile[0][0] for tile in found if len(tile) == 1}
        assert len(drawn[seed]) == variance.FEW
        assert not any(pasted(image, test[test_labels == 0]) for image in zeros)
    assert len(drawn[0] & drawn[1]) < variance.FEW / 2
