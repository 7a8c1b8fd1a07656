"""Scenes whose digits are named by where they stand."""

import pytest

from replication.data.fetching import fetch
from replication.data.scenes import HEIGHT
from replication.data.stand_ins import variance
from vitrail.images.opening import SPLITS, build, stream


@pytest.mark.parametrize("world", variance.GRIDS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_digit_has_the_class_of_its_part_of_the_image(world, split, monkeypatch):
    pasted = []

    class Remembering(variance.Scene):
        def paste(self, piece, shape, top, left, label):
            super().paste(piece, shape, top, left, label)
            pasted.append((top + len(shape) / 2, left + len(shape) / 2, label))

    monkeypatch.setattr(variance, "Scene", Remembering)
    random = stream("test", split)
    rows, columns = variance.GRIDS[world]
    width = HEIGHT if split == "train" else variance.TEST_WIDTHS[world]
    for _ in range(20):
        pixels, _ = variance.compose(world, split, random)
        assert pixels.shape == (HEIGHT, width, 3)
    digits = [one for one in pasted if one[2] > 2]
    assert len(digits) >= 40
    for row, column, label in digits:
        assert divmod(label - 3, columns) == (row * rows // HEIGHT, column * columns // width)
    assert {label for *_, label in digits} == {3 + place for place in range(rows * columns)}


def test_a_world_is_written_as_it_is_composed(registry, tmp_path):
    info = registry["scenes-quarters"]
    assert fetch(info, tmp_path) == variance.COUNTS
    random = stream("scenes-quarters", "val")
    for index in range(3):
        _, mask = variance.compose("quarters", "val", random)
        assert (build(info, "val", tmp_path)[index][1] == mask - 1).all()


@pytest.mark.parametrize("world", variance.GRIDS)
def test_every_class_has_a_name_of_its_own(registry, world):
    names = variance.classes(world)
    assert len(set(names)) == len(names) == registry[f"scenes-{world}"].classes


def test_worlds_and_splits_are_composed_otherwise():
    drawn = {
        variance.compose(world, split, stream(f"scenes-{world}", split))[0].tobytes()
        for world in variance.GRIDS
        for split in SPLITS
    }
    assert len(drawn) == 6
