import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset
from torchvision.transforms import Compose

from replication.images import caching as keeping
from replication.images.caching import KeptSamples, split
from replication.images.loading import TrainingSamples
from replication.images.opening import build
from replication.images.transforms import train_transform

CENTER = {"crop": "center", "hflip": 0.0}
AUGMENTED = {
    "fixed": CENTER,
    "flipped": {"crop": "center", "hflip": 0.5, "vflip": 0.5},
    "cropped": {"crop": "random", "crop_padding": 3, "hflip": 0.5},
    "cropped by patch": {"crop": "random", "crop_padding": 4, "crop_step": 4, "hflip": 0.0},
    "erased": CENTER | {"erase_prob": 0.7},
    "flipped, erased, shifted": {
        "crop": "random",
        "hflip": 0.5,
        "erase_prob": 0.7,
        "erase_mode": "rand",
        "circular_shift": 5,
    },
    "jittered": {"crop": "center", "hflip": 0.5, "color_jitter": 0.4},
    "resized": {"crop": "random_resized", "hflip": 0.5, "vflip": 0.5},
    "resized, erased": {"crop": "random_resized", "hflip": 0.5, "erase_prob": 0.7},
    "augmented": {"crop": "random_resized", "auto_augment": "rand-m9-mstd0.5-inc1"},
}
KEYS = [(epoch, index) for epoch in range(3) for index in (4, 17, 2, 9, 17, 4)]


@pytest.fixture(scope="module")
def images(digits):
    return Subset(build(digits, "train", Path("nowhere")), range(20))


def halves(samples):
    return [*samples.__getitems__(KEYS[:7]), *samples.__getitems__(KEYS[7:])]


@pytest.mark.parametrize("augmentation", AUGMENTED.values(), ids=AUGMENTED)
@pytest.mark.parametrize(
    ("room", "repeats"), [(2**28, 2), (0, 1)], ids=["kept", "too large to keep"]
)
def test_kept_samples_are_bit_for_bit_those_of_the_plain_statement(
    recipe, digits, images, augmentation, room, repeats, monkeypatch
):
    monkeypatch.setattr(keeping, "KEPT_BYTES", room)
    see = train_transform(recipe(**augmentation), digits)
    plain = TrainingSamples(images, see, seed=5, repeats=repeats)
    kept = KeptSamples(images, see, seed=5, repeats=repeats)
    for _ in range(2):  # the second time all images are kept
        for (view, label), (expected, own) in zip(halves(kept), halves(plain), strict=True):
            assert torch.equal(view, expected)
            assert label == own
    assert len(kept.kept) == (4 if room else 0)


def test_fixed_steps_are_taken_once_for_all_epochs(recipe, digits, images):
    see, made = train_transform(recipe(crop="center", hflip=0.5), digits), []
    first, *others = see.transforms

    class Counted(type(first)):
        def forward(self, image):
            made.append(image)
            return super().forward(image)

    counted = Counted(first.size, first.interpolation)
    samples = KeptSamples(images, Compose([counted, *others]), seed=5)
    for _ in range(2):
        for (view, _), (expected, _) in zip(
            halves(samples), halves(TrainingSamples(images, see, seed=5)), strict=True
        ):
            assert torch.equal(view, expected)
    assert len(made) == len(samples.kept) == 4


def names(steps):
    return [type(step).__name__ for step in steps]


def test_only_crops_and_flips_let_fixed_steps_pass(recipe, digits):
    def parts(**augmentation):
        return [*map(names, split(train_transform(recipe(**augmentation), digits)))]

    crop, tensor = ["Resize", "CenterCrop"], ["MaybeToTensor", "Normalize"]
    flip = "RandomHorizontalFlip"
    assert parts(crop="center", hflip=0.0) == [[*crop, *tensor], []]
    assert parts(crop="random", hflip=0.5, erase_prob=0.5) == [
        [*crop, "Pad", *tensor],
        ["Cut", flip, "RandomErasing"],
    ]
    assert parts(crop="center", hflip=0.5, color_jitter=0.4) == [
        crop,
        [flip, "ColorJitter", *tensor],
    ]
    assert parts(crop="random_resized", hflip=0.0) == [
        [],
        ["RandomResizedCropAndInterpolation", *tensor],
    ]


def test_any_callable_is_a_transform_that_may_draw(images):
    def see(image):
        return torch.from_numpy(np.asarray(image).copy()) + random.random()

    plain, kept = TrainingSamples(images, see, seed=1), KeptSamples(images, see, seed=1)
    for (view, _), (expected, _) in zip(halves(kept), halves(plain), strict=True):
        assert torch.equal(view, expected)
    assert isinstance(kept.kept[4][0], Image.Image)


def test_drawing_leaves_the_global_generators_untouched(recipe, digits, images):
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    halves(KeptSamples(images, train_transform(recipe(**AUGMENTED["erased"]), digits), seed=5))
    assert states() == before
