"""EuroSAT, Flowers, ImageNet and its subsets, and blood cells: datasets of image files.

The error for an image that cannot be decoded names its file. In a folder of class folders, the
label is the index of the class folder's name in sorted order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision import datasets

from replication.images.image_folder import ClassFolders, LabelledImages
from replication.images.opening import Split, stratified_split
from vitrail.image_files import read_image


class Flowers102(datasets.Flowers102):
    """Oxford 102 Flower (Nilsback and Zisserman, 2008) without checksums of its files."""

    _file_dict = {  # torchvision's attribute
        key: (name, None) for key, (name, _) in datasets.Flowers102._file_dict.items()
    }


def eurosat(folder: Path, split: Split) -> Dataset[Any]:
    """Open EuroSAT (Helber et al., 2019): 80 % of each class, drawn by a fixed seed, train."""
    everything = ClassFolders(folder / "2750")
    train, val = stratified_split(everything.targets, 0.8)
    return Subset(everything, train if split == "train" else val)


def eurosat_by_seed(folder: Path, split: Split, seed: int = 0) -> Dataset[Any]:
    """Open EuroSAT split as in the position paper's code: 80 % of all, drawn by `seed`, train."""
    everything = ClassFolders(folder / "2750")
    order = np.random.RandomState(seed).permutation(len(everything))
    cut = int(0.8 * len(everything))
    return Subset(everything, sorted((order[:cut] if split == "train" else order[cut:]).tolist()))


def flowers102(folder: Path, split: Split) -> Dataset[Any]:
    """Open Flowers: its train and val images train, its test images validate."""
    parts = ("train", "val") if split == "train" else ("test",)
    return ConcatDataset([Flowers102(folder, part, loader=read_image) for part in parts])


def flower_data(folder: Path, split: Split) -> ClassFolders:
    """Open Flowers as the archive ``flower_data`` splits them; its folder ``test`` is not read."""
    part = "train" if split == "train" else "valid"
    return ClassFolders(folder / "flower_data" / part)


def imagenette(folder: Path, split: Split) -> ClassFolders:
    """Open Imagenette (J. Howard), the version with a short side of 320 pixels."""
    return ClassFolders(folder / "imagenette2-320" / split)


def imagenet(folder: Path, split: Split) -> ClassFolders:
    """Open ImageNet-1k (Russakovsky et al., 2015); only the class folders are needed."""
    return ClassFolders(folder / split)


def tiny_imagenet(folder: Path, split: Split) -> LabelledImages:
    """Open Tiny-ImageNet (Stanford's course CS231n, 2015), images of 64 pixels.

    Each line of ``val_annotations.txt`` begins with the name and the class of a validation image,
    separated by a tab.
    """
    base = folder / "tiny-imagenet-200"
    if split == "train":
        return ClassFolders(base / "train")
    names = sorted((base / "wnids.txt").read_text(encoding="utf-8").split())
    labels = {name: label for label, name in enumerate(names)}
    lines = (base / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    annotated = (line.split("\t") for line in lines)
    images = base / "val" / "images"
    return LabelledImages((str(images / file), labels[name]) for file, name, *_ in annotated)


def tiny_imagenet_20(folder: Path, split: Split) -> LabelledImages:
    """Open the first 20 classes of Tiny-ImageNet, in the sorted order of their synsets' names.

    The labels are those of `tiny_imagenet`, from 0 to 19.
    """
    samples = tiny_imagenet(folder, split).samples
    return LabelledImages((path, label) for path, label in samples if label < 20)


BLOOD = ("aml_hehr", "apl", "aml_matek", "acevedo", "raabin")
"""DinoBloom's datasets besides Bone Marrow Cytomorphology (Nordström et al., Table 8)."""


def bmc(folder: Path, split: Split) -> Subset[Any]:
    """Open Bone Marrow Cytomorphology (Matek et al., 2021).

    Validation images are those that DinoBloom (Koch et al., 2024) holds out. They are listed in
    ``bm_test.csv`` of its code, with a path and a class in each line. File names are unique.
    """
    lines = (folder / "bmc" / "bm_test.csv").read_text(encoding="utf-8").splitlines()[1:]
    held_out = {Path(line.partition(",")[0]).name for line in lines}
    cells = ClassFolders(folder / "bmc" / "BM_cytomorphology_data")
    chosen = (Path(path).name in held_out for path, _ in cells.samples)
    return Subset(cells, [i for i, val in enumerate(chosen) if val == (split == "val")])


def dinobloom(folder: Path, split: Split) -> Dataset[Any]:
    """Open the images on which DinoBloom trains without labels: BMC and, to train, five others.

    The labels of the five others have no meaning: they are indices of their own class folders.
    """
    others = [ClassFolders(folder / name) for name in BLOOD]
    return ConcatDataset([bmc(folder, split), *(others if split == "train" else [])])


CELLS = ("Platelets", "RBC", "WBC")
"""BCCD's names of its cells; the index of a name is the label."""

Box = tuple[int, int, int, int]
"""Left, upper, right and lower bound, in pixels; the right and the lower are exclusive."""


class CellCrops(Dataset[tuple[Image.Image, int]]):
    """One square crop for each labelled cell of a set of pictures.

    Attributes:
        cells: for each cell the path of its picture, its box in the picture, and its label.
    """

    def __init__(self, cells: list[tuple[Path, Box, int]]) -> None:
        self.cells = cells

    @property
    def targets(self) -> list[int]:
        """The labels of the cells."""
        return [label for _, _, label in self.cells]

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, box, label = self.cells[index]
        picture = read_image(path)
        return picture.crop(square_around(box, picture.size)), label


def square_around(box: Box, size: tuple[int, int]) -> Box:
    """Return the square around the centre of a box, with the box's longer side as its side.

    `size` is the picture's (width, height). The side is at most the shorter of these, and the
    square is moved so that it lies within the picture.
    """
    side = min(max(box[2] - box[0], box[3] - box[1]), *size)
    left, upper = (
        min(max((box[axis] + box[axis + 2] - side) // 2, 0), size[axis] - side) for axis in (0, 1)
    )
    return left, upper, left + side, upper + side


def bccd(folder: Path, split: Split) -> CellCrops:
    """Open BCCD (github.com/Shenggan/BCCD_Dataset) as one image for each labelled cell.

    The split is the dataset's own, by picture: pictures of ``ImageSets/Main/trainval.txt`` are for
    training, those of ``test.txt`` for validation. Crops are those of `square_around`, in the order
    of the pictures' names and of the boxes in a picture's file. Boxes without a pixel, two of
    4,888, are left out.
    """
    base = folder / "BCCD"
    part = "trainval" if split == "train" else "test"
    names = (base / "ImageSets" / "Main" / f"{part}.txt").read_text(encoding="utf-8").split()
    return CellCrops([cell for name in sorted(names) for cell in _cells_of(base, name)])


def _cells_of(base: Path, name: str) -> Iterator[tuple[Path, Box, int]]:
    """Yield the cells of a picture as its annotation, in Pascal VOC's format, lists them."""
    annotation = ElementTree.parse(base / "Annotations" / f"{name}.xml")
    for cell in annotation.iterfind("object"):
        sides = [int(cell.findtext(f"bndbox/{side}", "")) for side in BOX_SIDES]
        box = (sides[0], sides[1], sides[2], sides[3])
        if box[0] < box[2] and box[1] < box[3]:
            label = CELLS.index(cell.findtext("name", ""))
            yield base / "JPEGImages" / f"{name}.jpg", box, label


BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
"""Pascal VOC's names of the sides of a box."""
