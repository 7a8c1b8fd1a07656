"""The parts of an audit (`vitrail.commands.audit`): measure a model and write the results.

If the folder has no labels of the model's classes, an image's label is the class that the model
predicts for it.

The result of each part is a JSON file; a part that has one is not measured again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
import torch
from scipy.stats import norm
from timm.data import resolve_model_data_config
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from vitrail.commands import printable, say
from vitrail.commands.audit_answers import KEPT
from vitrail.commands.inputs import Folder, Listed
from vitrail.commands.p_shap_interval import p_shap_interval
from vitrail.errors import VitrailError, first_line, sentence
from vitrail.files import atomic_path, sha256, write_atomically
from vitrail.measures.accuracy import accuracy
from vitrail.measures.consistency import (
    CROP_PCT,
    circular_consistency,
    crop_consistency,
    standard_shift,
    worst_shift,
    zero_padded_consistency,
)
from vitrail.measures.loading import eval_loader, evaluation_view
from vitrail.measures.outputs import device_of, logits_of, out_of_memory
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.measure import position_shap
from vitrail.measures.position_shap.sweep import PERMUTATIONS
from vitrail.octic.group import ELEMENTS
from vitrail.octic.turns import EQUAL_RTOL, eight_views
from vitrail.provenance import PACKAGE, duration, provenance
from vitrail.variance.resolution_accuracy import CALIBRATIONS, right_at_size

SHIFTS = 16  # how many circular shifts are tried for the worst one
TURNS = {
    "r": "turned 90°",
    "rr": "turned 180°",
    "rrr": "turned 270°",
    "m": "mirrored",
    "mr": "90°, mirrored",
    "mrr": "180°, mirrored",
    "mrrr": "270°, mirrored",
}
FOUR_TURNS = "mean over turns of 0°, 90°, 180° and 270°"
IDENTITY = {
    "data": "images or labels",
    "labels": "images or labels",
    "left_out": "images that cannot be read",
}
"""Names, in messages, of keys of an audit's identity, where they differ from the keys."""

Result = TypeVar("Result")
Row = dict[str, Any]
"""A result: its ``quantity``, ``condition``, ``value``, ``low`` and ``high`` (95 %; None without an
interval), ``unit``, and the number of ``images`` over which it is a share or a mean."""
Part = Mapping[str, Any]
"""The ``rows`` of a part, or ``refused``, why it was not measured; and its ``provenance``."""


@dataclass(frozen=True)
class Audited:
    """The input of every part: a classifier, and the images that `list_images` has listed."""

    model: nn.Module  # in evaluation mode
    output: Path  # the audit's folder
    seed: int
    workers: int
    unlabelled: str  # why the images have no labels, "" if they have
    sizes: tuple[int, ...]  # test sizes in pixels

    @property
    def labelled(self) -> bool:
        """Whether the images have labels of the model's classes."""
        return not self.unlabelled

    @property
    def image_size(self) -> int:
        """Side in pixels of the model's input images."""
        return own_size(self.model)

    @property
    def device(self) -> str:
        """Name of the device where the model is."""
        return device_of(self.model).type

    def view(self, image_size: int | None = None, margin: int = 0, crop_pct: float = 1) -> Any:
        """Return the model's `evaluation_view`, with `crop_pct` as an upper bound of its own."""
        config = resolve_model_data_config(self.model)
        return evaluation_view(
            image_size or self.image_size,
            interpolation=config["interpolation"],
            crop_pct=min(config["crop_pct"], crop_pct),
            crop_mode=config["crop_mode"],
            mean=config["mean"],
            std=config["std"],
            margin=margin,
        )

    def images(self, view: Any = None) -> Listed:
        """Open the listed images under `view`, by default the model's own transform."""
        listed = _read(self.output / "images.json")
        folder = Path(listed["folder"])
        samples = [(folder / name, label) for name, label in listed["images"]]
        return Listed(samples, view or self.view())

    def batches(self, batch_size: int, view: Any = None) -> DataLoader[Any]:
        """Return a loader of `images`."""
        return eval_loader(self.images(view), batch_size, self.workers, self.device)


def own_size(model: nn.Module) -> int:
    """Return the side in pixels of a model's input images.

    Raises:
        VitrailError: its input is not square RGB images.
    """
    channels, height, width = resolve_model_data_config(model)["input_size"]
    if channels != 3 or height != width:
        raise VitrailError(
            f"the model takes images of {channels} x {height} x {width}: give a model of square "
            "RGB images"
        )
    return cast(int, height)


def require_sizes(model: nn.Module, sizes: Iterable[int]) -> None:
    """Raise VitrailError if the model takes no images of one of the test `sizes` in pixels."""
    own = own_size(model)
    for pixels in sizes:

        def measure(images: int, side: int = pixels) -> None:
            blank = torch.zeros(images, 3, side, side), torch.zeros(images, dtype=torch.long)
            right_at_size(model, [blank], side, own)

        try:
            _fitting(measure, 1)
        except VitrailError as error:
            raise VitrailError(f"--size {pixels}: {error}") from None


def weights_digest(model: nn.Module) -> str:
    """Return a digest of the model's parameters and buffers: 16 hexadecimal digits."""
    noted = hashlib.sha256()
    for name, value in model.state_dict().items():
        noted.update(name.encode())
        noted.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return noted.hexdigest()[:16]


def code_digest() -> str:
    """Return a digest of the code of this library: 16 hexadecimal digits."""
    noted = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        noted.update(f"{file.relative_to(PACKAGE)} {sha256(file)}\n".encode())
    return noted.hexdigest()[:16]


def list_images(
    audited: Audited, folder: Folder, identity: Mapping[str, Any], batch_size: int
) -> int:
    """Write ``images.json``, with predicted classes; return the batch size that fits into memory.

    Images are listed by their paths within the folder. Each command writes the folder's path anew,
    as the images may have been moved when an audit is resumed.
    """
    path, where = audited.output / "images.json", {"folder": str(folder.folder.resolve())}
    if path.is_file():
        listed = _read(path)
        begun = listed["identity"]
        if changed := [key for key in identity if begun.get(key) != identity[key]]:
            other = " and ".join(dict.fromkeys(IDENTITY.get(key, key) for key in changed))
            raise VitrailError(
                f"{path.parent} has an audit of other {other}: give another --output, or delete "
                "that folder"
            )
        write_atomically(path, json.dumps(listed | where, indent=1) + "\n")
        return batch_size
    shown = Listed(folder.samples, audited.view())

    def predict(size: int) -> list[int]:
        batches = eval_loader(shown, size, audited.workers, audited.device)
        logits = (logits_of(audited.model, images) for images, _ in batches)
        return torch.cat([each.argmax(dim=1) for each in logits]).tolist()

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
    """Return the class that the model predicts for each image, as written by `list_images`."""
    predicted: list[int] = _read(audited.output / "images.json")["predicted"]
    return predicted


def measure_part(name: str, audited: Audited, batch_size: int) -> tuple[Part, int]:
    """Measure a part, or read its file; return it with the batch size that fits into memory."""
    path = audited.output / f"{name.replace(' ', '-').lower()}.json"
    if path.is_file():
        say(f"{name}: kept from before")
        return _read(path), batch_size
    measure, views = PARTS[name]
    start = time.monotonic()
    try:
        with _watched(audited.model, name, views and views * len(audited.images())):
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
    """Call `measure` with a batch size, which is halved until the memory suffices; return both."""
    while True:
        try:
            return measure(batch_size), batch_size
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            said = first_line(error)
        # Outside of the handler, as its error keeps the tensors of the failed pass in memory.
        if batch_size == 1:
            raise VitrailError(f"a single image takes more memory than there is ({said})")
        batch_size //= 2
        torch.cuda.empty_cache()
        say(f"out of memory: {batch_size} images at a time from here on")


@contextmanager
def _watched(model: nn.Module, name: str, total: int | None) -> Iterator[None]:
    """Show a progress bar on a terminal: how many images the model has processed."""
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
        raise VitrailError(audited.unlabelled)
    found = accuracy(audited.model, audited.batches(batch_size))
    shares = {"top-1": found.top1}
    if cast(Any, audited.model).num_classes > 5:  # otherwise top-5 is always 100 %
        shares["top-5"] = found.top5
    return [_share(name, "", percent, len(found.right)) for name, percent in shares.items()]


def _circular(audited: Audited, batch_size: int) -> list[Row]:
    batches = audited.batches(batch_size)
    pairs = circular_consistency(audited.model, batches, seed=audited.seed)
    worst = worst_shift(audited.model, batches, SHIFTS, batch_size=batch_size, seed=audited.seed)
    two, images = "circular, two shifts", pairs.images
    return [
        _share(KEPT, two, pairs.consistency, images),
        _share(KEPT, f"circular, all of {SHIFTS} shifts", worst.consistency, images),
        _share("logits equal in every bit", two, pairs.bitwise, images),
        _number("largest difference of a logit", two, pairs.max_logit_difference, images),
    ]


def _standard(audited: Audited, batch_size: int) -> list[Row]:
    limit = standard_shift(audited.image_size)
    config = resolve_model_data_config(audited.model)
    black = -torch.tensor(config["mean"]) / torch.tensor(config["std"])
    padded = zero_padded_consistency(
        audited.model, audited.batches(batch_size), limit, black, seed=audited.seed
    )
    view = audited.view(margin=limit, crop_pct=CROP_PCT)
    crops = crop_consistency(
        audited.model, audited.batches(batch_size, view), limit, seed=audited.seed
    )
    return [
        _share(KEPT, f"{name}, up to {limit} px", found.consistency, found.images)
        for name, found in (("zero-padded", padded), ("crops", crops))
    ]


def _turns(audited: Audited, batch_size: int) -> list[Row]:
    views = eight_views(audited.model, audited.batches(batch_size))
    within = f"logits equal within {EQUAL_RTOL:g} of the largest"
    shares = [(KEPT, TURNS[name], views.kept[ELEMENTS.index(name)]) for name in TURNS]
    shares.append((KEPT, "all of these", views.kept.all(dim=0)))
    shares.append((within, "all of these", views.equal))
    if audited.labelled:
        turned = [index for index, name in enumerate(ELEMENTS) if "m" not in name]
        shares.append(("top-1", FOUR_TURNS, views.right[turned]))
    images_seen = len(views.equal)
    return [_share(what, turn, _percent(share), images_seen) for what, turn, share in shares]


def _p_shap(audited: Audited, batch_size: int) -> list[Row]:
    try:
        permutable(audited.model)
    except VitrailError:  # its message gives remedies for users of the library only
        kind = type(audited.model).__name__
        raise VitrailError(f"{kind} has no positions that can be permuted") from None
    result = position_shap(
        audited.model,
        audited.images(),
        batch_size=batch_size,
        seed=audited.seed,
        workers=audited.workers,
        resume=audited.output / "p-shap.part",
    ).require_correct()
    low, high, too_few = p_shap_interval(result)
    row = _number("P-SHAP", too_few, result.mean, int(result.correct.sum()))
    return [row | {"low": low, "high": high}]


def _sizes(audited: Audited, batch_size: int) -> list[Row]:
    rows = []
    for pixels in audited.sizes:
        batches = audited.batches(batch_size, audited.view(pixels))
        # At the model's own size no table is resized, so all calibrations are the same.
        ways = list(CALIBRATIONS)[: 1 if pixels == audited.image_size else None]
        found = right_at_size(audited.model, batches, pixels, audited.image_size, ways)
        for name, judged in found.items():
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
"""Each part's function, and its forward passes for each image (None: not known before)."""


def _percent(right: Tensor) -> float:
    return 100 * right.double().mean().item()


def _share(quantity: str, condition: str, percent: float, images: int) -> Row:
    """Return the row of a percentage of images, with Wilson's interval.

    It may be a mean over several views of each image. Then the interval is wide enough, too: of all
    values between 0 and 1 with a given mean, zeros and ones have the largest variance.
    """
    share, z = percent / 100, norm.ppf(0.975)
    middle = share + z**2 / (2 * images)
    half = z * math.sqrt(share * (1 - share) / images + (z / (2 * images)) ** 2)
    whole = 1 + z**2 / images
    low, high = max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)
    row = _number(quantity, condition, percent, images)
    return row | {"low": 100 * low, "high": 100 * high, "unit": "%"}


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
    """Write all rows as CSV, each with its provenance; for a refused part, the reason.

    `origin` has the facts that all parts share; code, packages and device are those of each part.
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
    """Return a part's device or the version of a package; for vitrail the commit, if known."""
    made = part["provenance"]
    if name == "device":
        return made["device"]
    commit = made["commit"] if name == "vitrail" else None
    return commit[:8] if commit else made["packages"].get(name)
