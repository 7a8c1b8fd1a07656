"""Scenes whose digits are named by where they stand."""

from pathlib import Path

import numpy as np
import pytest

from replication.datasets.arrays import scans
from replication.datasets.scenes import HEIGHT, SKY, TREES
from replication.datasets.stand_ins import placed_scenes
from replication.images.opening import SPLITS, build, stream


@pytest.mark.parametrize("world", placed_scenes.GRIDS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_digit_has_the_class_of_its_part_of_the_image(world, split, monkeypatch):
    pasted = []

    class Remembering(placed_scenes.Scene):
        def paste(self, piece, shape, top, left, label):
            super().paste(piece, shape, top, left, label)
            pasted.append((top + len(shape) / 2, left + len(shape) / 2, label))

    monkeypatch.setattr(placed_scenes, "Scene", Remembering)
    random = stream("test", split)
    rows, columns = placed_scenes.GRIDS[world]
    width = HEIGHT if split == "train" else placed_scenes.TEST_WIDTHS[world]
    for _ in range(20):
        pixels, _ = placed_scenes.compose(world, split, scans(split)[0], random)
        assert pixels.shape == (HEIGHT, width, 3)
    digits = [digit for digit in pasted if digit[2] > 2]
    assert len(digits) >= 40
    for row, column, label in digits:
        assert divmod(label - 3, columns) == (row * rows // HEIGHT, column * columns // width)
    assert {label for *_, label in digits} == {3 + place for place in range(rows * columns)}


def test_digits_are_of_what_their_ground_is_not(monkeypatch):
    pasted = []

    class Remembering(placed_scenes.Scene):
        ground = None

        def paste(self, piece, shape, top, left, label):
            if label > 2:
                self.ground = self.mask.copy() if self.ground is None else self.ground
                side = len(shape)
                pasted.append((self.ground[top + side // 2, left + side // 2], piece[0, 0, 0]))
            super().paste(piece, shape, top, left, label)

    def flat(region, width, height, random):
        assert region in (SKY, TREES)
        return np.full((height, width, 3), 1 if region == SKY else 2, np.uint8)

    monkeypatch.setattr(placed_scenes, "Scene", Remembering)
    monkeypatch.setattr(placed_scenes, "cut", flat)
    random = stream("test", "train")
    images = scans("train")[0]
    masks = [placed_scenes.compose("halves", "train", images, random)[1] for _ in range(40)]
    assert {*pasted} == {(1, 2), (2, 1)}
    corners = [{mask[0, 0], mask[0, -1]} for mask in masks]
    assert corners.count({1}) > 8
    assert corners.count({2}) > 8  # trees above


def test_a_dataset_has_the_scenes_that_are_composed(registry):
    dataset = build(registry["scenes-quarters"], "val", Path(), 3)
    assert len(dataset) == placed_scenes.COUNTS["val"]
    random = stream("scenes-quarters/3", "val", 3)
    for index in range(3):
        _, mask = placed_scenes.compose("quarters", "val", scans("val")[0], random)
        assert (dataset[index][1] == mask - 1).all()


@pytest.mark.parametrize("world", placed_scenes.GRIDS)
def test_every_class_has_a_name_of_its_own(registry, world):
    names = placed_scenes.classes(world)
    assert len(set(names)) == len(names) == registry[f"scenes-{world}"].classes


def test_worlds_splits_and_seeds_are_composed_otherwise(registry):
    drawn = {
        np.asarray(build(registry[f"scenes-{world}"], split, Path(), seed)[0][0]).tobytes()
        for world in placed_scenes.GRIDS
        for split in SPLITS
        for seed in (0, 1)
    }
    assert len(drawn) == 12
