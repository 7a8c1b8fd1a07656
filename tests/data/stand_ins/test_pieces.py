"""The pieces of stand-ins: none is in both splits."""

import numpy as np

from vitrine.data.stand_ins.pieces import scans, stream, tiles


def test_no_scan_is_in_both_splits():
    (train, labels), (test, _) = scans("train"), scans("val")
    assert (len(train), len(test)) == (1198, 599)
    assert (train.min(), train.max(), train.dtype) == (0, 1, np.float32)
    assert np.bincount(labels).min() >= 116
    seen = {image.tobytes() for image in train}
    assert not any(image.tobytes() in seen for image in test)


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


def test_each_stand_in_and_split_has_random_numbers_of_its_own():
    drawn = {stream(name, split).randint(2**31) for name in "ab" for split in ("train", "val")}
    assert len(drawn) == 4
    assert stream("a", "train").randint(2**31) == stream("a", "train").randint(2**31)
