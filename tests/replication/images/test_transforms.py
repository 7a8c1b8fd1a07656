import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import RandomCrop

from replication.images.transforms import (
    SteppedCrop,
    eval_transform,
    normalization,
    train_transform,
)
from vitrail.errors import VitrailError


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
    with pytest.raises(VitrailError, match=f"image_size is {size}; it must be at least 1"):
        eval_transform(recipe(), digits, image_size=size)


def test_inception_normalisation_maps_black_to_minus_one_and_white_to_one(recipe, digits):
    see = eval_transform(recipe({"normalization": "inception"}), digits)
    assert (see(Image.new("RGB", (8, 8), "white")) == 1).all()
    assert (see(Image.new("RGB", (8, 8), "black")) == -1).all()


def test_an_evaluation_margin_keeps_the_pixels_around_the_central_crop(recipe, digits):
    made = recipe({"crop_pct": 0.7})
    wide = eval_transform(made, digits, margin=12)(photo(80, 60))
    assert wide.shape == (3, 40, 40)
    assert torch.equal(wide[:, 6:-6, 6:-6], eval_transform(made, digits)(photo(80, 60)))


def test_a_margin_beyond_the_resized_image_is_refused(recipe, digits):
    assert eval_transform(recipe({"crop_pct": 0.7}), digits, margin=12)
    sentence = "crop_pct is 0.7, which resizes images to 40 pixels.* at most 0.682"
    with pytest.raises(VitrailError, match=sentence):
        eval_transform(recipe({"crop_pct": 0.7}), digits, margin=13)
    assert eval_transform(recipe({"crop_pct": 0.682}), digits, margin=13)


def test_a_squashed_evaluation_shows_all_of_an_oblong_image(recipe, digits):
    made = recipe({"crop_pct": 1.0, "crop_mode": "squash"})
    image = photo(80, 60)
    whole = image.resize((28, 28), Image.Resampling.BICUBIC)
    assert torch.equal(eval_transform(made, digits)(image), eval_transform(made, digits)(whole))
    center = recipe({"crop_pct": 1.0})
    assert not torch.equal(
        eval_transform(made, digits)(image), eval_transform(center, digits)(image)
    )


def test_a_margin_of_a_bordered_image_is_padded_as_its_own_view_is(recipe, digits):
    """The long side of 80 x 60 is resized to 40, and rows above and below have the mean, 0."""
    data = {**recipe({"crop_pct": 0.7}).data.model_dump(), "crop_mode": "border"}
    made = SimpleNamespace(data=SimpleNamespace(**data))
    wide = eval_transform(made, digits, margin=12)(photo(80, 60))
    assert wide.shape == (3, 40, 40)
    own = eval_transform(made, digits)(photo(80, 60))
    torch.testing.assert_close(wide[:, 6:-6, 6:-6], own)
    assert wide[:, [0, -1]].abs().max() < 0.01
    assert wide[:, 5:-5].abs().amax(dim=(0, 2)).min() > 0.5


def test_a_squashed_evaluation_takes_a_margin_like_another(recipe, digits):
    made = recipe({"crop_pct": 0.7, "crop_mode": "squash"})
    assert eval_transform(made, digits, margin=12)(photo(80, 60)).shape == (3, 40, 40)
    with pytest.raises(VitrailError, match="resizes images to 40 pixels"):
        eval_transform(made, digits, margin=13)


@pytest.mark.parametrize(("size", "crop_pct", "resized"), [(224, 0.875, 256), (256, 0.8767, 292)])
def test_a_central_crop_resizes_as_the_evaluation_does(recipe, digits, size, crop_pct, resized):
    made = recipe({"image_size": size, "crop_pct": crop_pct}, crop="center")
    for transform in (train_transform(made, digits), eval_transform(made, digits)):
        resize, crop, *_ = transform.transforms
        assert (resize.size, crop.size) == (resized, (size, size))
        assert transform(photo(40, 30)).shape == (3, size, size)


def test_a_central_crop_without_augmentation_trains_on_the_evaluation_view(recipe, digits):
    made = recipe(crop="center", hflip=0.0)
    assert torch.equal(
        train_transform(made, digits)(photo()), eval_transform(made, digits)(photo())
    )


@pytest.mark.parametrize(
    "augmentation",
    [{"hflip": 0.5}, {"erase_prob": 0.9}, {"auto_augment": "rand-m9"}, {"color_jitter": 0.3}],
)
def test_a_central_crop_is_augmented_by_the_very_steps_that_follow_a_random_crop(
    recipe, digits, augmentation
):
    center, randomly = (
        train_transform(recipe(crop=crop, **augmentation), digits)
        for crop in ("center", "random_resized")
    )
    assert repr(center.transforms[2:]) == repr(randomly.transforms[1:])
    torch.manual_seed(0)
    assert len({center(photo()).sum().item() for _ in range(12)}) > 1


def test_an_auto_augment_of_the_central_crop_fills_with_the_mean_and_the_recipes_interpolation(
    recipe, digits
):
    made = recipe({"interpolation": "bilinear"}, crop="center", auto_augment="rand-m9-mstd0.5-inc1")
    (augment,) = (
        step
        for step in train_transform(made, digits).transforms
        if type(step).__name__ == "RandAugment"
    )
    for operation in augment.ops:
        assert operation.kwargs["fillcolor"] == (78, 78, 78)  # round(255 * 0.30527)
        assert operation.kwargs["resample"] == Image.Resampling.BILINEAR


def test_circular_shifts_roll_the_normalised_image_by_every_offset_up_to_their_limit(
    recipe, digits
):
    plain = train_transform(recipe(crop="center", hflip=0.0), digits)(photo())
    see = train_transform(recipe(crop="center", hflip=0.0, circular_shift=1), digits)
    rolled = {
        (rows, columns): plain.roll((rows, columns), (1, 2))
        for rows in (-1, 0, 1)
        for columns in (-1, 0, 1)
    }
    torch.manual_seed(0)
    seen = set()
    for _ in range(120):
        view = see(photo())
        (offset,) = (offset for offset, image in rolled.items() if torch.equal(image, view))
        seen.add(offset)
    assert seen == rolled.keys()


def test_circular_shifts_come_after_erasing(recipe, digits):
    made = recipe(crop="center", erase_prob=1.0, circular_shift=4)
    names = [type(step).__name__ for step in train_transform(made, digits).transforms]
    assert names[-2:] == ["RandomErasing", "CircularShift"]


@pytest.mark.parametrize("step", [1, 4])
def test_places_of_a_random_crop_are_steps_apart_and_else_torchvisions(step):
    image = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    ours, theirs = SteppedCrop(16, 4, step), RandomCrop(16, padding=4)
    torch.manual_seed(0)
    seen = [ours(image).tobytes() for _ in range(60)]
    torch.manual_seed(0)
    assert (seen == [theirs(image).tobytes() for _ in range(60)]) == (step == 1)
    if step == 4:
        padded = np.pad(np.asarray(image), 4)
        places = [(y, x) for y in (0, 4, 8) for x in (0, 4, 8)]
        assert set(seen) == {padded[y : y + 16, x : x + 16].tobytes() for y, x in places}


def test_a_random_crop_moves_the_evaluation_view_by_up_to_its_padding_and_fills_with_black(
    recipe, digits
):
    data = {"image_size": 8, "crop_pct": 1.0}
    image = photo(8, 8)
    see = train_transform(recipe(data, crop="random", crop_padding=1, hflip=0.0), digits)
    seen_by_evaluation = eval_transform(recipe(data), digits)
    framed = Image.new("RGB", (10, 10))
    framed.paste(image, (1, 1))
    crops = {
        (left, top): seen_by_evaluation(framed.crop((left, top, left + 8, top + 8)))
        for left in range(3)
        for top in range(3)
    }
    torch.manual_seed(0)
    seen = set()
    for _ in range(120):
        view = see(image)
        (place,) = (place for place, crop in crops.items() if torch.equal(crop, view))
        seen.add(place)
    assert seen == crops.keys()


def test_a_random_crop_is_of_the_resized_image(recipe, digits):
    see = train_transform(recipe({"crop_pct": 1.0}, crop="random"), digits)
    names = [type(step).__name__ for step in see.transforms]
    assert names[:4] == ["Resize", "CenterCrop", "SteppedCrop", "RandomHorizontalFlip"]
    assert see(photo(80, 60)).shape == (3, 28, 28)


def test_without_normalisation_pixels_stay_and_erased_ones_are_black(recipe, digits):
    made = recipe(
        {"normalization": "none", "crop_pct": 1.0},
        **whole(erase_prob=1.0, erase_mode="const"),
    )
    white = Image.new("RGB", (28, 28), "white")
    assert (eval_transform(made, digits)(white) == 1).all()
    torch.manual_seed(0)
    random.seed(0)
    view = train_transform(made, digits)(white)
    assert view.unique().tolist() == [0, 1]
    normalised = recipe({"crop_pct": 1.0}, **whole(erase_prob=1.0, erase_mode="const"))
    black = eval_transform(normalised, digits)(Image.new("RGB", (28, 28))).amin()
    assert train_transform(normalised, digits)(white).amin() == 0 > black  # the mean, not black


def test_what_is_resized_last_is_augmented_cropped_and_flipped_as_it_is_stored(recipe, digits):
    data = {"image_size": 8, "crop_pct": 1.0, "crop_mode": "squash"}
    image = photo(40, 32)
    last = recipe(data, crop="random", crop_padding=2, hflip=0.0, resize_last=True)
    torch.manual_seed(0)
    views = [train_transform(last, digits)(image) for _ in range(20)]
    pixels = np.pad(np.asarray(image), ((2, 2), (2, 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (8, 8), axis=(0, 1))
    stored = (np.asarray(windows, dtype=np.float64) / 255).transpose(0, 1, 3, 4, 2)
    for view in views:  # eight of the 32 rows, where else the whole image is resized to eight
        shown = view.permute(1, 2, 0).numpy() * digits.std + digits.mean
        assert np.abs(stored - shown).max(axis=(2, 3, 4)).min() < 1e-6

    made = recipe(data, crop="center", hflip=0.5, vflip=0.5, auto_augment=POLICY, resize_last=True)
    names = [type(step).__name__ for step in train_transform(made, digits).transforms]
    flips = ["RandomHorizontalFlip", "RandomVerticalFlip"]
    assert names[:5] == ["RandAugment", *flips, "Resize", "CenterCrop"]


def test_two_random_crops_reach_twice_as_far(recipe, digits):
    data, dot = {"image_size": 9, "crop_pct": 1.0}, Image.new("RGB", (9, 9))
    dot.putpixel((4, 4), (255, 255, 255))
    farthest = {}
    for count in (1, 2):
        made = recipe(data, crop="random", crop_padding=2, crop_count=count, hflip=0.0)
        see = train_transform(made, digits)
        torch.manual_seed(0)
        places = [see(dot)[0].argmax().item() for _ in range(300)]
        farthest[count] = max(abs(place // 9 - 4) for place in places)
    assert farthest == {1: 2, 2: 4}


POLICY = "rand-m9-mstd0.5-inc1"


def operations(transform) -> list[str]:
    """The names of the operations of a transform's RandAugment."""
    (augment,) = (s for s in transform.transforms if type(s).__name__ == "RandAugment")
    return [operation.name for operation in augment.ops]


def test_rand_augment_without_spatial_operations_lacks_just_those_that_move_pixels(recipe, digits):
    everything, restricted = (
        operations(
            train_transform(recipe(auto_augment=POLICY, auto_augment_spatial=spatial), digits)
        )
        for spatial in (True, False)
    )
    assert len(everything) == 15
    assert [name for name in everything if name not in restricted] == [
        "Rotate",
        "ShearX",
        "ShearY",
        "TranslateXRel",
        "TranslateYRel",
    ]
    assert len(restricted) == 10


@pytest.mark.parametrize("spatial", [True, False])
def test_only_spatial_operations_move_a_pixel(recipe, digits, spatial):
    """Sharpening spreads it to its neighbours, and twice to theirs."""
    image = Image.new("RGB", (28, 28), (90, 90, 90))
    image.putpixel((20, 6), (255, 255, 255))
    made = recipe(**whole(auto_augment=POLICY, auto_augment_spatial=spatial))
    see = train_transform(made, digits)
    random.seed(0)
    np.random.seed(0)
    farthest = 0
    for _ in range(200):
        view = see(image)
        changed = (view != view[:, 14:15, :1]).any(0).nonzero()
        farthest = max(farthest, *(changed - torch.tensor([6, 20])).abs().flatten().tolist(), 0)
    assert (farthest > 2) == spatial


def whole(**augmentation) -> dict:
    """Augmentation whose random crop is always the whole (square) image."""
    return {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "hflip": 0.0} | augmentation


@pytest.mark.parametrize(("flip", "axis"), [("hflip", -1), ("vflip", -2)])
def test_flips_follow_their_probability(recipe, digits, flip, axis):
    image = photo(28, 28)
    plain = train_transform(recipe(**whole()), digits)(image)
    flipped = train_transform(recipe(**whole(**{flip: 1.0})), digits)(image)
    assert torch.equal(flipped, plain.flip(axis))
    torch.manual_seed(0)
    sometimes = train_transform(recipe(**whole(**{flip: 0.3})), digits)
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


def test_erasing_takes_its_share_of_the_image_at_its_rate(recipe, digits):
    see = train_transform(
        recipe(**whole(erase_prob=0.8, erase_mode="const", erase_scale=(0.02, 0.25))), digits
    )
    random.seed(0)
    image = Image.new("RGB", (28, 28), "white")
    shares = np.array([(see(image) == 0).all(0).float().mean().item() for _ in range(400)])
    erased = shares[shares > 0]
    assert len(erased) / 400 == pytest.approx(0.8, abs=0.06)
    assert erased.mean() == pytest.approx((0.02 + 0.25) / 2, abs=0.015)
    assert 0.01 < erased.min() < 0.04  # whole pixels
    assert 0.22 < erased.max() < 0.27


def test_erasing_unless_told_otherwise_takes_timms_share(recipe, digits):
    (erasing,) = (
        step
        for step in train_transform(recipe(erase_prob=0.5), digits).transforms
        if type(step).__name__ == "RandomErasing"
    )
    timms = type(erasing)()
    assert (erasing.min_area, erasing.max_area) == (timms.min_area, timms.max_area)


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "rand-m10-n8-inc1", "original", "3a"])
def test_auto_augment_policies_run_at_every_strength(recipe, digits, policy):
    see = train_transform(recipe(auto_augment=policy, color_jitter=0.3), digits)
    random.seed(0)
    for _ in range(150):
        assert see(photo(28, 28)).isfinite().all()


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_normalization_is_the_datasets_own_or_inceptions(registry):
    assert normalization(registry["imagenet"], "dataset") == IMAGENET
    assert normalization(registry["imagenet"], "inception") == ((0.5,) * 3, (0.5,) * 3)
