"""A search judges on what the training split itself holds out, and reads nothing of the test."""

import numpy as np
import pytest

from replication.config.recipes.classification import ClassificationRecipe
from replication.config.tuning import FLOORS, Trial, setting_of, world_of
from replication.datasets.arrays import scans
from replication.images.opening import SPLITS, build, holding_out
from replication.images.photos import tiles
from replication.jobs.trials import divided, take_floors, take_trial
from replication.measures.pixel_baselines import mask_floors

RECIPE = {
    "model": {
        "name": "vit_tiny_patch16_224",
        "args": {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 1},
    },
    "data": {"dataset": "digits", "image_size": 8, "crop_pct": 1.0},
    "augmentation": {"crop": "center", "hflip": 0.0},
    "optimizer": {"lr": 1e-3},
    "schedule": {"epochs": 3},
    "batch": {"size": 64, "micro": 64},
}


def rows(arrays):
    return {array.tobytes() for array in arrays}


def test_both_sides_are_of_training_scans_and_share_none():
    training, tests = (rows(scans(split)[0]) for split in SPLITS)
    with holding_out():
        kept, held_out = (rows(scans(split)[0]) for split in SPLITS)
    assert kept | held_out == training
    assert not kept & held_out
    assert not held_out & tests
    assert len(held_out) == pytest.approx(len(training) / 5, rel=0.01)


def test_both_sides_are_of_training_tiles_and_share_none():
    training = rows(tiles("china", "train"))
    with holding_out():
        kept, held_out = (rows(tiles("china", split)) for split in SPLITS)
    assert kept | held_out == training
    assert not kept & held_out


def test_afterwards_the_splits_are_as_before():
    before = scans("val")[1]
    with holding_out():
        assert len(scans("val")[1]) < len(before)
    assert np.array_equal(scans("val")[1], before)


def test_images_that_are_files_are_divided_by_their_order(registry, tmp_path):
    info = registry["digits"].model_copy(update={"source": "download", "folder": "digits"})
    whole = build(info, "train", tmp_path)
    with divided(info, 100, tmp_path, tmp_path) as (part, root):
        opened = {split: build(part, split, root, 100) for split in SPLITS}
        assert [len(opened[split]) for split in SPLITS] == [part.train_images, part.val_images]
        for at in (0, 7):
            image, label = opened["val"][at]
            assert (np.array(image) == np.array(whole[5 * at][0])).all()
            assert label == whole[5 * at][1]
        assert (np.array(opened["train"][0][0]) == np.array(whole[1][0])).all()


def test_an_image_is_on_the_side_of_its_mask(registry, tmp_path):
    """Also where folders have files of other kinds, and images lie in folders of their own."""
    info = registry["cityscapes"].model_copy(update={"folder": "cityscapes"})
    form = info.segmentation
    names = [f"{city}/{number:02}" for city in ("aachen", "ulm") for number in range(10)]
    for kind, suffix in (("img_path", form.img_suffix), ("seg_map_path", form.seg_map_suffix)):
        folder = tmp_path / "cityscapes" / getattr(form.train, kind)
        for name in names:
            file = folder / f"{name}{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{kind} {name}")
    (tmp_path / "cityscapes" / form.train.seg_map_path / "aachen" / "00.json").write_text("{}")
    with divided(info, 100, tmp_path, tmp_path / "apart") as (_, root):
        sides = []
        for split in (form.train, form.val):
            found = [
                {
                    file.read_text().removeprefix(f"{kind} ")
                    for file in (root / "cityscapes" / getattr(split, kind)).rglob("*")
                    if file.is_file()
                }
                for kind in ("img_path", "seg_map_path")
            ]
            assert found[0] == found[1]
            sides.append(found[0])
    assert sides[1] == {*names[::5]}
    assert sides[0] == {*names} - sides[1]


def test_a_trial_trains_at_its_rate_and_length_and_leaves_nothing(registry, tmp_path):
    recipe, info = ClassificationRecipe.model_validate(RECIPE), registry["digits"]
    trial = Trial("vit", "digits", setting_of(recipe, info), 1, 1e-2, 100)
    scores = [
        take_trial(tried, recipe, info, tmp_path)[tried].held_out
        for tried in (trial, trial, trial._replace(rate=1e-9), trial._replace(length=3))
    ]
    once, again, stuck, longer = scores
    assert once == again
    assert stuck < 25 < once < longer
    assert not list(tmp_path.iterdir())


def test_floors_are_of_the_images_that_are_held_out(registry, tmp_path):
    info = registry["digits"]
    found = take_floors(info, 100, tmp_path)
    assert {trial.recipe for trial in found} == {
        FLOORS + rule for rule in ("1-NN", "20-NN", "logistic regression")
    }
    assert {trial.setting for trial in found} == {world_of(info)}
    with holding_out():
        (train, labels), (test, right) = (scans(split) for split in SPLITS)
    distances = ((test[:, None] - train[None]) ** 2).sum((2, 3))
    percent = 100 * (labels[distances.argmin(1)] == right).mean()
    score = next(score for trial, score in found.items() if trial.recipe.endswith("1-NN"))
    assert score.held_out == pytest.approx(percent, abs=0.9)  # of 8 bits a pixel; 2 of 240 images


def test_floors_of_masks_are_judged_on_scenes_of_every_fifth_scan(registry, tmp_path):
    info = registry["scenes-quarters"]
    with holding_out():
        parts = [build(info, split, tmp_path, 100) for split in SPLITS]
    pairs = [map(part.__getitem__, range(len(part))) for part in parts]
    (images, masks), (held_out, right) = (zip(*of_part, strict=True) for of_part in pairs)
    images, held_out = ([np.asarray(image) / 255 for image in of] for of in (images, held_out))
    found = take_floors(info, 100, tmp_path)
    scores = {trial.recipe.removeprefix(FLOORS): score.held_out for trial, score in found.items()}
    assert scores == pytest.approx(mask_floors(images, masks, held_out, right))
