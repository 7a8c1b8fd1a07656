from pathlib import Path

import numpy as np
import pytest

from replication.datasets import scenes
from replication.datasets.arrays import Digits
from replication.images.masks import IGNORED
from replication.images.opening import SPLITS, build


@pytest.fixture(scope="module")
def composed():
    return {split: scenes.scenes(Path(), split).scenes for split in SPLITS}


def test_every_class_has_a_colour_of_its_own(registry):
    assert len(scenes.CLASSES) == registry["scenes"].classes == 14
    assert len(set(scenes.PALETTE)) == len(scenes.PALETTE) == 14


def test_a_dataset_has_the_scenes_as_images_and_classes(registry, composed):
    for split in SPLITS:
        dataset = build(registry["scenes"], split, Path())
        assert len(dataset) == len(composed[split])
        for index in range(0, len(dataset), 10):
            (image, mask), (pixels, stored) = dataset[index], composed[split][index]
            assert (np.asarray(image) == pixels).all()
            assert (mask[stored > 0] == stored[stored > 0] - 1).all()
            assert (mask[stored == scenes.UNLABELLED] == IGNORED).all()


def test_a_seed_draws_the_same_scenes_each_time_and_others_than_the_next(registry):
    first, again, other = (
        [pixels.tobytes() for pixels, _ in build(registry["scenes"], "val", Path(), seed).scenes]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert not {*first} & {*other}


def test_no_scene_comes_twice(composed):
    everything = [pixels.tobytes() for split in SPLITS for pixels, _ in composed[split]]
    assert len(set(everything)) == len(everything) == 260


def test_scenes_of_a_split_are_composed_of_its_scans(monkeypatch):
    pasted = []

    def remember(scene, random, scan, digit):
        pasted.append(scan.tobytes())

    monkeypatch.setattr(scenes, "_digit", remember)
    used = {}
    for split in SPLITS:
        pasted.clear()
        scenes.scenes(Path(), split)
        used[split] = set(pasted)
        assert used[split] <= {image[..., 0].tobytes() for image in Digits(split).images}
    assert not used["train"] & used["val"]
    assert len(used["train"]) > 300


def test_a_piece_is_pasted_where_its_shape_is_and_cut_at_the_border():
    scene = scenes.Scene(64)
    piece = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3) + 1
    shape = ~np.eye(4, dtype=bool)
    scene.paste(piece, shape, top=-1, left=62, label=5)
    expected = np.zeros((64, 64), dtype=np.uint8)
    expected[0:3, 62:64] = 5 * shape[1:, :2]
    assert (scene.mask == expected).all()
    assert ((scene.pixels > 0).all(-1) == (expected == 5)).all()
    assert (scene.pixels[0, 62] == piece[1, 0]).all()


def test_a_digit_and_its_mask_are_the_same_pixels():
    random = np.random.RandomState(0)
    for digit, scan in enumerate(Digits("train").images[:10, ..., 0]):
        scene = scenes.Scene(96)
        scenes._digit(scene, random, scan, digit)
        inked = scene.mask > 0
        assert 40 < inked.sum() < 44**2
        assert (scene.mask[inked] == 1 + scenes.CLASSES.index(f"digit {digit}")).all()
        assert len(np.unique(scene.pixels[inked], axis=0)) == 1
        assert not scene.pixels[~inked].any()


def test_scenes_show_every_class_in_both_splits_and_none_too_often(composed):
    for split in SPLITS:
        counts = np.bincount(np.concatenate([mask.ravel() for _, mask in composed[split]]))
        share = counts / counts.sum()
        assert len(share) == 15
        assert share[1:].min() > 0.005
        assert share.max() < 0.5
        assert 0.01 < share[scenes.UNLABELLED] < 0.1


def test_scenes_differ_in_width(composed):
    widths = {mask.shape for _, mask in composed["val"]}
    assert widths == {(64, width) for width in scenes.WIDTHS}
    assert all(pixels.shape == (*mask.shape, 3) for pixels, mask in composed["val"])
