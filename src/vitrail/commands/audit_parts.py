"""The parts of an audit (`vitrail.commands.audit`): what is measured of a model, and written.

The model is described as a recipe of no epochs and the folder as its dataset, so the measures
behind the papers' tables take it as they take a trained run. Where the folder has no labels of the
model's, an image's label is the class that the model predicts for it.

Each part leaves a JSON file, and a part that has one is not measured again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
import torch
from scipy.stats import binomtest
from timm.data import resolve_model_data_config
from torch import Tensor, nn
from tqdm import tqdm

from vitrail.commands import printable, say
from vitrail.commands.inputs import Folder, Listed
from vitrail.cross.measures import (
    View,
    crops_consistency,
    eight_views,
    p_shap,
    right_at_size,
)
from vitrail.errors import VitrailError, first_line, sentence
from vitrail.files import atomic_path, sha256, write_atomically
from vitrail.images.loading import EvaluationSamples, eval_loader
from vitrail.images.transforms import eval_transform
from vitrail.measures.accuracy import accuracy
from vitrail.measures.consistency import circular_consistency, standard_consistency, worst_shift
from vitrail.measures.context import Trained, out_of_memory
from vitrail.measures.position_shap.sweep import PERMUTATIONS
from vitrail.octic.group import ELEMENTS
from vitrail.octic.rotation import EQUAL
from vitrail.provenance import PACKAGE, duration, provenance

SHIFTS = 16  # among these the worst is sought
TURNS = {
    "r": "turned 90°",
    "rr": "turned 180°",
    "rrr": "turned 270°",
    "m": "mirrored",
    "mr": "90°, mirrored",
    "mrr": "180°, mirrored",
    "mrrr": "270°, mirrored",
}
KEPT = "prediction stays"
IDENTITY = {"data": "images or labels", "left_out": "images that cannot be read"}
"""What of an audit's identity is called otherwise in sentences."""

Result = TypeVar("Result")
Row = dict[str, Any]
"""A number: its ``quantity`` and ``condition``, ``value``, ``low`` and ``high`` (95 %; None where
there is no interval), ``unit``, and of how many ``images`` it is the share or the mean."""
Part = Mapping[str, Any]
"""The ``rows`` of a part, or the sentence with which it was ``refused``; its ``provenance``."""


@dataclass(frozen=True)
class Shown:
    """What the measures ask of a recipe."""

    name: str
    data: View


@dataclass(frozen=True)
class Listing:
    """What the measures ask of a dataset's entry."""

    classes: int
    val_images: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    loader: str = f"{__name__}:open_listed"
    folder: str = ""
    name: str = "images"


@dataclass(frozen=True)
class Audited(Trained[Shown]):
    """What every part is given: the model as a run whose `data_root` is the audit's folder."""

    unlabelled: str  # why the images have no labels, "" if they have
    sizes: tuple[int, ...]  # test sizes in pixels

    @property
    def labelled(self) -> bool:
        """Whether the images have labels of the model's classes."""
        return not self.unlabelled


def open_listed(folder: Path, _split: str) -> Listed:
    """Open the images of the audit in `folder`, as `build` opens a dataset."""
    listed = _read(folder / "images.json")
    images = Path(listed["folder"])
    return Listed([(images / name, label) for name, label in listed["images"]])


def described(name: str, model: nn.Module, images: int) -> tuple[Shown, Listing]:
    """Describe the model, and the images as its dataset, by what the measures ask of these."""
    config = resolve_model_data_config(model)
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise VitrailError(
            f"{name} takes images of {channels} x {height} x {width}: give a model of square RGB "
            "images"
        )
    view = View(height, config["interpolation"], config["crop_pct"], config["crop_mode"])
    classes = cast(int, model.num_classes)
    return Shown(name, view), Listing(classes, images, config["mean"], config["std"])


def weights_digest(model: nn.Module) -> str:
    """Return 16 hexadecimal digits that change with the model's parameters and buffers."""
    noted = hashlib.sha256()
    for name, value in model.state_dict().items():
        noted.update(name.encode())
        noted.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return noted.hexdigest()[:16]


def code_digest() -> str:
    """Return 16 hexadecimal digits that change with the code of this library."""
    noted = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        noted.update(f"{file.relative_to(PACKAGE)} {sha256(file)}\n".encode())
    return noted.hexdigest()[:16]


def list_images(
    audited: Audited, folder: Folder, identity: Mapping[str, Any], batch_size: int
) -> int:
    """Write ``images.json``, with predicted classes; return the next batch size.

    Images are listed by their paths within the folder. Where it lies is written by each command, as
    the same images may lie elsewhere when an audit goes on.
    """
    path, where = audited.data_root / "images.json", {"folder": str(folder.folder.resolve())}
    if path.is_file():
        listed = _read(path)
        begun = listed["identity"]
        if changed := [key for key in identity if begun.get(key) != identity[key]]:
            other = " and ".join(IDENTITY.get(key, key) for key in changed)
            raise VitrailError(
                f"{path.parent} has an audit of other {other}: give another --output, or delete "
                "that folder"
            )
        write_atomically(path, json.dumps(listed | where, indent=1) + "\n")
        return batch_size
    shown = EvaluationSamples(folder, eval_transform(audited.recipe, audited.info))

    def predict(size: int) -> list[int]:
        batches = eval_loader(shown, size, audited.workers, audited.device)
        return torch.cat([audited.logits(images).argmax(dim=1) for images, _ in batches]).tolist()

    with _watched(audited.model, "predictions", len(folder)):
        predicted, batch_size = _fitting(predict, batch_size)
    labelled = [
        [str(image.relative_to(folder.folder)), label if audited.labelled else guess]
        for (image, label), guess in zip(folder.samples, predicted, strict=True)
    ]
    content = {"identity": identity, **where, "images": labelled, "predicted": predicted}
    write_atomically(path, json.dumps(content, indent=1) + "\n")
    return batch_size


def predicted_classes(audited: Audited) -> list[int]:
    """The class that the model predicts for each image, as `list_images` has written it."""
    predicted: list[int] = _read(audited.data_root / "images.json")["predicted"]
    return predicted


def measure_part(name: str, audited: Audited, batch_size: int) -> tuple[Part, int]:
    """Measure a part, or read what was measured; return it with the next batch size."""
    path = audited.data_root / f"{name.replace(' ', '-').lower()}.json"
    if path.is_file():
        say(f"{name}: kept from before")
        return _read(path), batch_size
    measure, views = PARTS[name]
    start = time.monotonic()
    try:
        with _watched(audited.model, name, views and views * audited.info.val_images):
            rows, batch_size = _fitting(partial(measure, audited), batch_size)
    except VitrailError as error:
        say(f"{name}: not measured, as {sentence(error)}")
        why = printable(sentence(error))
        refusal = {"refused": why, "provenance": provenance(audited.device)}
        return refusal, batch_size
    seconds = time.monotonic() - start
    origin = provenance(audited.device, wall_seconds=round(seconds, 3), batch_size=batch_size)
    result = {"rows": rows, "provenance": origin}
    write_atomically(path, json.dumps(result, indent=1) + "\n")
    say(f"{name}: {duration(seconds)}")
    return result, batch_size


def _fitting(measure: Callable[[int], Result], batch_size: int) -> tuple[Result, int]:
    """Measure with so many images at a time, or with half as many until the memory holds them."""
    while True:
        try:
            return measure(batch_size), batch_size
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            said = first_line(error)
        # Outside of the handler, whose error holds the tensors of the failed pass.
        if batch_size == 1:
            raise VitrailError(f"a single image takes more memory than there is ({said})")
        batch_size //= 2
        torch.cuda.empty_cache()
        say(f"out of memory: {batch_size} images at a time from here on")


@contextmanager
def _watched(model: nn.Module, name: str, total: int | None) -> Iterator[None]:
    """Show on a terminal how many images have gone through the model."""
    with tqdm(total=total, desc=name, unit="image", leave=False, disable=None) as bar:

        def advance(_module: nn.Module, args: tuple[Any, ...], _logits: Tensor) -> None:
            bar.update(len(args[0]))

        hook = model.register_forward_hook(advance)
        try:
            yield
        finally:
            hook.remove()


# The parts; each returns rows.


def _accuracy(audited: Audited, batch_size: int) -> list[Row]:
    if not audited.labelled:
        raise VitrailError(
            f"{audited.unlabelled}: accuracy needs images in folders of the model's classes, which "
            "--class-map FILE can name"
        )
    found: Any = accuracy(audited, batch_size)
    names = {"top-1": "top1", "top-5": "top5"}
    return [_share(name, "", found[key], found["images"]) for name, key in names.items()]


def _circular(audited: Audited, batch_size: int) -> list[Row]:
    values: Any = circular_consistency(audited, batch_size)
    worst: Any = worst_shift(audited, batch_size, shifts=SHIFTS)
    two, images, change = "circular, two shifts", values["images"], values["max_logit_difference"]
    return [
        _share(KEPT, two, values["consistency"], images),
        _share(KEPT, f"circular, worst of {SHIFTS}", worst["consistency"], images),
        _share("logits equal in every bit", two, values["bitwise"], images),
        _number("largest difference of a logit", two, change, images),
    ]


def _standard(audited: Audited, batch_size: int) -> list[Row]:
    rows = []
    padded: Any = standard_consistency(audited, ["zero"], batch_size=batch_size)
    crops: Any = crops_consistency(audited, batch_size)
    for mode, name, values in (("zero", "zero-padded", padded), ("crop", "crops", crops)):
        condition = f"{name}, up to {values[f'{mode}/max_shift_pixels']} px"
        shares = (values[f"{mode}/consistency"], values[f"{mode}/images"])
        rows.append(_share(KEPT, condition, *shares))
    return rows


def _turns(audited: Audited, batch_size: int) -> list[Row]:
    views = eight_views(audited, batch_size)
    within = f"logits equal within {EQUAL:g} of the largest"
    shares = [(KEPT, TURNS[name], views.kept[ELEMENTS.index(name)]) for name in TURNS]
    shares.append((KEPT, "all of these", views.kept.all(dim=0)))
    shares.append((within, "all of these", views.equal))
    if audited.labelled:
        turned = [index for index, name in enumerate(ELEMENTS) if "m" not in name]
        shares.append(("top-1", "at a random quarter turn", views.right[turned]))
    images_seen = len(views.equal)
    return [_share(what, turn, _percent(share), images_seen) for what, turn, share in shares]


def _p_shap(audited: Audited, batch_size: int) -> list[Row]:
    result = p_shap(audited, batch_size, resume=audited.data_root / "p-shap.part")
    row = _number("P-SHAP", "", result.mean, int(result.correct.sum()))
    low, high = result.interval or (None, None)
    return [row | {"low": low, "high": high}]


def _sizes(audited: Audited, batch_size: int) -> list[Row]:
    rows = []
    for pixels in audited.sizes:
        for name, judged in right_at_size(audited, pixels, batch_size).items():
            quantity = f"{'top-1' if audited.labelled else KEPT}: {name}"
            rows.append(_share(quantity, f"{pixels} px", _percent(judged), len(judged)))
    return rows


PARTS: dict[str, tuple[Callable[[Audited, int], list[Row]], int | None]] = {
    "Accuracy": (_accuracy, 1),
    "Circular shifts": (_circular, 3 + 1 + SHIFTS),
    "Standard shifts": (_standard, 6),
    "Turns and mirrors": (_turns, 1 + len(ELEMENTS)),
    "P-SHAP": (_p_shap, 1 + max(PERMUTATIONS)),
    "Test sizes": (_sizes, None),
}
"""Each part's function, and how many times it shows each image to the model (None: it depends)."""


def _percent(right: Tensor) -> float:
    return 100 * right.double().mean().item()


def _share(quantity: str, condition: str, percent: float, images: int) -> Row:
    """A percentage of images, with Wilson's interval."""
    interval = binomtest(round(percent * images / 100), images).proportion_ci(method="wilson")
    row = _number(quantity, condition, percent, images)
    return row | {"low": 100 * interval.low, "high": 100 * interval.high, "unit": "%"}


def _number(quantity: str, condition: str, value: float, images: int) -> Row:
    row = {"quantity": quantity, "condition": condition, "value": value}
    return row | {"low": None, "high": None, "unit": "", "images": images}


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VitrailError(f"cannot read {path} ({first_line(error)}): delete it") from None
    return found


def write_table(parts: Mapping[str, Part], origin: Mapping[str, Any], path: Path) -> None:
    """Write all rows, each with where it comes from; a part that was refused says why.

    `origin` is what all parts have in common; code, packages and device are those of each part.
    """
    common = {key: value for key, value in origin.items() if key != "sizes"}
    rows = []
    for name, part in parts.items():
        own = dict(part["provenance"])
        packages = {f"{name}_version": version for name, version in own.pop("packages").items()}
        refusal = [{"quantity": "not measured", "condition": part.get("refused")}]
        for row in part.get("rows") or refusal:
            rows.append({"part": name, **row, **common, **own, **packages})
    with atomic_path(path) as partial_file:
        pd.DataFrame(rows).to_csv(partial_file, index=False)


def stamp(parts: Mapping[str, Part], origin: Mapping[str, Any]) -> str:
    """Return the line below the page's plots: code, packages, devices, weights and images."""

    def named(name: str) -> str:
        return " and ".join(dict.fromkeys(str(_fact(part, name)) for part in parts.values()))

    return (
        f"vitrail {named('vitrail')}, torch {named('torch')}, timm {named('timm')}; "
        f"{named('device')}; weights {origin['weights']}, images {origin['data']}"
    )


def _fact(part: Part, name: str) -> Any:
    """Return a part's device, or a package's version; of this package the commit, if known."""
    made = part["provenance"]
    if name == "device":
        return made["device"]
    commit = made["commit"] if name == "vitrail" else None
    return commit[:8] if commit else made["packages"].get(name)


def interval(row: Row) -> str:
    """Return a row's 95 % interval in words, "" where it has none."""
    return "" if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"
