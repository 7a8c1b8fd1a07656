import errno
import shutil

import pytest
from PIL import Image

from replication.datasets.miniature import write_miniature
from replication.datasets.verify import check_layout, verify
from replication.images.opening import build, stratified_split, stream
from vitrail.errors import VitrailError


@pytest.fixture
def root(tmp_path, registry):
    """A data root with miniatures of ImageNet and CIFAR-10."""
    write_miniature(registry["imagenet"], tmp_path)
    write_miniature(registry["cifar10"], tmp_path)
    return tmp_path


def complaint(info, root, **options) -> str:
    with pytest.raises(VitrailError) as caught:
        verify(info, root, **options)
    return str(caught.value)


def test_a_dataset_to_be_placed_by_hand_is_missed_with_licence_and_tree(registry, tmp_path):
    said = complaint(registry["imagenet"], tmp_path)
    assert f"'imagenet' is not in {tmp_path}/imagenet; get it from https://image-net.org" in said
    assert f"place it as {tmp_path}/imagenet/{{train,val}}/<synset such as n01440764>" in said


def test_a_dataset_to_be_downloaded_is_missed_with_the_command(registry, tmp_path):
    said = complaint(registry["cifar10"], tmp_path)
    assert f"run `vitrail fetch cifar10 --data {tmp_path}`" in said


def test_opening_a_missing_dataset_says_how_to_get_it(registry, tmp_path):
    with pytest.raises(VitrailError, match=r"vitrail fetch cifar10"):
        check_layout(registry["cifar10"], tmp_path)


def test_a_flat_val_folder_is_answered_with_the_command_that_makes_class_folders(registry, root):
    val = root / "imagenet" / "val"
    for image in list(val.glob("*/*.JPEG")):
        image.rename(val / image.name)
    for empty in list(val.iterdir()):
        if empty.is_dir():
            empty.rmdir()
    said = complaint(registry["imagenet"], root, counts=False)
    assert f"{val} holds 6 images outside of class folders" in said
    assert f"python -m replication.datasets.imagenet_val {val}-images {val} " in said


def test_a_half_sorted_val_folder_is_answered_with_the_same_command(registry, root):
    Image.new("RGB", (1, 1)).save(root / "imagenet" / "val" / "loose.JPEG")
    said = complaint(registry["imagenet"], root)
    assert "holds 1 images outside of class folders; make class folders of links" in said


def test_a_class_folder_that_val_lacks_is_named(registry, root):
    shutil.rmtree(root / "imagenet" / "val" / "n00000001")
    said = complaint(registry["imagenet"], root, counts=False)
    assert said.startswith(f"{root}/imagenet/val lacks class folder n00000001, which ")


def test_an_empty_class_folder_is_named(registry, root):
    for image in (root / "imagenet" / "train" / "n00000002").iterdir():
        image.unlink()
    assert "n00000002 holds no images" in complaint(registry["imagenet"], root, counts=False)


def test_a_missing_split_is_named(registry, root):
    shutil.rmtree(root / "imagenet" / "train")
    assert f"{root}/imagenet/train is missing; get it" in complaint(registry["imagenet"], root)


def test_an_empty_split_is_named(registry, root):
    shutil.rmtree(root / "imagenet" / "train")
    (root / "imagenet" / "train").mkdir()
    assert f"{root}/imagenet/train holds no class folders" in complaint(registry["imagenet"], root)


def test_a_tree_one_folder_too_deep_is_found(registry, root):
    batches = root / "cifar10" / "cifar-10-batches-py"
    (root / "cifar10" / "cifar").mkdir()
    batches.rename(root / "cifar10" / "cifar" / batches.name)
    said = complaint(registry["cifar10"], root, counts=False)
    assert f"but {root}/cifar10/cifar/cifar-10-batches-py/data_batch_1 is there; move it up" in said


def test_a_missing_file_is_named(registry, root):
    (root / "cifar10" / "cifar-10-batches-py" / "data_batch_4").unlink()
    assert "data_batch_4 is missing; run" in complaint(registry["cifar10"], root, counts=False)


def test_a_half_downloaded_archive_is_told_apart_from_a_missing_one(registry, tmp_path):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz.part").write_bytes(b"half")
    said = complaint(registry["cifar10"], tmp_path)
    assert "cifar-10-python.tar.gz.part is half downloaded; run `vitrail fetch" in said


def test_missing_images_of_a_flat_folder_are_noticed(registry, tmp_path):
    jpg = write_miniature(registry["flowers102"], tmp_path) / "flowers-102" / "jpg"
    for image in jpg.iterdir():
        image.unlink()
    assert f"{jpg} holds no images" in complaint(registry["flowers102"], tmp_path, counts=False)


def small(info, **counts):
    """The dataset's entry with a miniature's numbers."""
    images = [tree.model_copy(update=counts) for tree in info.images]
    return info.model_copy(update={"images": images})


def test_right_counts_pass(registry, root):
    imagenet = small(registry["imagenet"], classes=3, images=6)
    assert verify(imagenet, root) == {"train": 1281167, "val": 50000}


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"classes": 4, "images": 6}, "train has 3 class folders instead of 4"),
        ({"classes": 3, "images": 7}, "train has 6 images instead of 7"),
    ],
)
def test_wrong_counts_are_told(registry, root, counts, said):
    assert said in complaint(small(registry["imagenet"], **counts), root)


def test_verification_opens_no_image(registry, root):
    for image in (root / "imagenet").glob("*/*/*.JPEG"):
        image.write_bytes(b"")
    verify(small(registry["imagenet"], classes=3, images=6), root)


def test_a_damaged_image_is_named_when_it_is_read(registry, root):
    image = root / "imagenet" / "val" / "n00000000" / "n00000000_1.JPEG"
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(VitrailError, match=f"cannot read image {image} .*; replace it"):
        build(registry["imagenet"], "val", root)[0]


@pytest.mark.parametrize("damage", [lambda old: old[:50], lambda old: b"", lambda old: b"x" + old])
def test_a_damaged_array_file_is_told_when_the_dataset_is_opened(registry, root, damage):
    batch = root / "cifar10" / "cifar-10-batches-py" / "data_batch_2"
    batch.write_bytes(damage(batch.read_bytes()))
    with pytest.raises(VitrailError, match=r"'cifar10' in .*cifar10 cannot be read .* fetch it"):
        build(registry["cifar10"], "train", root)


def test_a_folder_without_permission_is_named(registry, root, monkeypatch):
    def refuse(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr("os.scandir", refuse)
    said = complaint(registry["imagenet"], root)
    assert said.startswith(f"cannot look into {root}/imagenet/train (Permission denied); check")


def test_a_stratified_split_is_random_but_always_the_same():
    labels = [0] * 30 + [1] * 60
    train, val = stratified_split(labels, 0.8)
    assert (train, val) == stratified_split(labels, 0.8)
    assert train[:6] == [1, 2, 4, 5, 6, 7]  # or every split of digits and EuroSAT is another
    assert sorted(train + val) == list(range(90))
    assert sum(index < 30 for index in train) == 24


def test_each_stand_in_and_split_has_random_numbers_of_its_own():
    drawn = {stream(name, split).randint(2**31) for name in "ab" for split in ("train", "val")}
    assert len(drawn) == 4
    assert stream("a", "train").randint(2**31) == stream("a", "train").randint(2**31)
