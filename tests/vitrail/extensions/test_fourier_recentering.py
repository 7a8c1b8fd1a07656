"""An image and all its shifts, by fractions as well, are moved to one place."""

import itertools

import pytest
import timm
import torch

from replication.papers.shift.degenerate_phases import constructed
from tests.vitrail.shift.devices import NoFloat64
from vitrail.extensions import fourier_recentering as harmonic
from vitrail.extensions.fourier_recentering import (
    HarmonicSwin,
    HarmonicViT,
    position,
    recentred,
    strength,
)
from vitrail.extensions.fractional_shifts import band_limited, fourier_shift
from vitrail.shift import polyphase
from vitrail.shift.geometry import roll_image

SIZE = {"img_size": 16, "patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 2}
SWIN = {
    "img_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": (1, 1),
    "num_heads": (1, 2),
    "window_size": 4,
}


WORLDS = {f"{kind}, {name}": image for (kind, name), image in constructed().items()}
OBJECT = WORLDS["one place, one object"]
EACH = pytest.mark.parametrize("image", WORLDS.values(), ids=WORLDS)
FRACTIONS = [(0.3, 0.0), (0.5, 0.5), (-7.25, 3.9), (11.01, -0.49), (5.5, 12.0)]


@EACH
def test_an_image_and_its_shifts_by_fractions_are_moved_to_one_place(image):
    expected = recentred(band_limited(image))
    for offset in FRACTIONS:
        shifted = fourier_shift(image, torch.tensor([offset], dtype=torch.float64))
        torch.testing.assert_close(recentred(shifted), expected, rtol=0, atol=1e-9)


@EACH
def test_shifts_by_whole_pixels_keep_every_bit(image):
    """But where an image repeats after a fraction of a pixel, which no world here does."""
    image = image.float()
    expected = recentred(image)
    for offset in [(1, 0), (0, 1), (7, 20), (12, 12), (13, 5)]:
        assert torch.equal(recentred(roll_image(image, torch.tensor([offset]))), expected)


@pytest.mark.parametrize(
    "name", ["one place, noise", "one place, one object", "diagonals, two, and an object"]
)
def test_the_position_moves_with_the_image(name):
    image = WORLDS[name]
    size = torch.tensor(image.shape[2:])
    for offset in torch.tensor(FRACTIONS, dtype=torch.float64):
        moved = position(fourier_shift(image, offset[None]))
        apart = (moved + offset - position(image) + size / 2) % size - size / 2
        assert apart.abs().max() < 1e-9


def test_an_object_is_moved_to_the_middle():
    blob = torch.zeros(1, 1, 24, 24, dtype=torch.float64)
    blob[0, 0, 5:8, 20:23] = 1.0  # about (6, 21)
    assert recentred(blob)[0, 0].argmax() == 12 * 24 + 12
    torch.testing.assert_close(position(blob), torch.tensor([[6.0, 21.0]], dtype=torch.float64))


def test_a_batch_is_moved_image_by_image():
    images = torch.cat([image for image in WORLDS.values() if image.shape[3] == 24])
    each = torch.cat([recentred(image[None]) for image in images])
    torch.testing.assert_close(recentred(images), each)


def test_the_remaining_positions_are_all_translations_that_two_frequencies_do_not_see():
    for a, b, c, d in [(0, 3, 3, 0), (1, 2, -3, 1), (2, 2, 2, -2), (0, 4, 6, 2), (1, 0, 0, 1)]:
        det = abs(a * d - b * c)
        grid = itertools.product(range(det), range(det))
        seen = [
            (i / det, j / det)
            for i, j in grid
            if (a * i + b * j) % det == 0 and (c * i + d * j) % det == 0
        ]
        assert harmonic._remaining(a, b, c, d) == sorted(seen)


def test_strength_is_the_share_of_the_weaker_axis():
    places = torch.arange(24, dtype=torch.float64)
    wave = torch.cos(2 * torch.pi * places / 24)
    # (1 + w)^2 is 1 + 2 w + w^2; its mean is 1.5 and its first coefficient 1.
    image = ((1 + wave)[:, None] * (1 + wave)).expand(1, 1, 24, 24)
    bare = image - image.mean()
    energy = bare.square()
    turn = torch.exp(-2j * torch.pi * places / 24)
    expected = (energy * turn).sum().abs() / energy.sum()
    torch.testing.assert_close(strength(image)[0], expected.squeeze())
    assert strength(WORLDS["diagonals, one"]).item() < 1e-12
    assert strength(WORLDS["flat along an axis, flat"]).item() == 0


def test_jitter_moves_images_in_training_alone():
    module, image = (
        harmonic.Recentred(jitter=1.0),
        OBJECT.expand(500, -1, -1, -1),
    )
    still = module.eval()(image)
    assert torch.equal(still, recentred(image))
    moved = position(module.train()(image)) - position(still)
    assert moved.std(dim=0).tolist() == pytest.approx([1, 1], rel=0.15)
    assert moved.mean(dim=0).abs().max() < 0.2


def test_it_needs_no_float64(monkeypatch):
    image = OBJECT.float()
    expected = recentred(image)
    monkeypatch.setattr(polyphase, "DEVICES_WITH_FLOAT64", ())
    with NoFloat64():
        torch.testing.assert_close(recentred(image), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "size"),
    [
        ("harmonic_vit_small_patch16_224", "vit_small_patch16_224", HarmonicViT, SIZE),
        (
            "harmonic_swin_tiny_patch4_window7_224",
            "swin_tiny_patch4_window7_224",
            HarmonicSwin,
            SWIN,
        ),
    ],
)
def test_a_harmonic_model_is_a_plain_one_that_no_shift_changes(ours, theirs, kind, size):
    torch.manual_seed(0)
    model = timm.create_model(ours, num_classes=5, **size).double().eval()
    plain = timm.create_model(theirs, num_classes=5, **size).double().eval()
    plain.load_state_dict(model.state_dict())
    images = band_limited(torch.randn(3, 3, 16, 16, dtype=torch.float64))
    offsets = torch.tensor([[0.03, 0.03], [2.5, -7.1], [4.0, 9.75]], dtype=torch.float64)
    shifted = fourier_shift(images, offsets)
    assert isinstance(model, kind)
    torch.testing.assert_close(model(shifted), model(images), rtol=0, atol=1e-9)
    assert (plain(shifted) - plain(images)).abs().max() > 1e-3
    assert torch.equal(model(images), plain(recentred(images)))
