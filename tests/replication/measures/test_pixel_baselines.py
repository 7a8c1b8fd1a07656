"""Pixel baselines, against brute force and closed forms."""

import numpy as np
import pytest
from PIL import Image

from replication.context import Context
from replication.datasets.arrays import scans
from replication.images.opening import SPLITS, build
from replication.measures import pixel_baselines as module
from replication.measures.pixel_baselines import (
    majority,
    mean_iou,
    nearest,
    of_images,
    of_masks,
    pixel_baselines,
)


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    labels = random.integers(4, size=300)
    centres = random.normal(size=(4, 12))
    pixels = (centres[labels] + 0.8 * random.normal(size=(300, 12))).astype(np.float32)
    return pixels[:200], labels[:200], pixels[200:], labels[200:]


@pytest.mark.parametrize("block", [7, 1000])
def test_neighbours_are_those_of_the_smallest_distance(rows, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    train, _, test, _ = rows
    distances = np.linalg.norm(test[:, None].astype(float) - train[None], axis=2)
    assert (nearest(train, test, 5) == np.argsort(distances, axis=1)[:, :5]).all()


def test_of_equally_many_votes_the_smallest_label_counts():
    assert majority(np.array([[2, 1, 1, 2], [0, 3, 3, 3], [2, 2, 2, 1]]), 4).tolist() == [1, 3, 2]


def test_what_is_counted_is_the_share_of_right_labels(rows):
    train, labels, test, right = rows
    found = of_images(train, labels, test, right)
    distances = np.linalg.norm(test[:, None].astype(float) - train[None], axis=2)
    order = np.argsort(distances, axis=1)
    assert found["1-NN"] == pytest.approx(100 * (labels[order[:, 0]] == right).mean())
    votes = [np.bincount(labels[near]).argmax() for near in order[:, :20]]
    assert found["20-NN"] == pytest.approx(100 * (np.array(votes) == right).mean())


def test_regression_finds_a_linear_rule_that_neighbours_miss():
    random = np.random.default_rng(1)
    pixels = random.normal(size=(900, 60)).astype(np.float32)
    labels = (pixels[:, 0] > 0).astype(int)
    found = of_images(pixels[:600], labels[:600], pixels[600:], labels[600:])
    assert found["logistic regression"] > 90 > 75 > found["1-NN"]


def test_labels_at_random_leave_every_rule_at_chance(rows):
    train, labels, test, _ = rows
    random = np.random.default_rng(2)
    many = np.concatenate([test] * 8)
    found = of_images(train, labels, many, random.integers(4, size=len(many)))
    assert all(15 < score < 35 for score in found.values())


@pytest.fixture
def scenes():
    random = np.random.default_rng(0)
    images = random.random((12, 16, 20, 3))
    red = (images[..., 0] > 0.5).astype(np.uint8)
    right = np.broadcast_to(np.arange(20) >= 10, red.shape).astype(np.uint8)
    return images, {"place": right, "colour": red, "both": red + red * right}


def test_class_by_place_is_the_most_frequent_one_of_each_pixel(scenes):
    images, masks = scenes
    train, test = masks["colour"][:9], masks["colour"][9:]
    votes = [[np.bincount(train[:, y, x]).argmax() for x in range(20)] for y in range(16)]
    found = of_masks(images[:9], train, images[9:], test)
    assert found["class by place"] == mean_iou([np.array(votes)] * 3, test)


def test_places_are_relative_to_the_size_of_an_image(scenes):
    images, masks = scenes
    wide = np.zeros((2, 16, 60, 3)), np.broadcast_to(np.arange(60) >= 30, (2, 16, 60)).astype(int)
    assert of_masks(images, masks["place"], *wide)["class by place"] == 100


def test_regression_tells_pixels_by_their_colour_and_place(scenes):
    images, masks = scenes
    found = {
        name: of_masks(images[:9], mask[:9], images[9:], mask[9:]) for name, mask in masks.items()
    }
    assert found["both"]["logistic regression"] > 80
    assert found["colour"]["logistic regression"] > 90 > found["colour"]["class by place"]


def test_pixels_that_are_not_judged_change_nothing(scenes):
    images, masks = scenes
    mask = masks["both"].copy()
    mask[:, :5] = 255
    noise = images.copy()
    noise[:, :5] = 0.5
    assert of_masks(images, mask, images, mask) == of_masks(noise, mask, noise, mask)


def test_mean_iou_is_that_of_sets_of_pixels():
    random = np.random.default_rng(3)
    predicted, masks = random.integers(4, size=(2, 5, 8, 9))
    masks[0, :3] = 255
    judged = masks != 255
    ious = [
        (judged & (predicted == label) & (masks == label)).sum()
        / (judged & ((predicted == label) | (masks == label))).sum()
        for label in range(4)
    ]
    assert mean_iou(predicted, masks) == pytest.approx(100 * np.mean(ious))


def test_of_the_tuning_part_only_held_out_training_images_are_judged(registry, tmp_path):
    context = Context("cpu", tmp_path, 100, datasets=(registry["digits"],))
    (train, labels), (test, right) = (scans(split) for split in ("fit", "held_out"))
    distances = ((test[:, None] - train[None]) ** 2).sum((2, 3))
    percent = 100 * (labels[distances.argmin(1)] == right).mean()
    found = pixel_baselines(context, part="tuning")["1-NN"]
    assert found == pytest.approx(percent, abs=0.9)  # of 8 bits a pixel; 2 of 240 images


@pytest.mark.slow
def test_images_with_masks_are_judged_by_pixel(registry, tmp_path):
    info = registry["patchwork"]
    context = Context("cpu", tmp_path, 100, datasets=(info,))
    parts = [build(info.of_part("tuning"), split, tmp_path, 100) for split in SPLITS]
    pairs = [map(part.__getitem__, range(len(part))) for part in parts]
    (images, masks), (held_out, right) = (zip(*of_part, strict=True) for of_part in pairs)
    images, held_out = ([np.asarray(image) / 255 for image in of] for of in (images, held_out))
    assert pixel_baselines(context, part="tuning") == pytest.approx(
        of_masks(images, masks, held_out, right)
    )


def test_images_of_several_sizes_are_compared_at_one(registry, tmp_path, monkeypatch):
    shades = [(Image.new("RGB", (8 + at, 9), (20 * at,) * 3), at % 2) for at in range(10)]
    splits = {"train": shades * 3, "val": shades}
    monkeypatch.setattr(module, "build", lambda info, split, *_: splits[split])
    context = Context("cpu", tmp_path, 0, datasets=(registry["flowers102"],))
    assert pixel_baselines(context)["1-NN"] == 100


def test_large_images_are_compared_at_a_small_size(registry, tmp_path, monkeypatch):
    shades = [(Image.new("RGB", (400, 300), (20 * at,) * 3), at % 2) for at in range(10)]
    monkeypatch.setattr(module, "build", lambda *_: shades)
    judged = []
    monkeypatch.setattr(module, "of_images", lambda *rows: judged.extend(rows) or {})
    pixel_baselines(Context("cpu", tmp_path, 0, datasets=(registry["flowers102"],)))
    assert [rows.shape for rows in judged[::2]] == [(10, 3 * module.SIDE**2)] * 2
