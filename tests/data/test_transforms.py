import random

import numpy as np
import pytest
import torch
from PIL import Image

from vitrine.data.transforms import eval_transform, train_transform
from vitrine.errors import VitrineError


def photo(width: int = 40, height: int = 30) -> Image.Image:
    pixels = np.random.RandomState(0).randint(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_evaluation_resizes_the_short_side_and_crops_the_centre(recipe, digits):
    made = recipe({"image_size": 28, "crop_pct": 0.7, "interpolation": "bilinear"})
    resized = photo(80, 60).resize((53, 40), Image.Resampling.BILINEAR)
    left, top = round((53 - 28) / 2), (40 - 28) // 2
    pixels = np.asarray(resized.crop((left, top, left + 28, top + 28))) / 255
    expected = torch.tensor((pixels - digits.mean) / digits.std).permute(2, 0, 1).float()
    torch.testing.assert_close(eval_transform(made, digits)(photo(80, 60)), expected)


def test_evaluation_at_another_size_gives_that_size(recipe, digits):
    assert eval_transform(recipe(), digits, image_size=48)(photo()).shape == (3, 48, 48)


@pytest.mark.parametrize("size", [0, -3])
def test_an_image_size_below_one_pixel_is_refused(recipe, digits, size):
    with pytest.raises(VitrineError, match=f"image_size is {size}; it must be at least 1"):
        eval_transform(recipe(), digits, image_size=size)


def test_inception_normalisation_maps_black_to_minus_one_and_white_to_one(recipe, digits):
    see = eval_transform(recipe({"normalization": "inception"}), digits)
    assert (see(Image.new("RGB", (8, 8), "white")) == 1).all()
    assert (see(Image.new("RGB", (8, 8), "black")) == -1).all()


def test_a_central_crop_trains_on_the_evaluation_view(recipe, digits):
    made = recipe(crop="center", hflip=1.0)
    assert torch.equal(
        train_transform(made, digits)(photo()), eval_transform(made, digits)(photo())
    )


@pytest.mark.parametrize(
    "augmentation", [{"erase_prob": 0.5}, {"auto_augment": "3a"}, {"color_jitter": 0.3}]
)
def test_a_central_crop_refuses_augmentation_that_it_would_ignore(recipe, digits, augmentation):
    (field,) = augmentation
    with pytest.raises(VitrineError, match=f"augmentation.{field} is .* crop 'center'"):
        train_transform(recipe(crop="center", **augmentation), digits)


def whole(**augmentation) -> dict:
    """Augmentation whose random crop is always the whole (square) image."""
    return {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "hflip": 0.0} | augmentation


def test_horizontal_flips_follow_their_probability(recipe, digits):
    image = photo(28, 28)
    plain = train_transform(recipe(**whole()), digits)(image)
    flipped = train_transform(recipe(**whole(hflip=1.0)), digits)(image)
    assert torch.equal(flipped, plain.flip(-1))
    torch.manual_seed(0)
    sometimes = train_transform(recipe(**whole(hflip=0.3)), digits)
    share = np.mean([not torch.equal(sometimes(image), plain) for _ in range(400)])
    assert share == pytest.approx(0.3, abs=0.07)


def test_colour_jitter_changes_colours_within_its_strength(recipe, digits):
    gray = Image.new("RGB", (28, 28), (100, 100, 100))
    plain = train_transform(recipe({"normalization": "inception"}, **whole()), digits)(gray)
    jitter = train_transform(
        recipe({"normalization": "inception"}, **whole(color_jitter=0.2)), digits
    )
    torch.manual_seed(0)
    ratios = torch.stack([((jitter(gray) + 1) / (plain + 1)).mean() for _ in range(50)])
    assert ratios.std() > 0.05
    assert ((ratios > 0.79) & (ratios < 1.21)).all()


@pytest.mark.parametrize("mode", ["pixel", "rand", "const"])
def test_erasing_comes_after_normalisation_and_fills_by_its_mode(recipe, digits, mode):
    random.seed(0)
    torch.manual_seed(0)
    see = train_transform(recipe(**whole(erase_prob=1.0, erase_mode=mode)), digits)
    constant = Image.new("RGB", (28, 28), (200, 30, 90))
    background = train_transform(recipe(**whole()), digits)(constant)[:, :1, :1]
    erased = see(constant)
    hole = (erased != background).any(0)
    assert 0.01 < hole.float().mean() < 0.4
    filling = erased[:, hole]  # (3, erased pixels)
    if mode == "const":
        assert (filling == 0).all()
    elif mode == "rand":
        assert filling.unique(dim=1).shape == (3, 1)
    else:
        assert filling.std() == pytest.approx(1.0, abs=0.2)


def test_the_number_of_erased_boxes_comes_from_the_recipe(recipe, digits):
    *_, erasing = train_transform(recipe(erase_prob=0.4, erase_count=3), digits).transforms
    assert type(erasing).__name__ == "RandomErasing"
    assert (erasing.probability, erasing.max_count) == (0.4, 3)


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "rand-m10-n8-inc1", "original", "3a"])
def test_auto_augment_policies_run_at_every_strength(recipe, digits, policy):
    see = train_transform(recipe(auto_augment=policy, color_jitter=0.3), digits)
    random.seed(0)
    for _ in range(150):
        assert see(photo(28, 28)).isfinite().all()
