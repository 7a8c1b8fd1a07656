"""The tree that a dataset must form on disk, looked up without opening an image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.plan.datasets import DatasetInfo, Images, SegmentationFormat

SUFFIXES = (".jpg", ".jpeg", ".png")


def check_layout(info: DatasetInfo, root: Path) -> None:
    """Check that every file and folder is in its place.

    Raises:
        VitrineError: one is not; says how to get it.
    """
    if info.source == "bundled":
        return
    folder = root / info.folder
    if not folder.is_dir():
        raise VitrineError(f"dataset '{info.name}' is not in {folder}; {remedy(info, root)}")
    try:
        for name in info.required:
            _check_file(info, root, folder / name)
        for images in info.images:
            _check_folder(info, root, images)
        _check_same_classes(info, folder)
        if info.segmentation:
            _check_masks(info, info.segmentation, root)
    except OSError as error:
        raise VitrineError(
            f"cannot look into {error.filename} ({error.strerror}); check its permissions"
        ) from error


def remedy(info: DatasetInfo, root: Path) -> str:
    """Say how to get the dataset."""
    place = f"{root / info.folder}/{info.layout}"
    if info.source == "manual":
        return f"get it from {info.homepage} ({info.licence}) and place it as {place}"
    command = f"run `python -m vitrine.data {info.name} --data {root}`"
    return command if info.source == "made" else f"{command} or place it as {place}"


def _check_file(info: DatasetInfo, root: Path, file: Path) -> None:
    if not file.is_file():
        raise VitrineError(f"{file} is missing{_way_out(info, root, file)}")


def _check_folder(info: DatasetInfo, root: Path, images: Images) -> None:
    folder = root / info.folder / images.folder
    if not folder.is_dir():
        raise VitrineError(f"{folder} is missing{_way_out(info, root, folder)}")
    loose, classes = _list(folder)
    if images.classes == 0:
        if loose == 0:
            raise VitrineError(f"{folder} holds no images; {remedy(info, root)}")
        return
    if loose:
        sort = (
            f"sort them with `{images.if_flat.format(folder=folder)}`"
            if images.if_flat
            else remedy(info, root)
        )
        raise VitrineError(f"{folder} holds {loose} images outside of class folders; {sort}")
    if not classes:
        raise VitrineError(f"{folder} holds no class folders; {remedy(info, root)}")
    for name in classes:
        with os.scandir(folder / name) as entries:
            if not any(_is_image(entry.name) for entry in entries):
                raise VitrineError(f"class folder {folder / name} holds no images; restore them")


def _way_out(info: DatasetInfo, root: Path, wanted: Path) -> str:
    """Say what to do about a missing path: go on downloading, move it up, or get it."""
    folder = root / info.folder
    for file in info.files:
        part = folder / f"{file.name}.part"
        if part.exists():
            return f", and {part} is half downloaded; {remedy(info, root)}"
    # Archives like to unpack one folder too deep.
    for found in folder.glob(f"*/{wanted.relative_to(folder)}"):
        return f", but {found} is there; move it up"
    return f"; {remedy(info, root)}"


def _check_same_classes(info: DatasetInfo, folder: Path) -> None:
    """Labels are ranks of class folders by name, so all trees must have the same folders."""
    trees = {
        folder / images.folder: set(_list(folder / images.folder)[1])
        for images in info.images
        if images.classes
    }
    for tree, classes in trees.items():
        for other, others in trees.items():
            if missing := sorted(others - classes):
                raise VitrineError(
                    f"{tree} lacks class folder {missing[0]}, which {other} has; "
                    f"restore it ({len(missing)} in all)"
                )


def check_counts(info: DatasetInfo, images: Images, root: Path) -> None:
    """Count the class folders and images of one tree.

    Raises:
        VitrineError: there are more or fewer than there should be.
    """
    folder = root / info.folder / images.folder
    found, classes = _list(folder)
    if images.classes:
        if len(classes) != images.classes:
            raise VitrineError(
                f"{folder} has {len(classes)} class folders instead of {images.classes}; "
                f"{remedy(info, root)}"
            )
        found = sum(_list(folder / name)[0] for name in classes)
    if found != images.images:
        raise VitrineError(
            f"{folder} has {found} images instead of {images.images}; {remedy(info, root)}"
        )


def _check_masks(info: DatasetInfo, form: SegmentationFormat, root: Path) -> None:
    """Check that each split has images, and each image its mask."""
    folder = root / info.folder
    for split in (form.train, form.val):
        images, masks = folder / split.img_path, folder / split.seg_map_path
        for needed in (images, masks):
            if not needed.is_dir():
                raise VitrineError(f"{needed} is missing{_way_out(info, root, needed)}")
        named, masked = stems(images, form.img_suffix), stems(masks, form.seg_map_suffix)
        if not named:
            raise VitrineError(f"{images} holds no *{form.img_suffix}; {remedy(info, root)}")
        if not masked:
            way_out = (
                f"make them with `{form.if_no_masks.format(folder=folder)}`"
                if form.if_no_masks
                else remedy(info, root)
            )
            raise VitrineError(f"{masks} holds no *{form.seg_map_suffix}; {way_out}")
        if bare := sorted(named - masked):
            raise VitrineError(
                f"image {images / bare[0]}{form.img_suffix} has no mask "
                f"{masks / bare[0]}{form.seg_map_suffix}; restore it ({len(bare)} in all)"
            )


def check_mask_counts(info: DatasetInfo, form: SegmentationFormat, root: Path) -> None:
    """Count the images and masks of both splits.

    Raises:
        VitrineError: there are more or fewer than there should be.
    """
    for split, expected in ((form.train, info.train_images), (form.val, info.val_images)):
        for path, suffix in (
            (split.img_path, form.img_suffix),
            (split.seg_map_path, form.seg_map_suffix),
        ):
            folder = root / info.folder / path
            if (found := len(stems(folder, suffix))) != expected:
                raise VitrineError(
                    f"{folder} has {found} *{suffix} instead of {expected}; {remedy(info, root)}"
                )


def stems(folder: Path, suffix: str) -> set[str]:
    """Names of the files below a folder that end with `suffix`, without it, with their folders."""
    return {
        os.path.relpath(os.path.join(parent, name), folder).removesuffix(suffix)
        for parent, _, names in os.walk(folder, onerror=_raise, followlinks=True)
        for name in names
        if name.endswith(suffix) and not name.startswith(".")
    }


def _raise(error: OSError) -> None:
    raise error


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
