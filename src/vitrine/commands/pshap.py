"""``vitrine pshap``: P-SHAP of one of timm's Vision Transformers on a folder of images.

Images need no labels of the model's: where the folder does not have them, the class that the model
predicts is explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from timm.data import ImageNetInfo, create_transform, resolve_model_data_config
from torchvision.datasets.folder import IMG_EXTENSIONS

import vitrine.models  # noqa: F401
from vitrine.commands import count, say
from vitrine.data.folders import read_image
from vitrine.data.loading import EvaluationSamples, evenly_spread
from vitrine.errors import VitrineError
from vitrine.measures.permutable import permutable
from vitrine.measures.position_shap import UNKNOWN, sweep
from vitrine.training.model import first_line, require_model
from vitrine.training.team import Team

FEW = 50  # with fewer images P-SHAP is too high by some percent of itself, or much more


class Folder:
    """A folder's images, also those of its subfolders, in the order of their paths.

    Labels are known (`labelled`) where the images lie in folders of the model's own classes: named
    by ImageNet's synsets where the model has its 1,000 classes, else as many as the model's. If
    not, all are `UNKNOWN`. `images` are taken, spread evenly; None is all.

    Raises:
        VitrineError: there is no such folder, or no image in it.
    """

    def __init__(self, folder: Path, classes: int, images: int | None = None):
        found = [(path, str(path.parent.relative_to(folder))) for path in find_images(folder)]
        found.sort()
        own = sorted({name for _, name in found})
        synsets = ImageNetInfo().label_names()
        names = synsets if classes == len(synsets) and set(own) <= set(synsets) else own
        self.labelled = len(names) == classes
        ranks = {name: rank for rank, name in enumerate(names)} if self.labelled else {}
        chosen = (found[index] for index in evenly_spread(len(found), images))
        self.samples = [(path, ranks.get(name, UNKNOWN)) for path, name in chosen]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_image(path), label


def find_images(folder: Path) -> Iterator[Path]:
    """Find a folder's images, also those of its subfolders.

    Raises:
        VitrineError: there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise VitrineError(f"there is no folder {folder}: give --data a folder of images")
    named = (path for path in folder.rglob("*") if path.suffix.lower() in IMG_EXTENSIONS)
    found = filter(Path.is_file, named)
    if (first := next(found, None)) is None:
        raise VitrineError(f"{folder} has no images: give --data a folder with some")
    return chain([first], found)


def pshap(
    model: str,
    data: Path,
    pretrained: bool,
    images: int | None,
    permutations: int,
    batch_size: int,
    seed: int,
    device: str | None,
    resume: Path | None,
) -> None:
    """Print the model's P-SHAP with its interval, and what it cost.

    The arguments are the options that `vitrine.cli.pshap` describes.

    Raises:
        VitrineError: the model, its weights, the images or the device are not there, the model has
            no classes, its positions cannot be permuted, no image is classified correctly, or as
            `sweep`.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    Team.assemble(device)  # refuses one that is not here
    find_images(data)  # before weights are downloaded
    torch.manual_seed(seed)
    network = create(model, pretrained)
    if not network.num_classes:
        raise VitrineError(
            f"{model} has no classes, and P-SHAP explains the logit of one: give a model with a "
            "classifier"
        )
    folder = Folder(data, network.num_classes, images)
    transform = create_transform(**resolve_model_data_config(network))
    result = sweep(
        permutable(network.to(device)),
        EvaluationSamples(folder, transform),  # type: ignore[arg-type]  # has a length and items
        permutations=permutations,
        batch_size=batch_size,
        seed=seed,
        device=device,
        resume=resume,
    )
    correct = int(result.correct.sum())
    if not correct:
        raise VitrineError(
            f"{model} classifies none of the {count(len(folder), 'image')} in {data} correctly, "
            "and P-SHAP is of those: give it weights or images of its own classes"
        )
    low, high = result.interval or (result.mean, result.mean)
    say(f"P-SHAP of {model}: {result.mean:.4f} (95 % interval {low:.4f} to {high:.4f})")
    if len(folder) < FEW:
        say(f"With fewer than {FEW} images both are too high: an image is in its own background")
    shown = count(len(folder), "image")
    if folder.labelled:
        say(f"Mean over the {correct} of {shown} that it classifies correctly")
    else:
        say(
            f"Mean over {shown}, each explained by the class predicted: the folders are not the "
            f"model's {network.num_classes} classes"
        )
    passes, speed = result.passes_per_sample, result.samples_per_second
    say(f"{passes:g} forward passes an image, {speed:.3g} images/s on {device}")


def create(name: str, pretrained: bool) -> Any:
    """Make timm's model of that name, in evaluation mode.

    Raises:
        VitrineError: timm has no such model, or its weights cannot be fetched.
    """
    require_model(name)
    try:
        return timm.create_model(name, pretrained=pretrained).eval()
    except (OSError, RuntimeError) as error:
        raise VitrineError(
            f"model '{name}' has no weights here, nor can they be fetched ({first_line(error)}): "
            "run this once where there is a network, or give --no-pretrained for random weights"
        ) from None
