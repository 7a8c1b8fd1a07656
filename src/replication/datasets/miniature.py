"""Miniatures: a few generated images in the on-disk format of a real dataset.

They are verified and read by the same code as the dataset, so a test, or a `fast_dev_run`, covers
everything but the size. Images of a class are noise around a colour of the class. Every dataset of
``configs/datasets.yaml`` that has files has a miniature; `replication.config.datasets.miniature_of`
makes its entry.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from scipy.io import savemat
from torchvision.datasets import Imagenette

from replication.datasets.folders import BLOOD, BOX_SIDES, CELLS
from replication.datasets.placed_images import ORIGINALS
from replication.datasets.segmentation import CAMVID_VOID
from replication.images.masks import IGNORED
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo, SegmentationFormat

Picture = Callable[[int], np.ndarray]
"""Make a new (32, 32, 3) uint8 image of a class."""


def write(info: DatasetInfo, folder: Path, output: Path) -> None:
    """Write the images of a miniature's entry to `output`; `folder` is not used.

    There is one validation image of each class, and the same number of training images for each.
    """
    labels = list(range(info.val_images))
    _write(info, output, labels, info.train_images // info.val_images)


def write_miniature(info: DatasetInfo, root: Path, per_class: int = 2, classes: int = 3) -> Path:
    """Write a miniature to ``root / info.folder``, where `build` finds it; return that folder.

    Each split gets `per_class` images of each of the first `classes` classes (EuroSAT, which is
    split 4 to 1 when it is read, gets four times as many for training). If images have masks, each
    image shows all these classes. Raises VitrailError if the dataset has no files.
    """
    labels = [label for label in range(min(classes, info.classes)) for _ in range(per_class)]
    _write(info, root / info.folder, labels, 1)
    return root / info.folder


def _write(info: DatasetInfo, folder: Path, val: list[int], ratio: int) -> None:
    """Write validation images of these labels, and `ratio` times as many for training."""
    if info.loader not in WRITERS and not info.segmentation:
        raise VitrailError(
            f"dataset '{info.name}' has no format on disk to imitate; it comes with a package"
        )
    random = np.random.RandomState(0)
    tint = random.randint(40, 216, (info.classes, 3))

    def paint(label: int) -> np.ndarray:
        noise = random.randint(-40, 41, (32, 32, 3))
        return (tint[label] + noise).clip(0, 255).astype(np.uint8)

    labels = {"train": sorted(val * ratio), "val": val}
    if info.segmentation:
        _write_masked(folder, info.segmentation, info.loader, labels, tint, random)
    else:
        WRITERS[info.loader](folder, labels, paint)


Labels = dict[str, list[int]]
"""The label of each image, for the splits ``train`` and ``val``."""


def _write_cifar10(folder: Path, labels: Labels, paint: Picture) -> None:
    base = folder / "cifar-10-batches-py"
    enough = np.resize(labels["train"], max(len(labels["train"]), 5))  # no batch may be empty
    for number, part in enumerate(np.array_split(enough, 5), start=1):
        batch = {"data": _rows(part, paint), "labels": part.tolist()}
        _write_pickle(base / f"data_batch_{number}", batch)
    _write_pickle(
        base / "test_batch", {"data": _rows(labels["val"], paint), "labels": labels["val"]}
    )


def _write_cifar10_10k(folder: Path, labels: Labels, paint: Picture) -> None:
    # The reader takes the first of five batches, which are all the same here.
    _write_cifar10(folder, {**labels, "train": labels["train"] * 5}, paint)


def _write_cifar10_position(folder: Path, labels: Labels, paint: Picture) -> None:
    # On disk it is CIFAR-10. Negative indices, so that two labels already give both kinds of class.
    of_cifar = {split: [int(ORIGINALS[-label % 10]) for label in labels[split]] for split in labels}
    _write_cifar10(folder, of_cifar, paint)


def _write_cifar10_position_10k(folder: Path, labels: Labels, paint: Picture) -> None:
    _write_cifar10_position(folder, {**labels, "train": labels["train"] * 5}, paint)


def _write_cifar100(folder: Path, labels: Labels, paint: Picture) -> None:
    for name, fine in (("train", labels["train"]), ("test", labels["val"])):
        coarse = [label // 5 for label in fine]
        data = {"data": _rows(fine, paint), "fine_labels": fine, "coarse_labels": coarse}
        _write_pickle(folder / "cifar-100-python" / name, data)


def _write_svhn(folder: Path, labels: Labels, paint: Picture) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, shown in (("train", labels["train"]), ("test", labels["val"])):
        if not shown:
            continue
        images = np.stack([paint(label) for label in shown], axis=-1)  # (32, 32, 3, N)
        digits = np.array([[label or 10] for label in shown], dtype=np.uint8)  # zero is 10
        savemat(folder / f"{name}_32x32.mat", {"X": images, "y": digits})


def _write_svhn_10k(folder: Path, labels: Labels, paint: Picture) -> None:
    # The reader splits the test images 4 to 1.
    _write_svhn(folder, {"train": [], "val": sorted(labels["val"] * 4) + labels["val"]}, paint)


def _write_eurosat(folder: Path, labels: Labels, paint: Picture) -> None:
    for number, label in enumerate(labels["val"] * 5):  # the reader splits each class 4 to 1
        name = f"Class{label}"
        _write_image(folder / "2750" / name / f"{name}_{number + 1}.jpg", paint(label))


def _write_flowers102(folder: Path, labels: Labels, paint: Picture) -> None:
    base, everything = folder / "flowers-102", labels["train"] + labels["val"]
    for number, label in enumerate(everything, start=1):
        _write_image(base / "jpg" / f"image_{number:05d}.jpg", paint(label))
    savemat(base / "imagelabels.mat", {"labels": np.array([everything]) + 1})
    numbers, trained = np.arange(1, len(everything) + 1)[None], len(labels["train"])
    # The training images are those of its own train and val.
    parts = np.split(numbers, [trained // 2, trained], axis=1)
    savemat(base / "setid.mat", dict(zip(("trnid", "valid", "tstid"), parts, strict=True)))


def _write_flower_data(folder: Path, labels: Labels, paint: Picture) -> None:
    for split, part in (("train", "train"), ("val", "valid")):
        for number, label in enumerate(labels[split], start=1):
            file = folder / "flower_data" / part / str(label + 1) / f"image_{number:05d}.jpg"
            _write_image(file, paint(label))


def _write_synsets(
    below: str, synsets: list[str], folder: Path, labels: Labels, paint: Picture
) -> None:
    for split, shown in labels.items():
        for number, label in enumerate(shown, start=1):
            name = synsets[label]
            _write_image(folder / below / split / name / f"{name}_{number}.JPEG", paint(label))


def _write_tiny_imagenet(folder: Path, labels: Labels, paint: Picture) -> None:
    base, lines = folder / "tiny-imagenet-200", []
    for number, label in enumerate(labels["train"]):
        name = SYNSETS[label]
        _write_image(base / "train" / name / "images" / f"{name}_{number}.JPEG", paint(label))
    for number, label in enumerate(labels["val"]):
        _write_image(base / "val" / "images" / f"val_{number}.JPEG", paint(label))
        lines += [f"val_{number}.JPEG\t{SYNSETS[label]}\t0\t0\t31\t31\n"]
    (base / "val" / "val_annotations.txt").write_text("".join(lines), encoding="utf-8")
    (base / "wnids.txt").write_text(
        "\n".join(SYNSETS[label] for label in sorted({*labels["train"]})), encoding="utf-8"
    )


def _write_bmc(folder: Path, labels: Labels, paint: Picture) -> None:
    lines, base = ["Image Path,Label"], folder / "bmc"
    for number, label in enumerate(labels["train"] + labels["val"], start=1):
        name, held_out = f"C{label:02d}", number > len(labels["train"])
        lines += [f"test/{name}/{name}_{number:05d}.jpg,{name}"] * held_out
        file = base / "BM_cytomorphology_data" / name / "0001-1000" / f"{name}_{number:05d}.jpg"
        _write_image(file, paint(label))
    (base / "bm_test.csv").write_text("\n".join(lines), encoding="utf-8")


def _write_dinobloom(folder: Path, labels: Labels, paint: Picture) -> None:
    """Write training images in turn to BMC and the five other datasets."""
    parts = len(BLOOD) + 1
    _write_bmc(folder, {**labels, "train": labels["train"][::parts]}, paint)
    for place, other in enumerate(BLOOD, start=1):
        for number, label in enumerate(labels["train"][place::parts]):
            _write_image(folder / other / f"C{label:02d}" / f"{number}.tif", paint(label))


def _write_bccd(folder: Path, labels: Labels, paint: Picture) -> None:
    """Write pictures of four cells, each in a quarter of its picture."""
    base, pictures = folder / "BCCD", 0
    for split, part in (("train", "trainval"), ("val", "test")):
        names = []
        for first in range(0, len(labels[split]), 4):
            cells = labels[split][first : first + 4]
            names += [f"BloodImage_{pictures:05d}"]
            pictures += 1
            _write_cells(base, names[-1], cells, paint)
        file = base / "ImageSets" / "Main" / f"{part}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(names) + "\n", encoding="utf-8")


def _write_cells(base: Path, name: str, cells: list[int], paint: Picture) -> None:
    picture = np.full((64, 64, 3), 230, dtype=np.uint8)
    annotation = ElementTree.Element("annotation")
    for (top, left), label in zip(((0, 0), (0, 32), (32, 0), (32, 32)), cells, strict=False):
        picture[top : top + 32, left : left + 32] = paint(label)
        cell = ElementTree.SubElement(annotation, "object")
        ElementTree.SubElement(cell, "name").text = CELLS[label]
        box = ElementTree.SubElement(cell, "bndbox")
        for side, place in zip(BOX_SIDES, (left, top, left + 32, top + 32), strict=True):
            ElementTree.SubElement(box, side).text = str(place)
    _write_image(base / "JPEGImages" / f"{name}.jpg", picture)
    file = base / "Annotations" / f"{name}.xml"
    file.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(annotation).write(file)


SYNSETS = [f"n{label:08d}" for label in range(1000)]
"""Names of class folders in ImageNet's format."""

WRITERS: dict[str, Callable[[Path, Labels, Picture], None]] = {
    "replication.datasets.arrays:cifar10": _write_cifar10,
    "replication.datasets.arrays:cifar10_10k": _write_cifar10_10k,
    "replication.datasets.positions:cifar10_position": _write_cifar10_position,
    "replication.datasets.positions:cifar10_position_redrawn": _write_cifar10_position,
    "replication.datasets.positions:cifar10_position_10k": _write_cifar10_position_10k,
    "replication.datasets.positions:cifar10_position_10k_redrawn": _write_cifar10_position_10k,
    "replication.datasets.arrays:cifar100": _write_cifar100,
    "replication.datasets.arrays:svhn": _write_svhn,
    "replication.datasets.arrays:svhn_10k": _write_svhn_10k,
    "replication.datasets.folders:eurosat": _write_eurosat,
    "replication.datasets.folders:eurosat_by_seed": _write_eurosat,
    "replication.datasets.folders:bmc": _write_bmc,
    "replication.datasets.folders:dinobloom": _write_dinobloom,
    "replication.datasets.folders:bccd": _write_bccd,
    "replication.datasets.folders:flowers102": _write_flowers102,
    "replication.datasets.folders:flower_data": _write_flower_data,
    "replication.datasets.folders:imagenette": partial(
        _write_synsets, "imagenette2-320", sorted(Imagenette._WNID_TO_CLASS)
    ),
    "replication.datasets.folders:imagenet": partial(_write_synsets, "", SYNSETS),
    "replication.datasets.folders:tiny_imagenet": _write_tiny_imagenet,
    "replication.datasets.folders:tiny_imagenet_20": _write_tiny_imagenet,
}


SCENERY = {
    "replication.datasets.segmentation:ade20k": (172, 128, "ADE_{split}_{number:08d}", 0),
    "replication.datasets.segmentation:cityscapes": (
        256,
        128,
        "{city}/{city}_{number:06d}",
        IGNORED,
    ),
    "replication.datasets.segmentation:loveda": (128, 128, "{number}", 0),
    "replication.datasets.segmentation:voc2012": (128, 96, "{number:06d}", IGNORED),
    "replication.datasets.segmentation:camvid": (128, 96, "0001TP_{number:06d}", CAMVID_VOID),
}
"""For each dataset with masks: width and height (in its aspect ratio), names, the ignored label.

If that label is 0, the classes count from 1.
"""


def _write_masked(
    folder: Path,
    form: SegmentationFormat,
    loader: str,
    labels: Labels,
    tint: np.ndarray,
    random: np.random.RandomState,
) -> None:
    """Write one image for each label; its 4x4 cells show all labels and ignored pixels."""
    width, height, names, void = SCENERY[loader]
    colours = np.concatenate([tint, np.full((256 - len(tint), 3), 128)])  # (256, 3)
    cells, cell = np.resize([IGNORED, *set(labels["val"])], 16), (height // 4, width // 4)
    for split, city, paths in (("train", "aachen", form.train), ("val", "munster", form.val)):
        for number in range(len(labels[split])):
            name = names.format(split=split, city=city, number=number)
            mask = np.kron(random.permutation(cells).reshape(4, 4), np.ones(cell)).astype(np.uint8)
            noise = random.randint(-40, 41, (*mask.shape, 3))
            pixels = (colours[mask] + noise).clip(0, 255).astype(np.uint8)
            _write_image(folder / paths.img_path / f"{name}{form.img_suffix}", pixels)
            stored = np.where(mask == IGNORED, void, mask + (void == 0))
            file = folder / paths.seg_map_path / f"{name}{form.seg_map_suffix}"
            _write_image(file, stored.astype(np.uint8))


def _rows(labels: Any, paint: Picture) -> np.ndarray:
    """Return images in CIFAR's format: (N, 3072) uint8, all red, then green, then blue values."""
    return np.array([paint(label).transpose(2, 0, 1).reshape(-1) for label in labels])


def _write_pickle(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(data, protocol=2))


def _write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
