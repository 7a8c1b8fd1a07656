"""EuroSAT, Flowers, Imagenette and ImageNet: datasets of one file per image.

torchvision reads them; an image that cannot be decoded is named in the error. The labels of a
folder of class folders are the ranks of their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision import datasets

from vitrine.data.splits import stratified_split
from vitrine.errors import VitrineError

if TYPE_CHECKING:
    from vitrine.data.opening import Split


def read_image(path: str | Path) -> Image.Image:
    """Decode an image file as RGB.

    Raises:
        VitrineError: the file is damaged or gone.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise VitrineError(f"cannot read image {path} ({error}); restore it") from error


class Flowers102(datasets.Flowers102):
    """Oxford 102 Flower (Nilsback and Zisserman, 2008) without checksums of its files."""

    _file_dict = {  # torchvision's attribute
        key: (name, None) for key, (name, _) in datasets.Flowers102._file_dict.items()
    }


def eurosat(folder: Path, split: Split) -> Dataset[Any]:
    """Open EuroSAT (Helber et al., 2019): 80 % of each class train, by a fixed seed."""
    everything = datasets.ImageFolder(folder / "2750", loader=read_image)
    train, val = stratified_split(everything.targets, 0.8)
    return Subset(everything, train if split == "train" else val)


def flowers102(folder: Path, split: Split) -> Dataset[Any]:
    """Open Flowers: its train and val images train, its test images validate."""
    parts = ("train", "val") if split == "train" else ("test",)
    return ConcatDataset([Flowers102(folder, part, loader=read_image) for part in parts])


def imagenette(folder: Path, split: Split) -> datasets.Imagenette:
    """Open Imagenette (J. Howard), the version with a short side of 320 pixels."""
    return datasets.Imagenette(folder, split, size="320px", loader=read_image)


def imagenet(folder: Path, split: Split) -> datasets.ImageFolder:
    """Open ImageNet-1k (Russakovsky et al., 2015); only the class folders are needed."""
    return datasets.ImageFolder(folder / split, loader=read_image)
