"""``python -m replication.datasets.imagenet_val IMAGES VAL DEVKIT`` makes ImageNet's ``val``.

IMAGES holds the 50,000 validation images as the official archive does, without folders of classes.
VAL gets a folder for each synset, with links to its images. DEVKIT is the archive
``ILSVRC2012_devkit_t12.tar.gz``, from which torchvision reads the images' classes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from torchvision.datasets.imagenet import ARCHIVE_META, load_meta_file, parse_devkit_archive

from vitrail.errors import VitrailError, exit_on_error, os_errors


def synsets_of(devkit: Path) -> list[str]:
    """Return the synset of each validation image, in the order of their numbers.

    Raises:
        VitrailError: the development kit is missing or damaged.
    """
    with TemporaryDirectory() as folder:  # torchvision writes beside the archive
        Path(folder, ARCHIVE_META["devkit"][0]).symlink_to(devkit.absolute())
        try:
            parse_devkit_archive(folder)
        except (RuntimeError, OSError):
            raise VitrailError(
                f"{devkit} is not ImageNet's development kit, {ARCHIVE_META['devkit'][0]}, or is "
                "damaged; get it from https://image-net.org/download.php"
            ) from None
        return load_meta_file(folder)[1]


def link_into_classes(images: Path, val: Path, synsets: list[str]) -> int:
    """Link images named ``ILSVRC2012_val_<number>.JPEG`` to ``val/<synset>/``; return how many.

    An image's number is the place of its synset, counted from 1. Images may lie in folders, too,
    and links that exist are kept, so an interrupted call can be repeated.

    Raises:
        VitrailError: there are more or fewer images than synsets, or `val` cannot be written to.
    """
    found = sorted(images.rglob("ILSVRC2012_val_*.JPEG"))
    if len(found) != len(synsets):
        raise VitrailError(
            f"{images} holds {len(found)} images ILSVRC2012_val_*.JPEG instead of {len(synsets)}; "
            "name the folder with all of them"
        )
    with os_errors(f"cannot write to {val}", "correct its permissions and start again to go on"):
        for image in found:
            link = val / synsets[int(image.stem.rpartition("_")[2]) - 1] / image.name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(image.resolve())
    return len(found)


def main() -> None:
    """Read the command line and make the links."""
    program = "python -m replication.datasets.imagenet_val"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("images", type=Path, help="the folder with the validation images")
    parser.add_argument("val", type=Path, help="the folder to make, DATA_ROOT/imagenet/val")
    parser.add_argument("devkit", type=Path, help=ARCHIVE_META["devkit"][0])
    given = parser.parse_args()
    linked = link_into_classes(given.images, given.val, synsets_of(given.devkit))
    print(f"{given.val} has links to {linked} images")


if __name__ == "__main__":
    exit_on_error(main)
