"""The inputs of commands on one model: the model, a folder of images, a device.

The model is made by timm: by one of its names, with published weights or those of a file, or from a
`hf-hub:` or `local-dir:` with timm's ``config.json``.
"""

from __future__ import annotations

import difflib
import hashlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import timm
import torch
from huggingface_hub.utils import logging as hub
from PIL import Image
from timm.data import ImageNetInfo, create_transform, resolve_model_data_config
from timm.models import clean_state_dict
from timm.utils.misc import natural_key
from torch.utils.data import DataLoader, Dataset

import vitrail.models  # noqa: F401
from vitrail.commands import count, say
from vitrail.errors import VitrailError, did_you_mean, first_line, os_errors
from vitrail.files import sha256
from vitrail.image_files import UNREAD, is_image, is_turned, read_image, visible_files
from vitrail.measures.loading import evenly_spread
from vitrail.measures.outputs import UNKNOWN, require_classes
from vitrail.weights_file import OWN, find_weights

MOST_TOLD = 12  # how many labels are printed, so that the user can check their order


class Listed(Dataset[tuple[Any, int]]):
    """Images by path, each with its label, under a transform, as in torchvision's folders."""

    def __init__(
        self, samples: list[tuple[Path, int]], transform: Callable[[Image.Image], Any] | None = None
    ):
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        image = read_image(path)
        return (image if self.transform is None else self.transform(image)), label


class ClassNames(NamedTuple):
    """The names of a model's classes, in the order of its logits, and their origin."""

    names: Sequence[str]
    origin: str
    required: bool = False  # whether the user has given them, so that images must have labels


class Folder(Listed):
    """The images of a folder and its subfolders, in the order of their paths.

    An image's class is the name of the folder in which it lies. Labels are known in three cases:
    all these names are among the `known` names; or the model has 1,000 `classes` and they are among
    ImageNet's synsets; or there are as many of them as the model's classes, which are then in
    timm's natural order ("2" before "10"), as in timm's training. Otherwise all labels are
    `UNKNOWN`, and `unlabelled` is the reason; it is empty if they are known. `images` is the number
    of images, spread evenly; None is all.

    Raises:
        VitrailError: there is no such folder, or no image in it, or the images have no labels
            although the `known` names are `required`.
    """

    def __init__(
        self,
        folder: Path,
        classes: int,
        images: int | None = None,
        known: ClassNames | None = None,
    ):
        found, self.unread = find_images(folder)
        found.sort()
        names = ["" if path.parent == folder else path.parent.name for path in found]
        placed = list(zip(found, names, strict=True))
        self.unlabelled, self.origin, self.ranks = _ranks(placed, classes, known)
        self.folder, self.available = folder, len(found)
        self.damaged: list[str] = []  # for each image that was left out, why it cannot be read
        chosen = evenly_spread(len(found), images)
        super().__init__(
            [(found[index], self.ranks.get(names[index], UNKNOWN)) for index in chosen]
        )

    def told(self) -> Iterator[str]:
        """Yield sentences on the labels, on files left out, and on ignored EXIF orientations."""
        if self.damaged:
            chosen = count(len(self) + len(self.damaged), "image")
            yield f"{len(self.damaged)} of {chosen} cannot be read and are left out:"
            yield from (f"  {why}" for why in self.damaged)
        if self.unlabelled:
            yield f"Labels: none, as {self.unlabelled}"
        else:
            first = [f"{rank} {name}" for name, rank in list(self.ranks.items())[:MOST_TOLD]]
            more = ["..."] * (len(self.ranks) > MOST_TOLD)
            yield f"Labels ({self.origin}): {', '.join([*first, *more])}"
        if self.unread:
            kinds = ", ".join(sorted(self.unread))
            yield (
                f"Left out: {count(self.unread.total(), 'file')} of kinds that are not read "
                f"({kinds}); convert them to PNG to measure them, too"
            )
        if turned := sum(is_turned(path) for path, _ in self.samples):
            yield (
                f"Not applied: the EXIF orientation of {turned} of {count(len(self), 'image')}, as "
                "timm and torchvision do not apply it; to show the model what a viewer shows, turn "
                "the files, such as by ImageMagick's mogrify -auto-orient"
            )

    def leave_out_damaged(self, workers: int = 0) -> None:
        """Decode every image once, and leave out those that cannot be read; `told` names them.

        Raises:
            VitrailError: no image can be read.
        """
        own = torch.Generator()  # so that loading does not draw from torch's global generator
        images = _Damages(self.samples)
        reasons = list(DataLoader(images, batch_size=None, num_workers=workers, generator=own))
        whole = [sample for sample, why in zip(self.samples, reasons, strict=True) if not why]
        damaged = [why for why in reasons if why]
        if not whole:
            raise VitrailError(f"no image of {self.folder} can be read: {damaged[0]}")
        self.samples, self.damaged = whole, damaged

    def digest(self) -> str:
        """Return a digest of all images' paths below the folder, contents and labels."""
        noted = hashlib.sha256()
        for path, label in self.samples:
            entry = (str(path.relative_to(self.folder)), sha256(path), label)
            noted.update(f"{entry!r}\n".encode())
        return noted.hexdigest()[:16]


class _Damages(Dataset[str]):
    """For each image the reason why it cannot be read; "" if it can."""

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


def find_images(folder: Path) -> tuple[list[Path], Counter[str]]:
    """Find a folder's images, and count the image files of unsupported formats by suffix.

    Raises:
        VitrailError: there is no such folder, a part of it cannot be read, or it has no image.
    """
    if not folder.is_dir():
        raise VitrailError(f"there is no folder {folder}: give --data a folder of images")
    with os_errors(f"cannot read all of {folder}", "correct its permissions"):
        files = [Path(file) for file in visible_files(folder)]
    found = [path for path in files if is_image(path.name) and path.is_file()]
    suffixes = Counter(path.suffix.lower() for path in files)
    unread = Counter({kind: suffixes[kind] for kind in UNREAD & suffixes.keys()})
    if not found:
        others = f" but {', '.join(sorted(unread))}, which are not read" if unread else ""
        remedy = "convert them to PNG" if unread else "give --data a folder with some"
        raise VitrailError(f"{folder} has no images{others}: {remedy}")
    return found, unread


def class_names(model: Any, class_map: Path | None) -> ClassNames | None:
    """Return the names of the model's classes, from a file or its `label_names`; None if unknown.

    Raises:
        VitrailError: the file cannot be read, or there are not as many names as classes.
    """
    names: Any = getattr(model, "pretrained_cfg", {}).get("label_names")
    origin, remedy = "the model's label_names", "correct its config.json or give --class-map FILE"
    if class_map is not None:
        origin, remedy = str(class_map), "give a line for each class, in the order of the logits"
        try:
            names = class_map.read_text(encoding="utf-8-sig").rstrip().split("\n")
        except (OSError, ValueError) as error:
            raise VitrailError(
                f"cannot read {class_map} ({first_line(error)}): give --class-map a text file with "
                "the name of a class on each line"
            ) from None
    if names is None:
        return None
    listed = [str(name).strip() for name in names] if isinstance(names, list | tuple) else []
    if len(listed) != model.num_classes:
        raise VitrailError(
            f"{origin} has {count(len(listed), 'name')} and the model {model.num_classes} classes: "
            f"{remedy}"
        )
    return ClassNames(listed, origin, required=class_map is not None)


def _ranks(
    placed: Sequence[tuple[Path, str]], classes: int, known: ClassNames | None
) -> tuple[str, str, dict[str, int]]:
    """Return why there are no labels ("" if there are), their origin, and the label by folder.

    `placed` has each image with the name of its folder, which is "" outside of folders.

    Raises:
        VitrailError: there are no labels, although the `known` names are `required`.
    """
    folders = {name: path.parent for path, name in placed}
    own = sorted(sorted(folders), key=natural_key)
    synsets = ImageNetInfo().label_names()
    if known is None and classes == len(synsets) and set(own) <= set(synsets):
        known = ClassNames(synsets, "ImageNet's synsets")
    why, remedy = "", "put each image into a folder with the name of its class in {origin}"
    if stray := [path for path, name in placed if not name]:
        others = f", like {count(len(stray) - 1, 'other image')}," if stray[1:] else ""
        why = f"{stray[0]}{others} lies in no subfolder that names its class"
    elif known is not None:
        told = Counter(known.names)
        if wrong := next((name for name in own if told[name] != 1), None):
            are = f"{told[wrong]} classes" if told[wrong] else "no class"
            why = f"{known.origin} has {are} '{wrong}', as the folder {folders[wrong]} is named"
            if told[wrong]:
                remedy = "give each class in {origin} a name of its own"
            else:
                nearest = difflib.get_close_matches(wrong, known.names, n=1)
                why += f" (nearest: '{nearest[0]}')" if nearest else ""
                remedy = "correct the line in {origin}, or the folder's name"
    elif len(own) == classes:
        known = ClassNames(own, "folders in timm's order; --class-map FILE gives another")
    else:
        named = textwrap.shorten(", ".join(own), 80, placeholder=" ...")
        why = (
            f"the images lie in {count(len(own), 'folder')} ({named}) and the model has {classes} "
            "classes"
        )
    if why and known is not None and known.required:
        raise VitrailError(f"{why}: {remedy.format(origin=known.origin)}, or leave out --class-map")
    if why or known is None:
        why += ": labels need images in folders of the model's classes, which --class-map can name"
        return why, "", {}
    ranks = {name: rank for rank, name in enumerate(known.names)}
    return "", known.origin, {name: ranks[name] for name in sorted(own, key=ranks.__getitem__)}


def require_device(device: str | None) -> str:
    """Return torch's name of a device, by default CUDA if available; VitrailError if absent."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError):  # what torch raises depends on the kind of device
        raise VitrailError(f"torch cannot use device '{device}' here: use 'cpu'") from None
    return device


def _remedy(name: str) -> str:
    """Return what to give instead of the name of a model that timm does not know."""
    path = Path(name)
    if (path / "config.json").is_file():
        return f": for the model that is saved in this folder give local-dir:{name}"
    if path.is_file():
        return (
            f": for the weights in this file give timm's name of the model and --checkpoint {name}"
        )
    return did_you_mean(name, timm.list_models())


def create(name: str, pretrained: bool, checkpoint: Path | None = None) -> Any:
    """Make a model in evaluation mode, with published weights, those of a file, or random ones.

    With a `checkpoint`, the number of classes is that of its classifier.

    Raises:
        VitrailError: timm cannot make the model, its weights cannot be fetched, the file's weights
            do not fit or are for another image size, the model has fewer than two classes, or its
            configuration of images is invalid.
    """
    options: dict[str, Any] = {}
    weights: dict[str, torch.Tensor] = {}
    if ":" not in name:  # timm itself reads hf-hub:... and local-dir:...
        # Not `require_model`, which compares whole names: here the beginning of a name is enough.
        if not timm.is_model(name):
            raise VitrailError(f"there is no model '{name}'{_remedy(name)}")
    elif checkpoint is not None:
        raise VitrailError(f"--checkpoint is for a model of timm's own names, not '{name}'")
    if checkpoint is not None:
        tensors, kept_as = find_weights(checkpoint)
        weights = clean_state_dict(tensors)
        if kept_as:
            say(f"Weights: {kept_as} of {checkpoint}")
        heads = getattr(timm.get_pretrained_cfg(name), "classifier", None) or "head"
        head = heads if isinstance(heads, str) else heads[0]
        heads_at = [name for name in weights if name.endswith(f".{head}.weight")]
        prefix = min(heads_at, key=len, default="").removesuffix(f"{head}.weight")
        if prefix and all(name.startswith(prefix) for name in weights):  # as Lightning saves them
            weights = {name.removeprefix(prefix): value for name, value in weights.items()}
            say(f"Weights: their names are taken without '{prefix}'")
        if f"{head}.weight" not in weights:
            raise VitrailError(
                f"{checkpoint} has no classifier '{head}.weight', which {name} has, but "
                f"{', '.join(list(weights)[:3])}, ...: give the name of the model that it was "
                f"saved from, or weights with a classifier under timm's names; {OWN}"
            )
        classes = {"num_classes": len(weights[f"{head}.weight"])}
        options = {"pretrained_cfg_overlay": {"state_dict": weights} | classes} | classes
    try:
        pretrained = pretrained or checkpoint is not None
        hub.set_verbosity_error()  # it warns at each of its retries; the last error is told below
        model = timm.create_model(name, pretrained=pretrained, **options).eval()
    except Exception as error:  # of a network, a folder, a tag, or weights that do not fit
        reason = textwrap.shorten(str(error) or type(error).__name__, 240).rstrip(". ")
        remedies = [f"correct {'--checkpoint or ' if options else ''}the model's name"]
        if options:
            remedies.append(
                "for a model built with options of its own, save it by timm's save_for_hf and give "
                "local-dir:FOLDER"
            )
        if name.startswith("local-dir:"):
            remedies = ["name the folder of a model that timm's save_for_hf has written"]
        elif isinstance(error, OSError):  # as those of huggingface_hub are
            network = "run this once where there is a network"
            remedies = [network] if timm.is_model(name) else [network, *remedies]
        if pretrained and ":" not in name and not options:
            remedies.append("give --checkpoint FILE, or --no-pretrained for random weights")
        raise VitrailError(
            f"model '{name}' cannot be made with these weights ({reason}): {', or '.join(remedies)}"
        ) from None
    require_classes(cast(int, model.num_classes))
    _require_view(name, model)
    own = model.state_dict()
    for part, weight in weights.items():  # timm resizes tables of positions without a warning
        if "pos" in part and part in own and weight.shape != own[part].shape:
            raise VitrailError(
                f"{checkpoint} was trained on images of another size than those of {name}: its "
                f"{part} has the shape {tuple(weight.shape)} and not {tuple(own[part].shape)}; "
                "give the name of timm's model for that size, or save the trained model by timm's "
                "save_for_hf and give local-dir:FOLDER"
            )
    return model


def _require_view(name: str, model: Any) -> None:
    """Raise VitrailError if the transform in a model's configuration cannot prepare an image."""
    try:
        create_transform(**resolve_model_data_config(model))(Image.new("RGB", (8, 8)))
    except Exception as error:  # of any value that is not of its kind
        reason = f"{type(error).__name__}: {textwrap.shorten(str(error), 200).rstrip('. ')}"
        raise VitrailError(
            f"model '{name}' cannot be shown an image ({reason}): correct what its config.json "
            "says of the size, mean, std, crop and interpolation"
        ) from None
