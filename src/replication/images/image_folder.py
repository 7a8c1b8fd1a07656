"""Datasets of image files with labels, such as one folder for each class."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset

from vitrail.image_files import image_files, is_hidden, read_image


class LabelledImages(Dataset[tuple[Image.Image, int]]):
    """Image files with their labels; a file is decoded at each access.

    Attributes:
        samples: the path and the label of each image.
    """

    def __init__(self, samples: Iterable[tuple[str, int]]) -> None:
        self.samples = list(samples)

    @property
    def targets(self) -> list[int]:
        """The labels of the images."""
        return [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_image(path), label


class ClassFolders(LabelledImages):
    """The images in and below a folder's subfolders, which are the classes.

    The label is the index of the subfolder's name in sorted order. Images are in the order of
    torchvision's ``ImageFolder``: by class, folder and name. Hidden files and folders are left out
    (`visible_files`).

    Attributes:
        classes: the names of the subfolders, sorted.

    Raises:
        OSError: the folder cannot be read, or has no subfolder, or one without an image.
    """

    def __init__(self, folder: str | Path) -> None:
        with os.scandir(folder) as entries:
            names = (entry.name for entry in entries if entry.is_dir())
            self.classes = sorted(name for name in names if not is_hidden(name))
        if not self.classes:
            raise FileNotFoundError(f"{folder} has no class folders")
        samples: list[tuple[str, int]] = []
        for label, name in enumerate(self.classes):
            files = sorted(image_files(Path(folder, name)), key=os.path.split)
            if not files:
                raise FileNotFoundError(f"class folder {Path(folder, name)} has no images")
            samples += [(file, label) for file in files]
        super().__init__(samples)
