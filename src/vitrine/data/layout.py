"""The tree that a dataset must form on disk, looked up without opening an image."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.plan.datasets import DatasetInfo, Images, SegmentationFormat

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff")


def check_layout(info: DatasetInfo, root: Path) -> None:
    """Check that every file and folder is in its place.

    Raises:
        VitrineError: one is not; says how to get it.
    """
    if info.source == "bundled":
        return
    folder = root / info.folder
    if not folder.is_dir():
        raise VitrineError(f"dataset '{info.name}' is not in {folder}; {_remedy(info, root)}")
    try:
        for name in info.required:
            if not (folder / name).is_file():
                raise _missing(info, root, folder / name)
        for images in info.images:
            _check_folder(info, root, images)
        _check_same_classes(info, folder)
        if info.segmentation:
            _check_masks(info, info.segmentation, root)
    except OSError as error:
        raise VitrineError(
            f"cannot look into {error.filename} ({error.strerror}); check its permissions"
        ) from error


def check_counts(info: DatasetInfo, root: Path) -> None:
    """Count class folders, images and masks.

    Raises:
        VitrineError: there are more or fewer than there should be.
    """

    def require(folder: Path, found: int, what: str, expected: int) -> None:
        if found != expected:
            raise VitrineError(
                f"{folder} has {found} {what} instead of {expected}; {_remedy(info, root)}"
            )

    for images in info.images:
        if images.images is None:
            continue
        folder = root / info.folder / images.folder
        found, classes = _list(folder)
        if images.classes:
            require(folder, len(classes), "class folders", images.classes)
            found = sum(_list(folder / name)[0] for name in classes)
        require(folder, found, "images", images.images)
    if form := info.segmentation:
        for split, expected in ((form.train, info.train_images), (form.val, info.val_images)):
            for path, suffix in (
                (split.img_path, form.img_suffix),
                (split.seg_map_path, form.seg_map_suffix),
            ):
                folder = root / info.folder / path
                require(folder, len(stems(folder, suffix)), f"*{suffix}", expected)


def stems(folder: Path, suffix: str) -> set[str]:
    """Names of the files below a folder that end with `suffix`, without it, with their folders."""

    def fail(error: OSError) -> None:
        raise error

    return {
        os.path.relpath(os.path.join(parent, name), folder).removesuffix(suffix)
        for parent, _, names in os.walk(folder, onerror=fail, followlinks=True)
        for name in names
        if name.endswith(suffix) and not name.startswith(".")
    }


def _remedy(info: DatasetInfo, root: Path) -> str:
    """Say how to get the dataset."""
    place = f"{root / info.folder}/{info.layout}"
    if info.source == "manual":
        return f"get it from {info.homepage} ({info.licence}) and place it as {place}"
    command = f"run `python -m vitrine fetch {info.name} --data {root}`"
    return command if info.source == "made" else f"{command} or place it as {place}"


def _missing(info: DatasetInfo, root: Path, wanted: Path) -> VitrineError:
    """Say what to do about a missing path: go on downloading, move it up, or get it."""
    folder, way_out = root / info.folder, f"; {_remedy(info, root)}"
    # Archives like to unpack one folder too deep.
    for found in folder.glob(f"*/{wanted.relative_to(folder)}"):
        way_out = f", but {found} is there; move it up"
    for part in (folder / f"{file.name}.part" for file in info.files):
        if part.exists():
            way_out = f", and {part} is half downloaded; {_remedy(info, root)}"
    return VitrineError(f"{wanted} is missing{way_out}")


def _check_folder(info: DatasetInfo, root: Path, images: Images) -> None:
    folder = root / info.folder / images.folder
    if not folder.is_dir():
        raise _missing(info, root, folder)
    loose, classes = _list(folder)
    remedy = _remedy(info, root)
    if images.images is None:
        below = (name for _, _, names in os.walk(folder, followlinks=True) for name in names)
        if not any(map(_is_image, below)):
            raise VitrineError(f"{folder} and the folders below it hold no images; {remedy}")
        return
    if images.classes == 0:
        if loose == 0:
            raise VitrineError(f"{folder} holds no images; {remedy}")
        return
    if loose:
        if images.if_flat:
            remedy = f"sort them with `{images.if_flat.format(folder=folder)}`"
        raise VitrineError(f"{folder} holds {loose} images outside of class folders; {remedy}")
    if not classes:
        raise VitrineError(f"{folder} holds no class folders; {remedy}")
    for name in classes:
        with os.scandir(folder / name) as entries:
            if not any(_is_image(entry.name) for entry in entries):
                raise VitrineError(f"class folder {folder / name} holds no images; restore them")


def _check_same_classes(info: DatasetInfo, folder: Path) -> None:
    """Labels are ranks of class folders by name, so all trees must have the same folders."""
    trees = [folder / images.folder for images in info.images if images.classes]
    classes = {tree: set(_list(tree)[1]) for tree in trees}
    for tree, other in itertools.permutations(trees, 2):
        if missing := sorted(classes[other] - classes[tree]):
            raise VitrineError(
                f"{tree} lacks class folder {missing[0]}, which {other} has; "
                f"restore it ({len(missing)} in all)"
            )


def _check_masks(info: DatasetInfo, form: SegmentationFormat, root: Path) -> None:
    """Check that each split has images, and each image its mask."""
    folder, remedy = root / info.folder, _remedy(info, root)
    for split in (form.train, form.val):
        images, masks = folder / split.img_path, folder / split.seg_map_path
        for needed in (images, masks):
            if not needed.is_dir():
                raise _missing(info, root, needed)
        named, masked = stems(images, form.img_suffix), stems(masks, form.seg_map_suffix)
        if not named:
            raise VitrineError(f"{images} holds no *{form.img_suffix}; {remedy}")
        if not masked:
            if form.if_no_masks:
                remedy = f"make them with `{form.if_no_masks.format(folder=folder)}`"
            raise VitrineError(f"{masks} holds no *{form.seg_map_suffix}; {remedy}")
        if bare := sorted(named - masked):
            raise VitrineError(
                f"image {images / bare[0]}{form.img_suffix} has no mask "
                f"{masks / bare[0]}{form.seg_map_suffix}; restore it ({len(bare)} in all)"
            )


def _list(folder: Path) -> tuple[int, list[str]]:
    """Number of images and names of subfolders directly in a folder."""
    images, folders = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_image(entry.name):
                images += 1
            elif not entry.name.startswith(".") and entry.is_dir():
                folders.append(entry.name)
    return images, folders


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")
