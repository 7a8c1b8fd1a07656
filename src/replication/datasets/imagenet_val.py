"""``python -m replication.datasets.imagenet_val FOLDER`` sorts ImageNet's validation images.

The official archive holds 50,000 images without folders, here in FOLDER. torchvision reads their
classes from the development kit, ``ILSVRC2012_devkit_t12.tar.gz``, beside FOLDER.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

from torchvision.datasets.imagenet import META_FILE, load_meta_file, parse_devkit_archive

from replication.datasets.verify import how_to_sort, may_sort
from vitrail.errors import VitrailError, exit_on_error, os_errors

IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


def labels_from_devkit(folder: Path) -> list[str]:
    """Read the synset of each validation image from the development kit in a folder.

    torchvision writes what it finds to ``meta.bin`` there; a link of this name, which leads to a
    copy of others, is removed before. Raises VitrailError if the archive is missing or damaged.
    """
    try:
        if (meta := folder / META_FILE).is_symlink():
            meta.unlink()
        parse_devkit_archive(folder)
    except (RuntimeError, OSError) as error:
        raise VitrailError(f"cannot sort images: {error}") from None
    return load_meta_file(folder)[1]


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
    """Read the command line and sort.

    Raises:
        VitrailError: the folder may be other people's.
    """
    program = "python -m replication.datasets.imagenet_val"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder val with the images")
    folder = parser.parse_args().folder.absolute()
    if folder.is_dir() and not may_sort(folder):
        remedy = how_to_sort(folder, f"{program} {shlex.quote(str(folder))}", "imagenet")
        raise VitrailError(f"the images in {folder} may be those of other people; {remedy}")
    moved = sort_into_classes(folder, labels_from_devkit(folder.parent))
    print(f"sorted {moved} images into class folders")


if __name__ == "__main__":
    exit_on_error(main)
