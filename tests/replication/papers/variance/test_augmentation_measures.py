from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import Mixup
from torchvision.transforms.functional import normalize

from replication.context import Context
from replication.datasets.digest import images_sha256
from replication.images.photos import photo_crops
from replication.measures.photographs import centres
from replication.papers.variance import augmentation_measures
from replication.papers.variance.augmentation_measures import (
    AUGMENTATIONS,
    DEFAULT,
    augmentation_montage,
    augmentation_variance,
    beta_mixup_variance,
    cutmix_variance,
    erasing_variance,
    mixup_variance,
)
from vitrail.errors import VitrailError
from vitrail.seeding import seed_everything
from vitrail.variance.upsampling import upsample

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)


def album(count: int) -> list[Image.Image]:
    """Pieces of two photographs, each with a light of its own."""
    light = np.random.default_rng(0).uniform(0.4, 1, (count, 1, 1, 1))
    pieces = (light * photo_crops(count, 200, seed=0)).astype(np.uint8)
    return [Image.fromarray(piece) for piece in pieces]


@pytest.fixture(scope="module")
def noise():
    return augmentation_variance(CONTEXT, image_size=32, images=200, batch_size=100)


@pytest.fixture(scope="module")
def photos():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation_measures, "photographs", lambda context, count: album(count))
        context = replace(CONTEXT, datasets=("pieces",))
        return augmentation_variance(context, image_size=32, images=200, batch_size=100)


@pytest.mark.parametrize("quantity", ["pooled", "within"])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_white_noise_varies_as_the_propositions_say(noise, augmentation, quantity):
    """variance, Propositions 1 to 3: of independent values everything holds."""
    measured, theory = (noise[f"{augmentation}/{quantity}{end}"] for end in ("", " theory"))
    drawn = augmentation.startswith("mixup")  # by 200 lambdas
    assert measured == pytest.approx(theory, abs=0.06 if drawn else 0.03)


def test_the_words_of_table_1_are_right_of_white_noise(noise):
    """Table 1, and variance, Sec. "Variance Shift Due to Mixup", Proposition 1, Proposition 2,
    Sec. "Variance Shift Due to Random Erasing", Proposition 3.
    """
    for augmentation in ("nearest stored", "cutmix default", "patches default", "pixel default"):
        assert noise[f"{augmentation}/within"] == pytest.approx(1, abs=0.01)
    for augmentation in ("bilinear stored", "bicubic stored", "mixup 0.8 default",
                         "const default"):  # fmt: skip
        assert noise[f"{augmentation}/within"] < 0.9
    assert noise["pixel inception/within"] > 1.5
    assert noise["lambda 1.5 default/within"] == pytest.approx(2.5, abs=0.02)


@pytest.mark.parametrize("augmentation", ["shuffle", "duplicate"])
@pytest.mark.parametrize("quantity", ["pooled", "within"])
def test_order_and_repetition_do_not_change_a_variance(photos, augmentation, quantity):
    """variance, Sec. "Properties of Variance"."""
    assert photos[f"{augmentation} default/{quantity}"] == pytest.approx(1, abs=1e-6)
    assert photos[f"{augmentation} default/mean shift"] == pytest.approx(0, abs=1e-6)


def test_images_side_by_side_vary_as_two_means_say(photos):
    """variance, Sec. "Properties of Variance", and Lemma 1, which needs equal means."""
    joined = photos["concatenate default/within"]
    assert joined == pytest.approx(photos["concatenate default/within theory"], abs=1e-5)
    assert photos["concatenate default/pooled"] == pytest.approx(1, abs=1e-5) != joined


def test_cutmix_keeps_the_variance_of_a_batch_and_raises_that_of_an_image(photos):
    """variance, Proposition 2: images of unequal light have unequal means."""
    for augmentation in ("cutmix", "patches"):
        assert photos[f"{augmentation} default/pooled"] == pytest.approx(1, abs=0.03)
        within, theory = (photos[f"{augmentation} default/within{end}"] for end in ("", " theory"))
        assert 1.1 < within == pytest.approx(theory, rel=0.15)


def test_photographs_hardly_lose_by_interpolation(photos):
    """variance, Theorem 1: its k is that of white noise."""
    assert 0.94 < photos["bicubic stored/within"] < 1.02
    assert photos["bicubic stored/within theory"] < 0.75


def test_stored_photographs_are_upsampled_and_not_crops_that_were_enlarged_already(photos):
    """variance, Theorem 1."""
    stored = centres(album(200), 32)
    kept = upsample(stored, (64, 64), "bilinear").var() / stored.var()
    for quantity in ("pooled", "within"):
        assert photos[f"bilinear stored/{quantity}"] == pytest.approx(kept.item(), abs=0.03)


def test_images_are_measured_before_anything_is_done_to_them(photos, noise):
    """White noise of ImageNet's statistics is standardised by them; photographs are not exactly."""
    for quantity in ("pooled", "within"):
        assert noise[f"before default/{quantity}"] == pytest.approx(1, abs=0.01)
        assert noise[f"before inception/{quantity}"] == pytest.approx(0.225**2 * 4, abs=0.02)
    stored = normalize(centres(album(200), 32), *DEFAULT)
    assert photos["before stored/pooled"] == pytest.approx(stored.var().item(), rel=1e-3)
    assert photos["before stored/within"] == pytest.approx(
        stored.flatten(1).var(1).mean().item(), rel=1e-3
    )
    assert photos["before stored/mean shift"] == pytest.approx(stored.mean().item(), abs=1e-4)


@pytest.mark.parametrize("normalisation", ["own", "default", "inception"])
@pytest.mark.parametrize("mode", ["const", "rand", "single", "pixel"])
def test_random_erasing_of_photographs_agrees_with_its_theory(photos, mode, normalisation):
    """The theory takes no notice of which part of an image is erased."""
    for quantity in ("pooled", "within"):
        name = f"{mode} {normalisation}/{quantity}"
        assert photos[name] == pytest.approx(photos[f"{name} theory"], rel=0.12)


def test_the_mode_of_erasing_shows_within_an_image_and_not_in_a_batch(photos):
    rand, pixel = (photos[f"{mode} own/pooled theory"] for mode in ("rand", "pixel"))
    assert rand == pytest.approx(pixel, abs=1e-3)
    assert photos["rand own/within theory"] < photos["pixel own/within theory"] - 0.01


def test_one_value_for_a_block_loses_more_than_a_value_for_each_channel(noise):
    """variance, Proposition 3, whose rand mode has one value; timm's has three."""
    single, rand, pixel = (noise[f"{mode} own/within"] for mode in ("single", "rand", "pixel"))
    assert single < rand - 0.01 < pixel - 0.02
    assert noise["single own/pooled"] == pytest.approx(1, abs=0.03)


def test_a_training_crop_is_compared_with_the_tests_image_of_its_photograph(photos):
    """variance, Eq. 1 and 3: a test image is cut from one that is larger by 1/0.9."""
    tested = centres(album(200), 32, crop_pct=0.9)
    crop = photos["before default/within"]
    before = normalize(tested, *DEFAULT).flatten(1).var(1, correction=0).mean().item()
    assert photos["training crop default/within"] == pytest.approx(crop / before, rel=1e-3)


def test_measured_photographs_are_named(photos, noise):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augmentation_measures, "photographs", lambda context, count: album(count))
        taken = augmentation_measures._part(replace(CONTEXT, datasets=("pieces",)), 200, 1)
    assert photos["photographs"] == len(taken) == 200
    assert photos["sha256"] == images_sha256((piece, b"") for piece in taken)
    assert not {"photographs", "sha256"} & noise.keys()


def test_seeds_take_parts_of_the_photographs_and_pairs_are_drawn(monkeypatch):
    """Photographs may be stored by class, so images that are mixed must not be neighbours."""
    monkeypatch.setattr(augmentation_measures, "photographs", lambda context, count: range(count))
    contexts = [replace(CONTEXT, seed=seed, datasets=("numbers",)) for seed in range(6)]
    parts = [augmentation_measures._part(context, 100, 5) for context in contexts[:5]]
    assert sorted(number for part in parts for number in part) == [*range(500)]
    for part in parts:
        distances = np.abs(np.diff(part))
        assert distances.mean() == pytest.approx(500 / 3, rel=0.25)  # of two numbers at random
    assert parts[0] == augmentation_measures._part(contexts[0], 100, 5)
    with pytest.raises(VitrailError, match="parts: 6"):
        augmentation_measures._part(contexts[5], 100, 5)


def test_the_same_seed_measures_the_same_and_another_does_not():
    first, second, other = (
        augmentation_variance(replace(CONTEXT, seed=seed), image_size=16, images=8, batch_size=4)
        for seed in (0, 0, 1)
    )
    assert first == second != other


def test_batches_hold_as_many_images_as_are_asked_for_and_augmentations_leave_them():
    images = torch.randn(4, 3, 32, 32)
    kept = images.clone()
    for augment in AUGMENTATIONS.values():
        seed_everything("test", 0)
        assert len(augment(images)[0]) == 4
        assert torch.equal(images, kept)


def test_the_montage_shows_standardised_photos_and_what_becomes_of_them():
    values = augmentation_montage(CONTEXT, image_size=72)
    assert values["first image/variance"] == pytest.approx(1, abs=0.01)
    assert values["Mixup/variance"] < 0.8 < values["Cutmix/variance"]
    pixels = np.asarray(values["pixels erasing const"])
    assert pixels.shape == (72, 72, 3)
    assert (pixels == 128).all(axis=-1).mean() > 0.15


def correlated(rho: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, other = torch.randn(2, 400_000, generator=generator)
    return first, rho * first + (1 - rho**2) ** 0.5 * other


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.7])
@pytest.mark.parametrize("lam", [0.1, 0.5, 0.8])
def test_mixup_has_its_variance_at_any_correlation(lam, rho):
    """variance, Proposition 1."""
    first, second = correlated(rho)
    mixed = lam * first + (1 - lam) * second
    assert mixed.var().item() == pytest.approx(mixup_variance(lam, rho), rel=0.01)


def test_mixup_loses_variance_at_every_lambda_inside_the_unit_interval_and_gains_outside():
    """variance, Proposition 1."""
    lam = torch.linspace(0, 1, 101)[1:-1]
    assert (mixup_variance(lam) < 1).all()
    assert mixup_variance(0.0) == mixup_variance(1.0) == 1
    outside = torch.tensor([-0.5, -0.01, 1.01, 1.5])
    assert (mixup_variance(outside) > 1).all()


def test_mixup_of_equal_images_keeps_the_variance():
    assert mixup_variance(0.3, rho=1.0) == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.2, 0.4, 0.8, 1.0])
def test_mixups_mean_variance_is_that_of_timms_draws(alpha):
    np.random.seed(0)
    lam, _ = Mixup(mixup_alpha=alpha)._params_per_elem(100_000)
    assert mixup_variance(lam).mean() == pytest.approx(beta_mixup_variance(alpha), abs=0.005)
    assert beta_mixup_variance(alpha) == pytest.approx((alpha + 1) / (2 * alpha + 1))


def test_cutmix_of_images_with_unequal_means_gains_variance():
    """variance, Proposition 2."""
    first, second = torch.randn(2, 200_000)
    mixed = torch.cat([first[:60_000], 2 + second[60_000:]])
    assert mixed.var().item() == pytest.approx(cutmix_variance(0.7, 2.0, 1.0), rel=0.02)
    assert cutmix_variance(0.7, 0.0, 1.0) == 1


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (-0.3, 0.5), (1.0, 2.0)])
@pytest.mark.parametrize("mode", ["pixel", "const"])
def test_erasing_has_the_variance_of_the_concatenation(mean, deviation, mode):
    """variance, Lemma 1, Proposition 3."""
    generator = torch.Generator().manual_seed(0)
    image = mean + deviation * torch.randn(400_000, generator=generator)
    noise = torch.randn(100_000, generator=generator) if mode == "pixel" else torch.zeros(100_000)
    image[:100_000] = noise
    expected = erasing_variance(0.25, mean, deviation**2, power=float(mode == "pixel"))
    assert image.var().item() / deviation**2 == pytest.approx(expected, rel=0.01)


def test_one_value_for_a_whole_block_loses_the_variance_of_the_blocks_mean():
    """Mean over many draws of ``rand``: one normal value for each of three channels."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2000, 3, 100, generator=generator)
    image[:, :, :40] = torch.randn(2000, 3, 1, generator=generator)
    within = image.flatten(1).var(1, correction=0).mean().item()
    assert within == pytest.approx(erasing_variance(0.4, 0.0, 1.0, 1.0, shared=1 / 3), rel=0.02)


def test_erasing_standardised_images_by_pixels_keeps_the_variance():
    """variance, Proposition 3."""
    for fraction in (0.02, 0.25, 1 / 3):
        assert erasing_variance(fraction, 0.0, 1.0, power=1.0) == pytest.approx(1)
        assert erasing_variance(fraction, 0.0, 1.0, power=0.0) < 1
        assert erasing_variance(fraction, -0.1, 0.27, power=1.0) > 1
