import numpy as np
import pytest

from replication.images.photos import photo_centre, photo_crops, photos, tiles
from vitrail.errors import VitrailError


def test_the_photographs_are_rgb_bytes():
    images = photos()
    assert list(images) == ["china", "flower"]
    assert all(image.shape == (427, 640, 3) for image in images.values())
    assert all(image.dtype == np.uint8 for image in images.values())


def test_the_centre_is_as_high_as_the_photograph_and_as_far_from_both_sides():
    flower = photos()["flower"]
    assert (photo_centre("flower", 427) == flower[:, 106:533]).all()
    assert photo_centre("flower", 28).shape == (28, 28, 3)


def test_crops_come_from_the_photographs_in_turn():
    crops = photo_crops(4, 64, seed=0)
    assert (crops.shape, crops.dtype) == ((4, 64, 64, 3), np.uint8)
    windows = {
        name: np.lib.stride_tricks.sliding_window_view(image[..., 0], (64, 64))
        for name, image in photos().items()
    }
    for crop, name in zip(crops, ["china", "flower"] * 2, strict=True):
        corner = np.argwhere(windows[name][:, :, 0, 0] == crop[0, 0, 0])
        assert any((windows[name][y, x] == crop[..., 0]).all() for y, x in corner)


def test_crops_are_fixed_by_their_seed_and_a_longer_series_begins_the_same():
    crops = photo_crops(4, 32, seed=1)
    assert (crops == photo_crops(6, 32, seed=1)[:4]).all()
    assert (crops != photo_crops(4, 32, seed=2)).any()


def test_a_crop_may_be_as_high_as_the_photograph():
    assert photo_crops(2, 427, seed=0).shape == (2, 427, 427, 3)


@pytest.mark.parametrize("size", [0, 428])
def test_a_crop_that_does_not_fit_is_refused(size):
    with pytest.raises(VitrailError, match=f"crops of {size} pixels .* from 1 to 427"):
        photo_crops(1, size, seed=0)


def test_tiles_of_both_splits_cover_a_photograph_once():
    drawn = np.zeros((427, 640), int)
    for split in ("train", "val"):
        for left, top, right, bottom in tiles("china", split):
            drawn[top:bottom, left:right] += 1
    assert (drawn == 1).all()
    share = len(tiles("china", "val")) / len(tiles("china", "train"))
    assert 0.4 < share < 0.6


def test_tiles_are_cut_to_a_box():
    found = tiles("flower", "train", box=(40, 10, 100, 70))
    assert len(found)
    assert (found.min(0)[:2] >= (40, 10)).all()
    assert (found.max(0)[2:] <= (100, 70)).all()
