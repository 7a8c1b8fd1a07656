"""The position paper's stand-ins: made of what they say, and biased as they say."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from replication.data.arrays import scans
from replication.data.layout import verify
from replication.data.stand_ins.position import SIDE
from vitrail.images.opening import build
from vitrail.images.photos import photos

NOWHERE = Path("nowhere")
STAND_INS = [
    *("photo-regions", "digits-around", "digits-beside-others"),
    *("few-large-digits", "digits-in-a-row", "digits-and-regions"),
]
FEW = 150


def opened(registry, name, split="train", seed=0):
    return build(registry[name], split, NOWHERE, seed)


def original(split):
    images, labels = scans(split)
    return np.round(255 * images).astype(np.uint8), labels


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


def test_every_fifth_training_image_has_scans_of_its_own(registry):
    """Those that a learning rate is searched on are no other compositions of what trains."""
    images = opened(registry, "digits-in-a-row").images[:, 8:16, 8:16, 0]
    seen = [{one.tobytes() for one in images[k::5]} for k in range(5)]
    assert not seen[0] & set().union(*seen[1:])


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    ("name", "places", "enlarged"),
    [
        ("few-large-digits", (4,), 2),
        ("digits-in-a-row", (8,), 1),
    ],
)
def test_the_digit_that_is_asked_for_is_there_whole(registry, name, places, enlarged, split):
    dataset, (images, labels) = opened(registry, name, split), original(split)
    images, size = images.repeat(enlarged, 1).repeat(enlarged, 2), 8 * enlarged
    drawn = set()
    for image, label in zip(dataset.images[:FEW, ..., 0], dataset.labels, strict=False):
        found = {
            (y, x)
            for y in places
            for x in places
            if (image[y : y + size, x : x + size] == images[labels == label]).all((1, 2)).any()
        }
        assert found
        drawn |= found
    assert drawn == {(y, x) for y in places for x in places}


@pytest.mark.parametrize(
    ("name", "places"), [("digits-around", range(3, 9)), ("digits-beside-others", range(4, 9))]
)
def test_a_digit_is_at_any_pixel_of_its_range_equally_often(registry, name, places):
    """Not on the patch grid, which absolute positions would know best."""
    images, _ = original("train")
    size = (12, 12)
    asked = {
        np.asarray(Image.fromarray(scan).resize(size, Image.Resampling.BILINEAR)).tobytes()
        for scan in images
    }
    counts = np.zeros((SIDE, SIDE), int)
    for image in opened(registry, name).images[..., 0]:
        found = [
            (y, x)
            for y in range(SIDE - 11)
            for x in range(SIDE - 11)
            if image[y : y + 12, x : x + 12].tobytes() in asked
        ]
        counts[found[0]] += len(found) == 1
    inside = counts[places.start : places.stop, places.start : places.stop]
    assert counts.sum() == inside.sum() == 3200
    expected = 3200 / len(places) ** 2
    assert ((inside - expected) ** 2 / expected).sum() < 2 * len(places) ** 2


def test_beside_the_digit_that_is_asked_for_are_others_of_any_class(registry):
    row, (images, labels) = opened(registry, "digits-in-a-row"), original("train")
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for column in (0, 16):
        found = row.images[:, 8:16, column : column + 8, 0]
        beside = np.array([label_of[one.tobytes()] for one in found])
        assert np.mean(beside == row.labels) == pytest.approx(0.1, abs=0.03)


def test_the_checkpoints_scans_are_those_of_no_other(registry):
    images, labels = original("train")
    reserved = np.concatenate([images[labels == label][:36] for label in range(10)])
    kept = {image.tobytes() for image in reserved}
    row = opened(registry, "digits-in-a-row").images[:, 8:16, ..., 0]
    assert not any(row[:, :, x : x + 8][i].tobytes() in kept for x in (0, 8, 16) for i in range(99))
    mixed = opened(registry, "digits-and-regions")
    whole = {
        image[y : y + 8, x : x + 8].tobytes()
        for image in mixed.images[:, ..., 0][: 2 * FEW]
        for y in range(17)
        for x in range(17)
    }
    found = whole & {image.tobytes() for image in images}
    assert found
    assert found <= kept


def test_half_of_the_checkpoints_images_are_regions_cut_from_tiles_of_its_own(registry):
    mixed, regions = (opened(registry, name) for name in ("digits-and-regions", "photo-regions"))
    coloured = np.ptp(mixed.images.astype(int), axis=-1).any((1, 2))
    assert coloured.mean() == pytest.approx(0.5, abs=0.03)
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
        found[split] = {place(box, image) for image in petals[:24]}
    tiles = {split: {(y // 32, x // 32) for _, y, x in found[split]} for split in found}
    assert not tiles["train"] & tiles["val"]
    assert {turn for turn, _, _ in found["train"]} == set(range(8))


def place(photo, crop):
    """The turn of a crop, and its row and column in the photograph."""
    for turn in range(8):
        back = crop[:, ::-1] if turn >= 4 else crop
        back = np.rot90(back, -(turn % 4))
        rows, columns = np.nonzero((photo[:-23, :-23] == back[0, 0]).all(-1))
        for y, x in zip(rows, columns, strict=True):
            if (photo[y : y + 24, x : x + 24] == back).all():
                return turn, int(y), int(x)
    raise AssertionError("a crop is nowhere in the photograph")
