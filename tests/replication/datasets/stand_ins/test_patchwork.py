"""Scenes of squares of regions of photographs."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from replication.datasets.stand_ins import patchwork
from replication.datasets.stand_ins.shift import KINDS
from replication.images.opening import SPLITS, build, stream


def test_a_pixel_has_the_class_of_its_region(flat):
    widths = set()
    for split in SPLITS:
        random = stream("test", split)
        for _ in range(20):
            pixels, mask = patchwork.compose(split, random)
            assert pixels.shape == (*mask.shape, 3)
            assert mask.shape[0] == patchwork.HEIGHT
            widths.add(mask.shape[1])
            assert (pixels[..., 0] == 100 + np.array(KINDS)[mask]).mean() > 0.97
    assert widths == set(patchwork.WIDTHS)


def test_every_class_is_everywhere_about_as_often():
    random = stream("test", "train")
    masks = np.stack([patchwork.compose("train", random)[1][:, :64] for _ in range(300)])
    for label in range(len(KINDS)):
        share = (masks == label).mean(0)
        assert abs(share - 0.2).max() < 0.1


@pytest.mark.slow
def test_scenes_are_as_their_entry_says(registry):
    info = registry["patchwork"]
    assert info.classes == len(patchwork.CLASSES) == len(set(patchwork.PALETTE)) == len(KINDS)
    drawn = set()
    for split, seed in itertools.product(SPLITS, (0, 1)):
        dataset, random = build(info, split, Path(), seed), stream("patchwork", split, seed)
        assert len(dataset) == patchwork.COUNTS[split] == getattr(info, f"{split}_images")
        for _, mask in map(dataset.__getitem__, range(len(dataset))):
            assert (mask == patchwork.compose(split, random)[1]).all()
            drawn.add(mask.tobytes())
    assert len(drawn) == 2 * sum(patchwork.COUNTS.values())
