"""What a command about one model is given: the model, a folder of images, a device.

The model is one that timm makes: of its own names with its weights or those of a file, or of a
`hf-hub:` or `local-dir:` that has timm's ``config.json``.
"""

from __future__ import annotations

import hashlib
import os
import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from timm.data import ImageNetInfo, create_transform, resolve_model_data_config
from timm.models import clean_state_dict
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets.folder import IMG_EXTENSIONS

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.factory import require_model, torch_device
from vitrail.files import sha256
from vitrail.images.decoding import read_image
from vitrail.images.loading import evenly_spread
from vitrail.measures.position_shap.shapley import UNKNOWN
from vitrail.weights_file import read_weights


class Listed(Dataset[tuple[Image.Image, int]]):
    """Images by path, each with its label."""

    def __init__(self, samples: list[tuple[Path, int]]):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_image(path), label


class Folder(Listed):
    """A folder's images, also those of its subfolders, in the order of their paths.

    Labels are known (`labelled`) where the images lie in folders of the model's own classes: named
    by ImageNet's synsets where the model has its 1,000 classes, else as many as the model's. If
    not, all are `UNKNOWN`. `images` are taken, spread evenly; None is all.

    Raises:
        VitrailError: there is no such folder, or no image in it.
    """

    def __init__(self, folder: Path, classes: int, images: int | None = None):
        found = [(path, str(path.parent.relative_to(folder))) for path in find_images(folder)]
        found.sort()
        own = sorted({name for _, name in found})
        synsets = ImageNetInfo().label_names()
        names = synsets if classes == len(synsets) and set(own) <= set(synsets) else own
        self.labelled = len(names) == classes
        self.names, self.folders, self.available = names, len(own), len(found)
        ranks = {name: rank for rank, name in enumerate(names)} if self.labelled else {}
        chosen = (found[index] for index in evenly_spread(len(found), images))
        self.folder = folder
        super().__init__([(path, ranks.get(name, UNKNOWN)) for path, name in chosen])

    def told_labels(self, most: int = 12) -> str:
        """The first labels with the names of their folders, to check their order."""
        told = [f"{label} {name}" for label, name in enumerate(self.names[:most])]
        return ", ".join([*told, *["..."] * (len(self.names) > most)])

    def leave_out_damaged(self, workers: int = 0) -> list[str]:
        """Decode every image once, drop those that cannot be read, and say why of each of them.

        Raises:
            VitrailError: no image can be read.
        """
        own = torch.Generator()  # so that reading draws nothing from torch's
        images = _Damages(self.samples)
        reasons = list(DataLoader(images, batch_size=None, num_workers=workers, generator=own))
        whole = [sample for sample, why in zip(self.samples, reasons, strict=True) if not why]
        damaged = [why for why in reasons if why]
        if not whole:
            raise VitrailError(f"no image of {self.folder} can be read: {damaged[0]}")
        self.samples = whole
        return damaged

    def digest(self) -> str:
        """Return a digest of all images' paths below the folder, contents and labels."""
        noted = hashlib.sha256()
        for path, label in self.samples:
            entry = (str(path.relative_to(self.folder)), sha256(path), label)
            noted.update(f"{entry!r}\n".encode())
        return noted.hexdigest()[:16]


class _Damages(Dataset[str]):
    """Why an image cannot be read; "" if it can."""

    def __init__(self, samples: list[tuple[Path, int]]):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> str:
        try:
            read_image(self.samples[index][0])
        except VitrailError as error:
            return str(error)
        return ""


def find_images(folder: Path) -> Iterator[Path]:
    """Find a folder's images, also those of its subfolders and of folders that are links.

    Raises:
        VitrailError: there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise VitrailError(f"there is no folder {folder}: give --data a folder of images")
    named = (path for path in _files_below(folder) if path.suffix.lower() in IMG_EXTENSIONS)
    found = filter(Path.is_file, named)
    if (first := next(found, None)) is None:
        raise VitrailError(f"{folder} has no images: give --data a folder with some")
    return chain([first], found)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files; a link to a folder that holds it would never end, and is not followed."""
    for parent, folders, files in os.walk(folder, followlinks=True):
        here = Path(parent).resolve()
        folders[:] = [name for name in folders if not here.is_relative_to((here / name).resolve())]
        yield from (Path(parent, name) for name in files)


def require_device(device: str | None) -> str:
    """Return torch's name of a device, by default CUDA where there is one; refuse an absent one."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=torch_device(device))
    except (AssertionError, RuntimeError):  # what torch raises depends on the kind of device
        raise VitrailError(f"torch cannot use device '{device}' here: use 'cpu'") from None
    return device


def create(name: str, pretrained: bool, checkpoint: Path | None = None) -> Any:
    """Make a model in evaluation mode, with its published weights, those of a file, or random ones.

    A `checkpoint` has as many classes as its classifier.

    Raises:
        VitrailError: timm cannot make it, its weights cannot be fetched, or the file's do not fit
            or are of images of another size, or what it says of its images makes no sense.
    """
    options: dict[str, Any] = {}
    weights: dict[str, torch.Tensor] = {}
    if ":" not in name:  # timm itself reads hf-hub:... and local-dir:...
        require_model(name)
    elif checkpoint is not None:
        raise VitrailError(f"--checkpoint is for a model of timm's own names, not '{name}'")
    if checkpoint is not None:
        weights = clean_state_dict(read_weights(checkpoint))
        heads = getattr(timm.get_pretrained_cfg(name), "classifier", None) or "head"
        head = heads if isinstance(heads, str) else heads[0]
        if f"{head}.weight" not in weights:
            raise VitrailError(
                f"{checkpoint} has no classifier '{head}', which {name} has: give the name of the "
                "model that it was saved from, or weights with a classifier"
            )
        classes = {"num_classes": len(weights[f"{head}.weight"])}
        options = {"pretrained_cfg_overlay": {"state_dict": weights} | classes} | classes
    try:
        pretrained = pretrained or checkpoint is not None
        model = timm.create_model(name, pretrained=pretrained, **options).eval()
    except Exception as error:  # of a network, a folder, a tag, or weights that do not fit
        reason = textwrap.shorten(str(error) or type(error).__name__, 240).rstrip(". ")
        remedies = [f"correct {'--checkpoint or ' if options else ''}the model's name"]
        if name.startswith("local-dir:"):
            remedies = ["name the folder of a model that timm's save_for_hf has written"]
        elif isinstance(error, OSError):  # as those of huggingface_hub are
            remedies.append("run this once where there is a network")
        if pretrained and ":" not in name and not options:
            remedies.append("give --checkpoint FILE, or --no-pretrained for random weights")
        raise VitrailError(
            f"model '{name}' cannot be made with these weights ({reason}): {', or '.join(remedies)}"
        ) from None
    _require_view(name, model)
    own = model.state_dict()
    for part, weight in weights.items():  # timm resizes tables of positions without a word
        if "pos" in part and part in own and weight.shape != own[part].shape:
            raise VitrailError(
                f"{checkpoint} was trained on images of another size than those of {name}: its "
                f"{part} has the shape {tuple(weight.shape)} and not {tuple(own[part].shape)}; "
                "save the trained model by timm's save_for_hf and give local-dir:FOLDER"
            )
    return model


def _require_view(name: str, model: Any) -> None:
    """Refuse a model whose configuration, which anybody may write, cannot prepare an image."""
    try:
        create_transform(**resolve_model_data_config(model))(Image.new("RGB", (8, 8)))
    except Exception as error:  # of any value that is not of its kind
        reason = f"{type(error).__name__}: {textwrap.shorten(str(error), 200).rstrip('. ')}"
        raise VitrailError(
            f"model '{name}' cannot be shown an image ({reason}): correct what its config.json "
            "says of the size, mean, std, crop and interpolation"
        ) from None
