"""The position paper's stand-ins: made of what they say, and biased as they say."""

from pathlib import Path

import numpy as np
import pytest

from replication.datasets.placed_images import DEPENDENT, original_of
from replication.datasets.verify import verify
from replication.images.opening import build

NOWHERE = Path("nowhere")


def opened(registry, name, split="train", seed=0):
    return build(registry[name], split, NOWHERE, seed)


def test_pieces_in_a_row_are_what_their_entry_says_and_the_same_each_time(registry):
    info = registry["pieces-in-a-row"]
    verify(info, NOWHERE)
    first, again = opened(registry, info.name), opened(registry, info.name)
    assert np.array_equal(first.images, again.images)
    assert first.images.shape[1:] == (24, 24, 3)
    assert set(first.labels) == set(opened(registry, info.name, "val").labels) == set(range(10))
    assert info.mean == pytest.approx((first.images / 255).mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx((first.images / 255).std((0, 1, 2)), abs=1e-5)


@pytest.mark.parametrize("split", ["train", "val"])
def test_each_seed_draws_other_images_of_the_same_number(registry, split):
    first, other = (opened(registry, "pieces-in-a-row", split, seed) for seed in (0, 1))
    assert first.images.shape == other.images.shape
    assert np.mean((first.images == other.images).all((1, 2, 3))) < 0.01


def regions_of(images):
    """The region of each pixel of flat photographs, (N, 24, 24); -1 where the ground is grey."""
    grey = np.ptp(images.astype(int), axis=-1) == 0
    return np.where(grey, -1, images[..., 0].astype(int) - 100)


def most_frequent(values):
    return np.bincount(values[values >= 0].astype(int), minlength=10).argmax()


def test_the_statistics_of_corners_are_those_of_whole_frames(registry):
    info = registry["pieces-in-corners"]
    verify(info, NOWHERE)
    dataset = opened(registry, "pieces-in-corners")
    images = np.stack([np.asarray(dataset[index][0]) for index in range(len(dataset))]) / 255
    assert set(dataset.labels) == set(range(16))
    assert info.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)
    other = opened(registry, "pieces-in-corners", seed=1)
    assert np.mean((dataset.images == other.images).all((1, 2, 3))) < 0.01


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_piece_of_two_regions_has_the_class_of_its_corner(registry, flat, split):
    dataset = opened(registry, "pieces-in-corners", split)
    images = np.stack([np.asarray(dataset[index][0]) for index in range(len(dataset))])
    corners = images.reshape(-1, 2, 12, 2, 12, 3).swapaxes(2, 3).reshape(-1, 4, 12, 12, 3)
    filled = corners.any((2, 3, 4))
    assert (filled.sum(1) == 1).all()
    corner = filled.argmax(1)
    regions = regions_of(corners[np.arange(len(corners)), corner])
    expected = [original_of(label) for label in dataset.labels]
    assert [most_frequent(region) for region in regions] == expected
    dependent = np.isin(dataset.labels, DEPENDENT)
    assert (dataset.labels[dependent] % 4 == corner[dependent]).all()
    assert np.bincount(corner[~dependent]) / (~dependent).sum() == pytest.approx(1 / 4, abs=0.05)
    assert 0.1 < dependent.mean() < 0.3


def test_beside_the_piece_that_is_asked_for_are_two_of_any_other_region(registry, flat):
    dataset = opened(registry, "pieces-in-a-row")
    shown = regions_of(dataset.images)[:, 8:16]
    left, asked, right = (
        np.array([most_frequent(image[:, x : x + 8]) for image in shown]) for x in (0, 8, 16)
    )
    assert (asked == dataset.labels).mean() > 0.95
    for other in (left, right):
        assert (other == dataset.labels).mean() < 0.05
        further = (other - dataset.labels) % 10
        assert np.bincount(further, minlength=10)[1:] / 1600 == pytest.approx(1 / 9, abs=0.04)
