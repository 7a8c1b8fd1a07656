import random

import numpy as np
import pytest
import torch
from PIL import Image

from replication.images.transforms import normalization
from replication.papers.octic.dinov2.crops import (
    MultiCrop,
    block_mask,
    by_view,
    masks,
    quarter_turn,
)


def test_half_of_the_crops_are_masked_by_shares_spread_over_the_ratio():
    """DINOv2's ViT-L: 64 crops of 14 x 14 patches."""
    random.seed(0)
    drawn = masks(64, (14, 14), 0.5, (0.1, 0.5))
    assert drawn.shape == (64, 196)
    counts = sorted(drawn.sum(1).tolist())
    assert counts[:32] == [0] * 32
    bounds = np.linspace(0.1, 0.5, 33)
    for count, most in zip(counts[32:], bounds[1:], strict=True):
        assert 0 < count <= int(196 * most)
    assert sum(counts) > 0.75 * sum(196 * (bounds[1:] + bounds[:-1]) / 2)


def test_an_odd_number_of_crops_is_rounded_down():
    assert (masks(7, (4, 4), 0.5, (0.1, 0.5)).any(1)).sum() <= 3


def test_which_crops_are_masked_is_random():
    random.seed(0)
    masked = {tuple(masks(6, (8, 8), 0.5, (0.3, 0.5)).any(1).tolist()) for _ in range(20)}
    assert len(masked) > 5


@pytest.mark.parametrize("patches", [0, 1, 5, 20, 98])
def test_a_mask_never_covers_more_patches_than_it_may(patches):
    random.seed(0)
    sizes = [int(block_mask((14, 14), patches).sum()) for _ in range(100)]
    assert max(sizes) <= patches
    assert patches < 5 or np.mean(sizes) > 0.8 * patches


def test_a_first_block_is_a_rectangle_of_its_aspect_ratio():
    random.seed(0)
    for _ in range(50):
        mask = block_mask((14, 14), 6)
        rows, columns = mask.any(1), mask.any(0)
        if (mask == np.outer(rows, columns)).all() and mask.any():
            height, width = rows.sum(), columns.sum()
            assert 1 / 5 <= height / width <= 5


def test_crops_come_view_by_view():
    crops = torch.arange(6).view(3, 2, 1, 1, 1)  # image i's views are 2i and 2i + 1
    assert by_view(crops).flatten().tolist() == [0, 2, 4, 1, 3, 5]


def test_an_image_becomes_global_and_local_crops(recipe, info):
    image = Image.fromarray(np.random.RandomState(0).randint(0, 255, (20, 24, 3), dtype=np.uint8))
    first, local = MultiCrop(recipe, info)(image)
    assert (first.shape, local.shape) == ((2, 3, 16, 16), (2, 3, 8, 8))
    assert not torch.equal(first[0], first[1])


def test_without_local_crops_there_are_two_global_ones(make_recipe, info):
    recipe = make_recipe({"crops": {"local_count": 0}})
    (crops,) = MultiCrop(recipe, info)(Image.new("RGB", (20, 20)))
    assert crops.shape == (2, 3, 16, 16)


def test_images_are_squashed_first_where_a_side_is_given(make_recipe, info):
    """Then the whole of any image is a crop of it, which keeps no proportions."""
    whole = {"global_scale": [1, 1], "ratio": [1, 1], "local_count": 0, "resize": 16}
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 30:] = 255
    (crops,) = MultiCrop(make_recipe({"crops": whole}), info)(Image.fromarray(wide))
    first = crops[0] > 0.5
    assert first[:, :, 9:].all()
    assert not first[:, :, :7].any()


def test_blur_and_solarisation_are_each_views_own(make_recipe, info):
    """Only the second global crop is solarised, and here only local ones are blurred."""
    still = {"global_scale": [1, 1], "local_scale": [1, 1], "ratio": [1, 1], "local_size": 16}
    changes = {**still, "blur_prob": [0, 0, 1], "blur_sigma": [2, 2], "solarize_prob": 1}
    image = Image.fromarray(np.random.RandomState(0).randint(0, 255, (16, 16, 3), dtype=np.uint8))
    (plain, solarised), (blurred, _) = MultiCrop(make_recipe({"crops": changes}), info)(image)
    mean, std = normalization(info, "dataset")
    pixels = (plain[0] * std[0] + mean[0]) * 255
    inverted = (solarised[0] * std[0] + mean[0]) * 255
    bright = pixels >= 127.5
    assert torch.allclose(inverted[bright], 255 - pixels[bright], atol=1e-3)
    assert torch.allclose(inverted[~bright], pixels[~bright], atol=1e-3)
    assert blurred.std() < plain.std() / 2


def test_a_quarter_turn_keeps_every_pixel():
    torch.manual_seed(0)
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    turned = {np.asarray(quarter_turn(image)).tobytes() for _ in range(40)}
    assert turned == {np.rot90(np.asarray(image), k).tobytes() for k in range(4)}
