import subprocess
import sys

import pytest

from replication.config.datasets import DatasetInfo, fetched_with, find, load_registry
from replication.config.recipe import short_hash
from replication.config.schema import as_yaml
from vitrail.errors import VitrailError

NAMES = [
    "digits",
    "pieces-in-a-row",
    "pieces-in-corners",
    "cifar10",
    "cifar10-position",
    "cifar100",
    "svhn",
    "eurosat",
    "flowers102",
    "imagenette",
    "imagenet",
    "tiny-imagenet",
    "ade20k",
    "cityscapes",
    "loveda",
    "voc2012",
    "inaturalist2021",
    "places365",
    "bmc",
    "dinobloom",
]


@pytest.fixture
def entry(registry) -> dict:
    return registry["svhn"].model_dump(mode="json", exclude={"name"})


def written(path, entries):
    path.write_text(as_yaml(entries))
    return path


def test_the_registry_knows_the_datasets_of_the_papers(registry):
    assert set(NAMES) <= set(registry)
    assert [info.name for info in registry.values()] == list(registry)


def test_reading_the_registry_imports_no_torch():
    imported = "sys, replication.config.datasets, replication.datasets"
    code = f"import {imported}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_everything_but_the_registry_works_without_the_workflows_packages():
    code = (
        "import sys\n"
        "for name in ('pydantic', 'snakemake'): sys.modules[name] = None\n"
        "import replication.images.loading, replication.images.photos\n"
        "import replication.datasets.miniature\n"
        "import replication.datasets.folders, replication.datasets.arrays\n"
        "import replication.datasets.positions, replication.datasets.segmentation\n"
        "import replication.datasets.stand_ins.patchwork\n"
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


CHANGES = {
    "mean": (0.5, 0.5, 0.5),
    "std": (1.0, 1.0, 1.0),
    "loader": "replication.datasets.arrays:cifar10",
    "classes": 2,
    "train_images": 2,
    "val_images": 2,
    "version": 9,
    "name": "other",
    "prepare": "replication.datasets.miniature:write",
}
WORDS = {
    "title": "other",
    "split": "as another sentence says it",
    "licence": "other",
    "homepage": "https://example.org",
    "folder": "moved",
    "layout": "other",
    "required": ["a"],
    "digest": "0" * 64,
}


@pytest.mark.parametrize("field", CHANGES)
def test_what_decides_numbers_is_decisive(registry, field):
    info = registry["loveda"]
    changed = info.model_copy(update={field: CHANGES[field]})
    assert short_hash(changed.identity_fields) != short_hash(info.identity_fields)


@pytest.mark.parametrize("field", WORDS)
def test_words_and_places_are_not_decisive(registry, field):
    info = registry["loveda"]
    assert info.model_copy(update={field: WORDS[field]}).identity_fields == info.identity_fields


def test_a_function_is_decisive_by_its_name_and_not_by_its_modules(registry):
    info = registry["loveda"]
    for field in ("loader", "prepare"):
        name = getattr(info, field).partition(":")[2]
        moved = info.model_copy(update={field: f"replication.datasets.elsewhere:{name}"})
        assert moved.identity_fields == info.identity_fields
    assert registry["cifar10"].identity_fields["prepare"] is None


def test_the_digest_of_a_file_is_decisive_and_its_mirrors_are_not(registry):
    info = registry["cifar10"]
    (file,) = info.files
    moved = file.model_copy(update={"url": ["https://example.org/cifar.tar.gz"]})
    other = file.model_copy(update={"sha256": "0" * 64, "md5": None})
    assert info.model_copy(update={"files": [moved]}).identity_fields == info.identity_fields
    assert info.model_copy(update={"files": [other]}).identity_fields != info.identity_fields


def test_where_the_masks_lie_is_decisive_and_how_to_make_them_is_not(registry):
    info = registry["cityscapes"]
    for update, same in (({"if_no_masks": "other"}, True), ({"img_suffix": ".other"}, False)):
        form = info.segmentation.model_copy(update=update)
        changed = info.model_copy(update={"segmentation": form})
        assert (changed.identity_fields == info.identity_fields) == same


def test_datasets_of_the_same_files_are_fetched_by_one_of_them(registry):
    assert registry["cifar10-position"].files == registry["cifar10"].files
    fetching = {name: fetched_with(name, registry) for name in registry}
    others = {name: first for name, first in fetching.items() if first != name}
    parts = ["cifar10-10k", "cifar10-position-10k", "cifar10-position-10k-redrawn"]
    of_cifar = dict.fromkeys(["cifar10-position", "cifar10-position-redrawn", *parts], "cifar10")
    of_parts = {"svhn": "svhn-10k", "tiny-imagenet-20": "tiny-imagenet"}
    assert others == {**of_cifar, **of_parts, "dinobloom": "bmc", "eurosat-by-seed": "eurosat"}


def test_a_part_of_svhn_can_be_fetched_without_the_rest(registry):
    """Its file is one of the whole's, and nothing else comes before it."""
    part, whole = registry["svhn-10k"], registry["svhn"]
    assert part.files == [file for file in whole.files if file.name in part.required]
    assert fetched_with("svhn-10k", registry) == "svhn-10k"


def test_image_folders_account_for_both_splits(registry):
    for info in registry.values():
        # DinoBloom counts none, BCCD pictures; a part of Tiny-ImageNet has the whole's folders.
        if info.images and info.name not in ("dinobloom", "tiny-imagenet-20", "bccd"):
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
        ({"loader": "replication.datasets.arrays"}, "'loader' is 'replication.datasets.arrays'"),
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
