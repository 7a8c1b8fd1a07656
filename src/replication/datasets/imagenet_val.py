"""``python -m replication.datasets.imagenet_val`` sorts ImageNet's validation images into folders.

The official archive holds 50,000 images without folders. Their classes are in the development
kit: ``data/ILSVRC2012_validation_ground_truth.txt``, by numbers that ``data/meta.mat`` explains.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from scipy.io import loadmat

from vitrail.errors import VitrailError, exit_on_error, os_errors

IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


def labels_from_devkit(devkit: Path) -> list[str]:
    """Read the synset of each validation image from an unpacked development kit.

    Raises VitrailError if the folder lacks one of its two files, or they are not that kit's.
    """
    meta = devkit / "data" / "meta.mat"
    truth = devkit / "data" / "ILSVRC2012_validation_ground_truth.txt"
    for file in (meta, truth):
        if not file.is_file():
            raise VitrailError(
                f"{file} is missing; unpack ILSVRC2012_devkit_t12.tar.gz and name its folder"
            )
    try:
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        by_number = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
        return [by_number[int(number)] for number in truth.read_text(encoding="utf-8").split()]
    except Exception as error:  # a .mat file fails in as many ways as it has bytes
        raise VitrailError(
            f"{devkit} is damaged or not the development kit of ILSVRC 2012 "
            f"({type(error).__name__}: {error}); unpack ILSVRC2012_devkit_t12.tar.gz again"
        ) from error


def sort_into_classes(folder: Path, labels: list[str]) -> int:
    """Move ``ILSVRC2012_val_<number>.JPEG`` to the folder of its synset; return how many moved.

    The number in an image's name is the index of its label, counted from 1, so an interrupted call
    can be repeated. Raises VitrailError if there is no image to move, an image has no label (then
    none is moved), or the folder cannot be written.
    """
    images = {
        int(match[1]): file for file in folder.glob("*") if (match := IMAGE.fullmatch(file.name))
    }
    if not images:
        raise VitrailError(
            f"{folder} holds no ILSVRC2012_val_*.JPEG to sort; unpack ILSVRC2012_img_val.tar there"
        )
    if max(images) > len(labels):
        raise VitrailError(
            f"{folder} has an image {max(images)} but there are only {len(labels)} labels; "
            "use the labels of the whole validation set"
        )
    with os_errors(f"cannot sort {folder}", "correct its permissions and start again to go on"):
        for number, image in images.items():
            target = folder / labels[number - 1]
            target.mkdir(exist_ok=True)
            image.rename(target / image.name)
    return len(images)


def main() -> None:
    """Read the command line and sort."""
    parser = argparse.ArgumentParser(
        prog="python -m replication.datasets.imagenet_val", description=__doc__
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder val with the images")
    parser.add_argument(
        "--devkit", type=Path, required=True, help="the unpacked ILSVRC2012_devkit_t12"
    )
    args = parser.parse_args()
    moved = sort_into_classes(args.root, labels_from_devkit(args.devkit))
    print(f"sorted {moved} images into class folders")


if __name__ == "__main__":
    exit_on_error(main)
