"""ADE20K, Cityscapes, LoveDA, VOC 2012 and CamVid: datasets of one mask per image.

Masks are read as by MMSegmentation: 255 is ignored. If 0 means unlabelled (`reduce_zero_label`), it
becomes 255 and class n becomes n - 1. CamVid's label for void becomes 255, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from replication.images.masks import IGNORED, read_mask
from replication.images.opening import stems
from vitrail.errors import VitrailError
from vitrail.image_files import read_image

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.images.opening import Split

CAMVID_VOID = 11
"""The label of a pixel without a class in the masks of CamVid's SegNet version."""

ADE_FOLDERS: dict[Split, str] = {"train": "training", "val": "validation"}


class MaskedImages(Dataset[tuple[Image.Image, np.ndarray]]):
    """Images in one folder and their masks in another, in the order of their names."""

    def __init__(
        self,
        images: Path,
        masks: Path,
        img_suffix: str = ".jpg",
        seg_map_suffix: str = ".png",
        reduce_zero_label: bool = True,
        void: int = IGNORED,
    ):
        names = sorted(stems(images, img_suffix))
        self.images = [images / f"{name}{img_suffix}" for name in names]
        self.masks = [masks / f"{name}{seg_map_suffix}" for name in names]
        self.reduce_zero_label, self.void = reduce_zero_label, void

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Return an RGB image and its mask, (H, W) uint8, with 255 for ignored pixels."""
        image, mask = read_image(self.images[index]), read_mask(self.masks[index])
        if mask.shape != (image.height, image.width):
            raise VitrailError(
                f"mask {self.masks[index]} is {mask.shape[1]}x{mask.shape[0]} pixels, its image "
                f"{image.width}x{image.height}; restore them"
            )
        if self.reduce_zero_label:
            mask -= 1  # zero becomes 255 by itself
            mask[mask == IGNORED - 1] = IGNORED  # 255 stays 255
        mask[mask == self.void] = IGNORED
        return image, mask


def ade20k(folder: Path, split: Split) -> MaskedImages:
    """Open ADE20K (Zhou et al., 2017) as released for the scene parsing challenge of 2016."""
    name, released = ADE_FOLDERS[split], folder / "ADEChallengeData2016"
    return MaskedImages(released / "images" / name, released / "annotations" / name)


def cityscapes(folder: Path, split: Split) -> MaskedImages:
    """Open Cityscapes (Cordts et al., 2016): fine annotations, 19 classes by their train ids."""
    return MaskedImages(
        folder / "leftImg8bit" / split,
        folder / "gtFine" / split,
        img_suffix="_leftImg8bit.png",
        seg_map_suffix="_gtFine_labelTrainIds.png",
        reduce_zero_label=False,
    )


def loveda(folder: Path, split: Split) -> MaskedImages:
    """Open LoveDA (Wang et al., 2021), urban and rural scenes together."""
    return MaskedImages(folder / "img_dir" / split, folder / "ann_dir" / split, img_suffix=".png")


def voc2012(folder: Path, split: Split) -> MaskedImages:
    """Open Pascal VOC 2012 (Everingham et al.): 20 classes of objects and the background."""
    images, masks = folder / "images" / split, folder / "masks" / split
    return MaskedImages(images, masks, reduce_zero_label=False)


def camvid(folder: Path, split: Split) -> MaskedImages:
    """Open CamVid (Brostow et al., 2009) as SegNet's authors distribute it: 11 classes and void.

    Its official train images are for training, its official test images for validation; its val
    images are not read.
    """
    part = "train" if split == "train" else "test"
    images, masks = folder / "CamVid" / part, folder / "CamVid" / f"{part}annot"
    return MaskedImages(images, masks, ".png", reduce_zero_label=False, void=CAMVID_VOID)


def arrange_loveda(info: DatasetInfo, folder: Path, output: Path) -> None:
    """Move LoveDA's unpacked files from `folder` to the tree in `output` that MMSegmentation reads.

    The archives have ``{Train,Val}/{Rural,Urban}/{images_png,masks_png}``; MMSegmentation reads
    ``{img_dir,ann_dir}/{train,val}``. File names are unique.
    """
    for split in ("train", "val"):
        unpacked = folder / split.title()
        for place, target in (("images_png", "img_dir"), ("masks_png", "ann_dir")):
            into = output / target / split
            into.mkdir(parents=True)
            for file in unpacked.glob(f"*/{place}/*.png"):
                file.rename(into / file.name)
        shutil.rmtree(unpacked)
