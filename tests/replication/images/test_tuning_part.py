"""Where learning rates are tuned, parts of the training images are opened and no test image."""

import numpy as np
import pytest
from mmengine.registry import DefaultScope
from mmseg.registry import DATASETS

from replication.datasets.arrays import scans
from replication.datasets.miniature import write_miniature
from replication.images import opening
from replication.images.opening import SPLITS, build
from replication.images.photos import tiles
from replication.training.segmentation.config import LOADERS, _place_data, load_config
from tests.conftest import catalog_of


def rows(arrays):
    return {array.tobytes() for array in arrays}


def test_both_parts_are_of_training_scans_and_share_none():
    training, tests = (rows(scans(split)[0]) for split in SPLITS)
    fit, held_out = (rows(scans(split)[0]) for split in ("fit", "held_out"))
    assert fit | held_out == training
    assert not fit & held_out
    assert not held_out & tests
    assert len(held_out) == pytest.approx(len(training) / 5, rel=0.01)


def test_both_parts_are_of_training_tiles_and_share_none():
    training = rows(tiles("china", "train"))
    fit, held_out = (rows(tiles("china", split)) for split in ("fit", "held_out"))
    assert fit | held_out == training
    assert not fit & held_out


@pytest.fixture
def asked(monkeypatch):
    """The splits that loaders are asked for."""
    splits = []
    load = opening._loader

    def loader(info):
        own = load(info)

        def open_split(folder, split, seed=0):
            splits.append(split)
            options = {"seed": seed} if "seed" in own.__code__.co_varnames else {}
            return own(folder, split, **options)

        return open_split

    monkeypatch.setattr(opening, "_loader", loader)
    return splits


def test_no_loader_is_asked_for_test_images(registry, tmp_path, asked):
    write_miniature(registry["cifar10"], tmp_path)
    for name in ("cifar10", "digits", "digits-few"):
        for split in SPLITS:
            build(registry[name].of_part("tuning"), split, tmp_path, 100)
    assert asked == ["train", "train", "fit", "held_out", "fit", "held_out"]


def test_images_that_are_files_are_divided_by_their_order(registry, tmp_path):
    write_miniature(registry["cifar10"], tmp_path)
    whole = build(registry["cifar10"], "train", tmp_path)
    info = registry["cifar10"].of_part("tuning")
    fit, held_out = (build(info, split, tmp_path) for split in SPLITS)
    order = list(range(len(whole)))
    for part, own in ((held_out, order[::5]), (fit, [at for at in order if at % 5])):
        assert len(part) == len(own)
        for (image, label), at in zip(part, own, strict=True):
            assert (np.array(image) == np.array(whole[at][0])).all()
            assert label == whole[at][1]


@pytest.mark.slow
def test_an_entry_counts_the_images_of_its_parts(registry, tmp_path):
    for info in registry.values():
        part = info.of_part("tuning")
        if info.source == "bundled":
            found = [len(build(part, split, tmp_path, 100)) for split in SPLITS]
            assert found == [part.train_images, part.val_images], info.name
        else:
            assert part.train_images + part.val_images == info.train_images
            assert 5 * part.val_images - info.train_images in range(5)


def test_a_segmenter_reads_each_training_image_on_one_side(registry, tmp_path):
    """Also where folders have files of other kinds, and images lie in folders of their own."""
    info = registry["cityscapes"].model_copy(update={"train_images": 20})
    form = info.segmentation
    names = [f"{city}/{number:02}" for city in ("aachen", "ulm") for number in range(10)]
    for kind, suffix in (("img_path", form.img_suffix), ("seg_map_path", form.seg_map_suffix)):
        for name in names:
            file = tmp_path / info.folder / getattr(form.train, kind) / f"{name}{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
    (tmp_path / info.folder / form.train.seg_map_path / "aachen" / "00.json").write_text("{}")
    runs = catalog_of("laptop").runs.values()
    recipe = next(run.recipe for run in runs if run.recipe.task == "segmentation")
    config = load_config(recipe, info.classes)
    _place_data(config, info.of_part("tuning"), tmp_path, 100)
    sides = {}
    for loader, split in LOADERS.items():
        with DefaultScope.overwrite_default_scope("mmseg"):
            images = DATASETS.build({**config[loader].dataset, "pipeline": []})
        found = [images.get_data_info(at) for at in range(len(images))]
        for image in found:
            own = image["img_path"].removesuffix(form.img_suffix).split("/")[-2:]
            assert image["seg_map_path"].removesuffix(form.seg_map_suffix).split("/")[-2:] == own
            sides.setdefault(split, set()).add("/".join(own))
    assert sides == {"val": {*names[::5]}, "train": {*names} - {*names[::5]}}
