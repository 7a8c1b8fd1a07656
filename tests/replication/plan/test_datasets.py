import subprocess
import sys

import pytest
import yaml

from replication.plan.datasets import DatasetInfo, fetched_with, find, load_registry
from replication.plan.recipe import short_hash
from vitrail.errors import VitrailError

NAMES = [
    "digits",
    "digits-position",
    "photo-regions",
    "digits-in-four-places",
    "digits-beside-others",
    "few-large-digits",
    "digits-in-a-row",
    "digits-of-all-sizes",
    "cifar10",
    "cifar10-position",
    "cifar100",
    "svhn",
    "eurosat",
    "flowers102",
    "imagenette",
    "imagenet",
    "ade20k",
    "cityscapes",
    "loveda",
    "voc2012",
    "inaturalist2021",
    "places365",
    "scenes",
    "bmc",
    "dinobloom",
    "cells",
]
DECISIVE = {"mean", "std", "split", "loader", "classes", "train_images", "val_images"}
PINNED = {
    "digits": (1, "b8d9aadf"),
    "digits-few": (1, "f550be18"),
    "digits-position": (1, "4885e278"),
    "digits-position-redrawn": (1, "0cb9bc1e"),
    "photo-regions": (1, "299a6717"),
    "digits-in-four-places": (1, "8958dbe1"),
    "digits-beside-others": (1, "5db5778d"),
    "few-large-digits": (1, "1436ca0a"),
    "digits-in-a-row": (1, "dce85418"),
    "digits-of-all-sizes": (1, "afc7e61b"),
    "cells": (1, "36b6e1bc"),
    "things-and-stuff": (1, "580f75ee"),
    "shapes": (2, "4afd906b"),
    "species": (2, "cedbff18"),
    "places": (2, "5db45abb"),
    "objects": (2, "f0cd0c15"),
    "digits-near": (2, "7d01451d"),
    "digits-far": (2, "45c0f6dd"),
    "digits-cropped": (2, "4b0a2a29"),
    "cifar10": (1, "1f4df2e5"),
    "cifar10-position": (1, "71aaa49f"),
    "cifar10-position-redrawn": (1, "8f96b250"),
    "cifar100": (1, "c458951e"),
    "svhn": (1, "a7a3ae1b"),
    "eurosat": (1, "04531aa5"),
    "flowers102": (1, "1dd90e6d"),
    "imagenette": (1, "36b45b06"),
    "imagenet": (1, "c463b5d7"),
    "inaturalist2021": (1, "d59ab5e6"),
    "places365": (1, "703100af"),
    "bmc": (1, "c4cd634e"),
    "dinobloom": (1, "1b754222"),
    "ade20k": (1, "55fe3246"),
    "cityscapes": (1, "6ca6e600"),
    "loveda": (1, "f746a23a"),
    "voc2012": (1, "caf2bccd"),
    "scenes": (2, "74f8a00c"),
    "scenes-halves": (1, "0157712e"),
    "scenes-thirds": (1, "e34b2976"),
    "scenes-quarters": (1, "2c133dff"),
}


@pytest.fixture
def entry(registry) -> dict:
    return registry["svhn"].model_dump(mode="json", exclude={"name"})


def written(path, entries):
    path.write_text(yaml.safe_dump(entries))
    return path


def test_the_registry_knows_the_datasets_of_the_papers(registry):
    assert set(NAMES) <= set(registry)
    assert [info.name for info in registry.values()] == list(registry)


def test_reading_the_registry_imports_no_torch():
    code = "import sys, replication.plan.datasets, replication.data; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_everything_but_the_registry_works_without_the_workflows_packages():
    code = (
        "import sys\n"
        "for name in ('pydantic', 'snakemake'): sys.modules[name] = None\n"
        "import vitrail.images.loading, replication.data.miniature, vitrail.images.photos\n"
        "import replication.data.folders, replication.data.arrays\n"
        "import replication.data.positions, replication.data.segmentation\n"
        "import replication.data.scenes\n"
        "print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


def test_an_unknown_dataset_is_answered_with_the_closest(registry):
    with pytest.raises(VitrailError, match=r"'cifar-10' is unknown; did you mean 'cifar10'\?"):
        find("cifar-10", registry)


def test_every_file_has_a_place_to_come_from_and_a_checksum(registry):
    for info in registry.values():
        for file in info.files:
            assert file.checksum[0] == ("md5" if info.name == "loveda" else "sha256")
            assert all(url.rpartition("/")[2] == file.name.rpartition("/")[2] for url in file.url)


def test_a_dataset_that_changes_gets_a_new_version(registry):
    """Only the version enters a recipe's hash: change a digest here and raise its version."""
    assert {
        name: (info.version, short_hash(info.model_dump(mode="json", include=DECISIVE)))
        for name, info in registry.items()
    } == PINNED


def test_datasets_of_the_same_files_are_fetched_by_one_of_them(registry):
    assert registry["cifar10-position"].files == registry["cifar10"].files
    fetching = {name: fetched_with(name, registry) for name in registry}
    others = {name: first for name, first in fetching.items() if first != name}
    of_cifar = dict.fromkeys(["cifar10-position", "cifar10-position-redrawn"], "cifar10")
    assert others == {**of_cifar, "dinobloom": "bmc"}


def test_image_folders_account_for_both_splits(registry):
    for info in registry.values():
        if info.images and info.name != "dinobloom":  # which counts none
            counted = sum(images.images for images in info.images)
            assert counted == info.train_images + info.val_images


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sorce": "download"}, "unknown key 'sorce'; did you mean 'source'"),
        ({"classes": 0}, "'classes' is 0"),
        ({"mean": [0.5, 0.5]}, "'mean.2' is missing"),
        ({"files": []}, "files belong to source 'download'"),
        ({"source": "manual"}, "files belong to source 'download'"),
        ({"source": "made", "files": []}, "source 'made' needs prepare"),
        ({"layout": ""}, "source 'download' needs folder and layout"),
        ({"loader": "replication.data.arrays"}, "'loader' is 'replication.data.arrays'"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path, entry, change, complaint):
    path = written(tmp_path / "datasets.yaml", {"mine": entry | change})
    with pytest.raises(VitrailError, match="dataset 'mine'") as caught:
        load_registry(path)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("path", ["../../x", "a/../../x", "/etc/x"])
@pytest.mark.parametrize("field", ["files", "folder", "required", "images", "segmentation"])
def test_an_entry_names_nothing_outside_of_its_folder(tmp_path, entry, field, path):
    split = {"img_path": "images", "seg_map_path": path}
    change = {
        "files": [{"name": path, "url": ["http://x/a"], "size": 1, "md5": "0" * 32}],
        "folder": path,
        "required": [path],
        "images": [{"folder": path, "classes": 0, "images": None}],
        "segmentation": {"type": "X", "train": split, "val": split},
    }
    registry = written(tmp_path / "datasets.yaml", {"mine": entry | {field: change[field]}})
    with pytest.raises(VitrailError, match=f"'{field}.*leads out of its folder") as caught:
        load_registry(registry)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("name", ["../mine", "a/b", "-mine", "", "a b"])
def test_a_dataset_is_called_as_a_file_can_be(tmp_path, entry, name):
    with pytest.raises(VitrailError, match="'name' is"):
        load_registry(written(tmp_path / "datasets.yaml", {name: entry}))


@pytest.mark.parametrize("checksums", [{}, {"sha256": "0" * 64, "md5": "0" * 32}])
def test_a_file_has_exactly_one_checksum(tmp_path, entry, checksums):
    entry["files"] = [{"name": "a", "url": ["http://x/a"], "size": 1, **checksums}]
    with pytest.raises(VitrailError, match="exactly one of sha256 and md5"):
        load_registry(written(tmp_path / "datasets.yaml", {"mine": entry}))


def test_an_md5_is_taken_where_nothing_better_is_published(entry):
    entry["files"] = [{"name": "a", "url": ["http://x/a"], "size": 1, "md5": "0" * 32}]
    info = DatasetInfo.model_validate(entry | {"name": "mine"})
    assert info.files[0].checksum == ("md5", "0" * 32)


@pytest.mark.parametrize("text", ["[digits]", "digits: 3"])
def test_a_registry_that_is_no_map_of_entries_is_refused(tmp_path, text):
    path = tmp_path / "datasets.yaml"
    path.write_text(text)
    with pytest.raises(VitrailError, match="must map the name of each entry to its fields"):
        load_registry(path)
