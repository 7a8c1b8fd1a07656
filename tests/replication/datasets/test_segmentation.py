import hashlib
import shutil
import zipfile

import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets import ADE20KDataset, CityscapesDataset, LoveDADataset
from mmseg.datasets.transforms import LoadAnnotations
from PIL import Image

from replication.config.datasets import RemoteFile
from replication.datasets.fetch import fetch
from replication.datasets.miniature import write_miniature
from replication.datasets.segmentation import MaskedImages
from replication.datasets.verify import verify
from replication.images.masks import read_mask
from replication.images.opening import build
from replication.training.segmentation.camvid import CamVidDataset
from vitrail.errors import VitrailError

MASKED = ["ade20k", "cityscapes", "loveda", "camvid"]
MMSEG = {
    "ade20k": ADE20KDataset,
    "cityscapes": CityscapesDataset,
    "loveda": LoveDADataset,
    "camvid": CamVidDataset,
}


@pytest.fixture
def root(tmp_path, registry):
    """A data root with miniatures: three images of two classes in each split."""
    for name in MASKED:
        write_miniature(registry[name], tmp_path, per_class=3, classes=1)
    return tmp_path


def complaint(info, root, counts=False) -> str:
    with pytest.raises(VitrailError) as caught:
        verify(info, root, counts)
    return str(caught.value)


def paths(info, root, split="train"):
    places = getattr(info.segmentation, split)
    return root / info.folder / places.img_path, root / info.folder / places.seg_map_path


@pytest.mark.parametrize("name", MASKED)
def test_a_miniature_is_read_as_images_and_masks(registry, tmp_path, name):
    info = registry[name]
    write_miniature(info, tmp_path, per_class=2, classes=4)
    verify(info, tmp_path, counts=False)
    for split in ("train", "val"):
        dataset = build(info, split, tmp_path)
        assert len(dataset) == 8
        for image, mask in map(dataset.__getitem__, range(8)):
            assert (image.mode, mask.dtype) == ("RGB", np.uint8)
            assert mask.shape == (image.height, image.width)
            assert np.unique(mask).tolist() == [0, 1, 2, 3, 255]


@pytest.mark.slow
@pytest.mark.parametrize("name", MMSEG)
def test_mmsegmentation_reads_the_same_images_and_masks(registry, root, name):
    info = registry[name]
    for split in ("train", "val"):
        ours = build(info, split, root)
        theirs = MMSEG[name](
            data_root=str(root / info.folder),
            data_prefix=getattr(info.segmentation, split).model_dump(),
            pipeline=[LoadImageFromFile(), LoadAnnotations()],
        )
        assert info.segmentation.type == type(theirs).__name__
        assert info.classes == len(theirs.metainfo["classes"])
        assert len(theirs) == len(ours)
        for index in range(len(ours)):
            image, mask = ours[index]
            off = np.asarray(image, dtype=int) - theirs[index]["img"][..., ::-1]
            assert np.abs(off).max() <= 2  # OpenCV and Pillow each carry a JPEG decoder
            assert (mask == theirs[index]["gt_seg_map"]).all()


@pytest.mark.parametrize(
    ("reduced", "labels"), [(True, [255, 0, 149, 255]), (False, [0, 1, 150, 255])]
)
def test_zero_is_unlabelled_where_the_format_says_so(tmp_path, reduced, labels):
    for folder, mode in (("images", "RGB"), ("masks", "L")):
        (tmp_path / folder).mkdir()
        Image.new(mode, (4, 1)).save(tmp_path / folder / "a.png")
    stored = np.array([[0, 1, 150, 255]], dtype=np.uint8)
    Image.fromarray(stored).save(tmp_path / "masks" / "a.png")
    dataset = MaskedImages(
        tmp_path / "images", tmp_path / "masks", ".png", reduce_zero_label=reduced
    )
    assert dataset[0][1].tolist() == [labels]


def test_void_of_camvid_is_stored_as_the_twelfth_class_and_is_not_judged(registry, root):
    info = registry["camvid"]
    _, masks = paths(info, root)
    stored = np.stack([read_mask(file) for file in sorted(masks.iterdir())])
    read = np.stack([mask for _, mask in build(info, "train", root)])
    assert ((stored == info.classes) == (read == 255)).all()
    assert set(np.unique(stored)) == {0, info.classes}


@pytest.mark.parametrize("name", MASKED)
def test_a_miniature_does_not_pass_for_the_dataset(registry, root, name):
    info = registry[name]
    said = complaint(info, root, counts=True)
    images, _ = paths(info, root)
    suffix = info.segmentation.img_suffix
    assert said.startswith(f"{images} has 3 *{suffix} instead of {info.train_images}; ")


@pytest.mark.parametrize("name", MASKED)
def test_right_counts_pass_and_a_mask_without_image_is_counted(registry, root, name):
    info = registry[name].model_copy(update={"train_images": 3, "val_images": 3})
    assert verify(info, root) == {"train": 3, "val": 3}
    _, masks = paths(info, root, "val")
    suffix = info.segmentation.seg_map_suffix
    (masks / f"another{suffix}").touch()
    assert complaint(info, root, counts=True).startswith(f"{masks} has 4 *{suffix} instead of 3; ")


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("split", ["train", "val"])
def test_an_image_without_mask_is_named(registry, root, name, split):
    info = registry[name]
    dataset = build(info, split, root)
    dataset.masks[1].unlink()
    said = complaint(info, root)
    assert said == (
        f"image {dataset.images[1]} has no mask {dataset.masks[1]}; restore it (1 in all)"
    )


def test_a_missing_dataset_is_answered_with_what_to_do_and_the_tree(registry, tmp_path):
    said = complaint(registry["cityscapes"], tmp_path)
    assert "get it from https://www.cityscapes-dataset.com (for non-commercial use" in said
    assert f"place it as {tmp_path}/cityscapes/{{leftImg8bit/{{train,val}}/<city>/" in said
    said = complaint(registry["ade20k"], tmp_path)
    assert f"run `vitrail fetch ade20k --data {tmp_path}` or place it as " in said
    assert "/ade20k/ADEChallengeData2016/{images/{training,validation}/*.jpg" in said


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_split_is_named(registry, root, name, which):
    folder = paths(registry[name], root, "val")[which]
    shutil.rmtree(folder)
    said = complaint(registry[name], root)
    assert said.startswith(f"{folder} is missing; ")
    assert registry[name].layout in said


def test_an_empty_split_is_named(registry, root):
    images, _ = paths(registry["loveda"], root)
    for file in images.iterdir():
        file.unlink()
    assert complaint(registry["loveda"], root).startswith(f"{images} holds no *.png; run ")


def test_a_tree_one_folder_too_deep_is_found(registry, root):
    folder = root / "cityscapes"
    deep = folder / "leftImg8bit_trainvaltest"
    deep.mkdir()
    (folder / "leftImg8bit").rename(deep / "leftImg8bit")
    assert complaint(registry["cityscapes"], root) == (
        f"{folder}/leftImg8bit/train is missing, but {deep}/leftImg8bit/train is there; move it up"
    )


def test_cityscapes_as_it_is_distributed_is_answered_with_the_command_that_makes_its_masks(
    registry, root
):
    _, masks = paths(registry["cityscapes"], root)
    for file in masks.glob("*/*"):
        file.rename(file.with_name(file.name.replace("labelTrainIds", "labelIds")))
    assert complaint(registry["cityscapes"], root) == (
        f"{masks} holds no *_gtFine_labelTrainIds.png; make them with `pip install "
        f"cityscapesscripts && CITYSCAPES_DATASET={root}/cityscapes csCreateTrainIdLabelImgs`"
    )


def test_a_folder_may_be_a_link_to_another_disk(registry, root):
    """MMSegmentation follows links, too."""
    images, _ = paths(registry["cityscapes"], root)
    (images / "aachen").rename(root / "elsewhere")
    (images / "aachen").symlink_to(root / "elsewhere")
    verify(registry["cityscapes"], root, counts=False)


def test_verification_opens_no_image(registry, root):
    for file in (root / "ade20k").rglob("*.*"):
        file.write_bytes(b"")
    info = registry["ade20k"].model_copy(update={"train_images": 3, "val_images": 3})
    verify(info, root)


def test_a_mask_that_cannot_be_used_is_named_when_it_is_read(registry, root):
    dataset = build(registry["ade20k"], "val", root)
    dataset.masks[0].write_bytes(dataset.masks[0].read_bytes()[:60])
    with pytest.raises(VitrailError, match=f"cannot read mask {dataset.masks[0]} .*; replace it"):
        dataset[0]
    Image.new("RGB", (172, 128)).save(dataset.masks[0])
    with pytest.raises(VitrailError, match=r"mask .* holds colours \(RGB\), not labels"):
        dataset[0]
    Image.new("L", (128, 172)).save(dataset.masks[0])
    with pytest.raises(VitrailError, match="is 128x172 pixels, its image 172x128; restore them"):
        dataset[0]


def test_lovedas_archives_are_arranged_as_mmsegmentation_reads_them(registry, tmp_path):
    info = registry["loveda"]
    arranged = write_miniature(info, tmp_path / "source", per_class=4, classes=1)
    files = []
    folder = tmp_path / "loveda"
    folder.mkdir()
    for split in ("train", "val"):
        archive = folder / f"{split.title()}.zip"
        with zipfile.ZipFile(archive, "w") as opened:
            for kind, name in (("img_dir", "images_png"), ("ann_dir", "masks_png")):
                for number, file in enumerate(sorted((arranged / kind / split).iterdir())):
                    place = ("Rural", "Urban")[number % 2]
                    opened.write(file, f"{split.title()}/{place}/{name}/{file.name}")
        remote = info.files[len(files)]
        changes = {"size": archive.stat().st_size, "md5": md5(archive)}
        files.append(RemoteFile.model_validate(remote.model_dump() | changes))
    info = info.model_copy(update={"files": files, "train_images": 4, "val_images": 4})
    assert fetch(info, tmp_path) == {"train": 4, "val": 4}
    for file in arranged.rglob("*.png"):
        assert (folder / file.relative_to(arranged)).read_bytes() == file.read_bytes()
    assert {item.name for item in folder.iterdir()} == {
        *("Train.zip", "Val.zip", "img_dir", "ann_dir", ".fetching", ".fetched-loveda.json")
    }


def md5(path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()
