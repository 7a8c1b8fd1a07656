"""The shift paper's stand-ins: one digit of the split, anywhere, on ground of the split."""

import numpy as np
import pytest

from replication.data.arrays import scans
from replication.data.layout import verify
from replication.data.stand_ins import shift
from vitrail.images.opening import SPLITS
from vitrail.images.photos import tiles

# side of the frame, pixels of a digit that may be beyond it
STAND_INS = {"digits-near": (12, 1), "digits-far": (13, 0), "digits-cropped": (14, 0)}


def opened(registry, name, split="train"):
    return getattr(shift, registry[name].loader.split(":")[1])(None, split)


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_is_what_its_entry_says(registry, name, tmp_path):
    info = registry[name]
    assert verify(info, tmp_path) == {"train": 6000, "val": 1000}
    images = opened(registry, name).images / 255
    assert info.mean == pytest.approx(images.mean((0, 1, 2)), abs=1e-5)
    assert info.std == pytest.approx(images.std((0, 1, 2)), abs=1e-5)
    for split in SPLITS:
        labels = opened(registry, name, split).labels
        assert np.bincount(labels).min() > 0.07 * len(labels)


@pytest.mark.parametrize("name", STAND_INS)
@pytest.mark.parametrize("split", SPLITS)
def test_an_image_is_a_scan_of_its_split_and_class_at_one_place_on_dim_ground(
    registry, name, split
):
    (side, beyond), ground = STAND_INS[name], 0.15
    images, places = opened(registry, name, split), range(-beyond, side - 7 + beyond)
    digits, labels = scans(split)
    found = set()
    for image, label in zip(images.images[:20] / 255, images.labels, strict=False):
        own = digits[labels == label]
        rolled = {(r, c): np.roll(image, (-r, -c), (0, 1)) for r in places for c in places}
        fitting = [
            place
            for place, shown in rolled.items()
            if max(shown[8:].max(), shown[:, 8:].max()) < ground + 0.002
            and (
                (shown[:8, :8].min(-1) > own - 0.002)
                & (shown[:8, :8].max(-1) < own + (1 - own) * ground + 0.002)
            )
            .all((1, 2))
            .any()
        ]
        assert fitting
        found.add(fitting[0])
    assert len(found) > 10


@pytest.mark.parametrize("split", SPLITS)
def test_the_ground_is_of_tiles_that_belong_to_the_split(monkeypatch, split):
    photo = np.zeros((427, 640, 3), dtype=np.uint8)
    for left, top, right, bottom in tiles("china", split):
        photo[top:bottom, left:right] = 255
    monkeypatch.setattr(shift, "photos", lambda: {"china": photo, "flower": photo})
    assert (shift._grounds(split, np.random.RandomState(0), 500, 14) == 255).all()


def test_composition_is_fixed_and_differs_between_stand_ins(registry):
    shift.compose.cache_clear()
    first = {name: opened(registry, name, "val").images[:, :12, :12] for name in STAND_INS}
    shift.compose.cache_clear()
    for name, images in first.items():
        assert (opened(registry, name, "val").images[:, :12, :12] == images).all()
    assert len({images.tobytes() for images in first.values()}) == 3
