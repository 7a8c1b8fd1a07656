"""The position paper's stand-ins: made of what they say, and biased as they say."""

from pathlib import Path

import numpy as np
import pytest

from replication.datasets.arrays import scans
from replication.datasets.placed_images import DEPENDENT, original_of
from replication.datasets.stand_ins.position import SIDE
from replication.datasets.verify import verify
from replication.images.opening import build
from replication.images.photos import photos

NOWHERE = Path("nowhere")
STAND_INS = [
    *("photo-regions", "piece-around", "piece-beside-another"),
    *("few-pieces-inside", "pieces-in-a-row", "digits-and-regions"),
]


def opened(registry, name, split="train", seed=0):
    return build(registry[name], split, NOWHERE, seed)


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_what_its_entry_says_and_the_same_each_time(registry, name):
    info = registry[name]
    verify(info, NOWHERE)
    first, again = opened(registry, name), opened(registry, name)
    assert np.array_equal(first.images, again.images)
    assert first.images.shape[1:] == (24, 24, 3)
    assert set(first.labels) == set(opened(registry, name, "val").labels) == set(range(10))
    assert info.mean == pytest.approx((first.images / 255).mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx((first.images / 255).std((0, 1, 2)), abs=1e-5)


@pytest.mark.parametrize("name", STAND_INS)
@pytest.mark.parametrize("split", ["train", "val"])
def test_each_seed_draws_other_images_of_the_same_number(registry, name, split):
    first, other = opened(registry, name, split), opened(registry, name, split, seed=1)
    assert first.images.shape == other.images.shape
    assert np.mean((first.images == other.images).all((1, 2, 3))) < 0.01


def regions_of(images):
    """The region of each pixel of flat photographs, (N, 24, 24); -1 where the ground is grey."""
    grey = np.ptp(images.astype(int), axis=-1) == 0
    return np.where(grey, -1, images[..., 0].astype(int) - 100)


def most_frequent(values):
    return np.bincount(values[values >= 0].astype(int), minlength=10).argmax()


@pytest.mark.parametrize(
    ("name", "places"),
    [("piece-around", range(3, 10)), ("piece-beside-another", range(4, 9))],
)
def test_a_piece_is_at_any_pixel_of_its_range_equally_often(registry, flat, name, places):
    """Not on the patch grid, which absolute positions would know best."""
    dataset = opened(registry, name)
    shown = regions_of(dataset.images)
    counts = np.zeros((SIDE, SIDE), int)
    for image, label in zip(shown, dataset.labels, strict=True):
        middle = image[11:13, 11:13]  # in the piece, wherever it is
        inside = image >= 0
        if inside[::23, ::23].any():
            continue  # another is in a corner
        rows, columns = (np.flatnonzero(inside.any(axis)) for axis in (1, 0))
        assert (len(rows), len(columns)) == (12, 12)
        assert inside.sum() == 144
        assert most_frequent(middle) == label or label in (1, 2, 3)  # regions that overlap
        counts[rows[0], columns[0]] += 1
    drawn = counts[places.start : places.stop, places.start : places.stop]
    assert counts.sum() == drawn.sum() > 500
    expected = drawn.sum() / len(places) ** 2
    assert ((drawn - expected) ** 2 / expected).sum() < 2 * len(places) ** 2


def test_half_of_the_pieces_are_beside_another_in_a_corner(registry, flat):
    shown = regions_of(opened(registry, "piece-beside-another").images)
    outer = np.stack([shown[:, y, x] for y in (0, 23) for x in (0, 23)], -1) >= 0
    assert outer.sum(1).max() == 1
    assert outer.any(1).mean() == pytest.approx(0.5, abs=0.03)
    assert outer.mean(0) == pytest.approx(0.125, abs=0.02)


def test_the_statistics_of_corners_are_those_of_whole_frames(registry):
    for end in ("", "-redrawn"):
        info = registry[f"pieces-in-corners{end}"]
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


def test_redrawn_corners_are_of_the_same_pieces(registry):
    plain, redrawn = (opened(registry, f"pieces-in-corners{end}") for end in ("", "-redrawn"))
    assert np.array_equal(plain.images, redrawn.images)
    shown = [np.asarray(redrawn[0][0]) for _ in range(20)]
    assert len({image.tobytes() for image in shown}) > 1


def test_few_pieces_are_in_the_middle_of_another_region(registry, flat):
    dataset = opened(registry, "few-pieces-inside")
    assert len(dataset.labels) == 320
    shown = regions_of(dataset.images)
    inside = np.array([most_frequent(image[6:18, 6:18]) for image in shown])
    ring = np.ones((SIDE, SIDE), bool)
    ring[6:18, 6:18] = False
    outside = np.array([most_frequent(image[ring]) for image in shown])
    assert (inside == dataset.labels).mean() > 0.95  # some regions overlap
    assert (outside == dataset.labels).mean() < 0.05


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


def test_half_of_the_checkpoints_images_are_digits(registry):
    mixed = opened(registry, "digits-and-regions")
    grey = (np.ptp(mixed.images.astype(int), axis=-1) == 0).all((1, 2))
    assert grey.mean() == pytest.approx(0.5, abs=0.03)
    shapes, labels = scans("train")
    whole = {
        bytes(np.round(255 * shape).astype(np.uint8)): d
        for shape, d in zip(shapes, labels, strict=True)
    }
    found = [
        whole[patch] == label
        for image, label in zip(mixed.images[grey][:300, ..., 0], mixed.labels[grey], strict=False)
        for y in range(17)
        for x in range(17)
        if (patch := image[y : y + 8, x : x + 8].tobytes()) in whole
    ]
    assert len(found) > 60  # a third of them has this size
    assert all(found)


def test_the_checkpoints_regions_are_cut_from_tiles_of_its_own(registry):
    mixed, regions = (opened(registry, name) for name in ("digits-and-regions", "photo-regions"))
    coloured = np.ptp(mixed.images.astype(int), axis=-1).any((1, 2))
    box = np.ascontiguousarray(photos()["flower"][96:340, 160:430])  # of the petals, on tiles
    tiles = []
    for dataset, chosen in ((mixed, coloured), (regions, True)):
        petals = dataset.images[(dataset.labels == 8) & chosen][:24]
        tiles.append({(y // 32, x // 32) for _, y, x in (place(box, image) for image in petals)})
    assert not tiles[0] & tiles[1]


def test_regions_of_the_two_splits_share_no_pixel_and_come_in_all_turns(registry):
    """A crop of a test tile, turned back, is nowhere among the tiles that train."""
    box = np.ascontiguousarray(photos()["flower"][96:340, 160:430])  # of the petals, on tiles
    found = {}
    for split in ("train", "val"):
        dataset = opened(registry, "photo-regions", split)
        petals = dataset.images[dataset.labels == 8]
        found[split] = {place(box, image) for image in petals[:60]}
    tiles = {split: {(y // 32, x // 32) for _, y, x in found[split]} for split in found}
    assert not tiles["train"] & tiles["val"]
    assert {turn for turn, _, _ in found["train"]} == set(range(8))


def place(photo, crop):
    """The turn of a crop, and its row and column in the photograph."""
    for turn in range(8):
        back = np.rot90(crop, -(turn % 4))
        back = back[:, ::-1] if turn >= 4 else back
        rows, columns = np.nonzero((photo[:-23, :-23] == back[0, 0]).all(-1))
        for y, x in zip(rows, columns, strict=True):
            if (photo[y : y + 24, x : x + 24] == back).all():
                return turn, int(y), int(x)
    raise AssertionError("a crop is nowhere in the photograph")
