"""The position paper's stand-ins: made of what they say, and biased as they say."""

from pathlib import Path

import numpy as np
import pytest

from replication.data.arrays import scans
from replication.data.layout import verify
from vitrail.images.opening import build
from vitrail.images.photos import photos

NOWHERE = Path("nowhere")
STAND_INS = [
    *("photo-regions", "digits-in-four-places", "digits-beside-others"),
    *("few-large-digits", "digits-in-a-row", "digits-of-all-sizes"),
]
FEW = 150


def opened(registry, name, split="train"):
    return build(registry[name], split, NOWHERE)


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


def test_every_fifth_training_image_has_scans_of_its_own(registry):
    """Those that a learning rate is searched on are no other compositions of what trains."""
    images = opened(registry, "digits-in-a-row").images[:, 8:16, 8:16, 0]
    seen = [{one.tobytes() for one in images[k::5]} for k in range(5)]
    assert not seen[0] & set().union(*seen[1:])


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    ("name", "places", "enlarged"),
    [
        ("digits-beside-others", (4, 8, 12), 1),
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


def test_beside_the_digit_that_is_asked_for_are_others_of_any_class(registry):
    row, (images, labels) = opened(registry, "digits-in-a-row"), original("train")
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for column in (0, 16):
        found = row.images[:, 8:16, column : column + 8, 0]
        beside = np.array([label_of[one.tobytes()] for one in found])
        assert np.mean(beside == row.labels) == pytest.approx(0.1, abs=0.03)
    corners = opened(registry, "digits-beside-others").images[..., 0]
    cut = [corners[:, y : y + 8, x : x + 8] for y in (0, 16) for x in (0, 16)]
    others = sum(one.tobytes() in label_of for corner in cut for one in corner)
    # Half of the images have one, of which every ninth is partly covered.
    assert others / len(corners) == pytest.approx(0.5 * 8 / 9, abs=0.03)


def test_the_checkpoints_scans_are_those_of_no_other(registry):
    images, labels = original("train")
    reserved = np.concatenate([images[labels == label][:36] for label in range(10)])
    kept = {image.tobytes() for image in reserved}
    row = opened(registry, "digits-in-a-row").images[:, 8:16, ..., 0]
    assert not any(row[:, :, x : x + 8][i].tobytes() in kept for x in (0, 8, 16) for i in range(99))
    mixed = opened(registry, "digits-of-all-sizes")
    whole = [
        image[y : y + 8, x : x + 8].tobytes()
        for image in mixed.images[:FEW, ..., 0]
        for y in (0, 4, 8, 12, 16)
        for x in (0, 4, 8, 12, 16)
    ]
    every = {image.tobytes() for image in images}
    assert {one for one in whole if one in every} <= kept
    assert any(one in kept for one in whole)


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
