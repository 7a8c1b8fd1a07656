"""Check that the files and folders of a dataset are complete, without opening an image."""

# decides no number

from __future__ import annotations

import itertools
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from replication.images.opening import SPLITS, build, stems
from vitrail.errors import VitrailError
from vitrail.image_files import image_files, is_hidden, is_image

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo, Images, SegmentationFormat


def check_layout(info: DatasetInfo, root: Path) -> None:
    """Check that all files and folders are in their places; VitrailError says how to get them."""
    if info.source != "bundled":
        _Tree(info, root).check_layout()


class _Tree:
    """The files of a dataset below its folder; `remedy` says how to get missing files."""

    def __init__(self, info: DatasetInfo, root: Path) -> None:
        self.info, self.folder = info, root / info.folder
        place = f"{self.folder}/{info.layout}"
        command = f"run `vitrail fetch {info.name} --data {root}`"
        self.remedy = {
            "manual": f"get it from {info.homepage} ({info.licence}) and place it as {place}",
            "made": command,
        }.get(info.source, f"{command} or place it as {place}")

    def check_layout(self) -> None:
        info, folder = self.info, self.folder
        self._require(folder.is_dir(), f"dataset '{info.name}' is not in {folder}")
        try:
            for name in info.required:
                self._require_path(folder / name, (folder / name).is_file())
            for images in info.images:
                self._check_images(images)
            self._check_same_classes()
            if info.segmentation:
                self._check_masks(info.segmentation)
        except OSError as error:
            raise VitrailError(
                f"cannot look into {error.filename} ({error.strerror}); check its permissions"
            ) from error

    def check_counts(self) -> None:
        """Count class folders, images and masks; VitrailError if there are more or fewer."""
        info = self.info
        for images in info.images:
            if images.images is not None:
                folder = self.folder / images.folder
                found, classes = _list(folder)
                if images.classes:
                    self._require_count(folder, len(classes), "class folders", images.classes)
                    found = sum(1 for name in classes for _ in image_files(folder / name))
                self._require_count(folder, found, "images", images.images)
        if form := info.segmentation:
            for split, expected in ((form.train, info.train_images), (form.val, info.val_images)):
                for path, suffix in (
                    (split.img_path, form.img_suffix),
                    (split.seg_map_path, form.seg_map_suffix),
                ):
                    folder = self.folder / path
                    self._require_count(folder, len(stems(folder, suffix)), f"*{suffix}", expected)

    def _require(self, fulfilled: object, problem: str, remedy: str | None = None) -> None:
        if not fulfilled:
            raise VitrailError(f"{problem}; {remedy or self.remedy}")

    def _require_count(self, folder: Path, found: int, what: str, expected: int) -> None:
        self._require(found == expected, f"{folder} has {found} {what} instead of {expected}")

    def _require_path(self, wanted: Path, is_there: bool) -> None:
        """Raise VitrailError for a missing path; say whether to move it, resume or get it."""
        if is_there:
            return
        way_out = f"; {self.remedy}"
        # Archives are often unpacked one folder too deep.
        for found in self.folder.glob(f"*/{wanted.relative_to(self.folder)}"):
            way_out = f", but {found} is there; move it up"
        for part in (self.folder / f"{file.name}.part" for file in self.info.files):
            if part.exists():
                way_out = f", and {part} is half downloaded; {self.remedy}"
        raise VitrailError(f"{wanted} is missing{way_out}")

    def _check_images(self, images: Images) -> None:
        folder = self.folder / images.folder
        self._require_path(folder, folder.is_dir())
        loose, classes = _list(folder)
        if images.images is None:
            found = any(image_files(folder))
            self._require(found, f"{folder} and the folders below it hold no images")
            return
        if images.classes == 0:
            self._require(loose, f"{folder} holds no images")
            return
        sort = images.if_flat and images.if_flat.format(folder=shlex.quote(str(folder)))
        self._require(not loose, f"{folder} holds {loose} images outside of class folders", sort)
        self._require(classes, f"{folder} holds no class folders")
        for name in classes:
            found = any(image_files(folder / name))
            self._require(found, f"class folder {folder / name} holds no images", "restore them")

    def _check_same_classes(self) -> None:
        """Check that all splits have the same class folders: labels are indices of their names."""
        trees = [self.folder / images.folder for images in self.info.images if images.classes]
        classes = {tree: set(_list(tree)[1]) for tree in trees}
        for tree, other in itertools.permutations(trees, 2):
            if missing := sorted(classes[other] - classes[tree]):
                raise VitrailError(
                    f"{tree} lacks class folder {missing[0]}, which {other} has; "
                    f"restore it ({len(missing)} in all)"
                )

    def _check_masks(self, form: SegmentationFormat) -> None:
        """Check that each split has images, and each image its mask."""
        make = (
            form.if_no_masks and f"make them with `{form.if_no_masks.format(folder=self.folder)}`"
        )
        for split in (form.train, form.val):
            images, masks = self.folder / split.img_path, self.folder / split.seg_map_path
            for needed in (images, masks):
                self._require_path(needed, needed.is_dir())
            named, masked = stems(images, form.img_suffix), stems(masks, form.seg_map_suffix)
            self._require(named, f"{images} holds no *{form.img_suffix}")
            self._require(masked, f"{masks} holds no *{form.seg_map_suffix}", make)
            if bare := sorted(named - masked):
                raise VitrailError(
                    f"image {images / bare[0]}{form.img_suffix} has no mask "
                    f"{masks / bare[0]}{form.seg_map_suffix}; restore it ({len(bare)} in all)"
                )


def _list(folder: Path) -> tuple[int, list[str]]:
    """Return the number of images and the names of subfolders directly in a folder."""
    images, folders = 0, []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_image(entry.name):
                images += 1
            elif not is_hidden(entry.name) and entry.is_dir():
                folders.append(entry.name)
    return images, folders


def _is_image(name: str) -> bool:
    return is_image(name) and not is_hidden(name)


def verify(info: DatasetInfo, root: Path, counts: bool = True) -> dict[str, int]:
    """Check that a dataset lies in ``root / info.folder`` as its entry says.

    With `counts`, the numbers of classes, images and masks are checked, too (a miniature has
    fewer). Returns the number of images that each split must have. Raises VitrailError, which says
    what is missing or misplaced and how to correct it.
    """
    check_layout(info, root)
    expected = {"train": info.train_images, "val": info.val_images}
    if counts and info.source != "bundled" and (info.segmentation or info.images):
        _Tree(info, root).check_counts()
    elif counts:  # a few large files, or none: only the dataset's loader can count images
        for split in SPLITS:
            found = len(build(info, split, root))  # type: ignore[arg-type]  # torch's Dataset
            if found != expected[split]:
                raise VitrailError(
                    f"the {split} split of '{info.name}' has {found} images instead of "
                    f"{expected[split]}; move {root / info.folder} away and fetch it again"
                )
    return expected
