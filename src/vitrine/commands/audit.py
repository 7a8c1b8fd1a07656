"""``vitrine audit``: a model put to the tests of all four papers, on a folder of images.

The one idea: the model is described as a recipe of no epochs and the folder as its dataset, so the
measures behind the papers' tables take it as they take a trained run. Where the folder has no
labels of the model's, the class that the model predicts for an image is its label: accuracy at
another image size then says how often that prediction stays.

Each part leaves a JSON file, and a part that has one is not measured again. What does not apply to
a model is told in a sentence, and the other parts go on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch
from PIL import Image
from pydantic import ValidationError
from scipy.stats import binomtest
from timm.data import resolve_model_data_config
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm

from vitrine.artifacts.audit import page
from vitrine.commands import count, say, table
from vitrine.commands.pshap import FEW, Folder, create, find_images
from vitrine.data.folders import read_image
from vitrine.data.loading import EvaluationSamples, eval_loader
from vitrine.data.transforms import eval_transform
from vitrine.errors import VitrineError, first_line, sentence
from vitrine.files import atomic_path, write_atomically
from vitrine.measures.accuracy import accuracy
from vitrine.measures.consistency import (
    circular_consistency,
    standard_consistency,
    validation_batches,
    worst_shift,
)
from vitrine.measures.context import Trained, without_tf32
from vitrine.measures.permutable import permutable
from vitrine.measures.position_shap import sweep, transformed, validation
from vitrine.octic.group import ELEMENTS, transform
from vitrine.octic.measures import EQUAL
from vitrine.plan.datasets import DatasetInfo
from vitrine.plan.recipe import Batch, Data, Model, Optimizer, Recipe, Schedule
from vitrine.provenance import duration, provenance
from vitrine.training.team import Team
from vitrine.training.validation import hits
from vitrine.variance.rescaling import patch_positions, rescale_pos_embed

SHIFTS = 16  # among these the worst is sought
PERMUTATIONS = 16  # of each image's positions, for P-SHAP
LARGER = (1.25, 1.5, 2)  # test sizes in multiples of the model's own, rounded up to a STEP
STEP = 32  # pixels, a multiple of most models' patches and strides
CROP_PCT = 0.875  # the resized image is 8/7 as wide as the crops that are shifted in it
CALIBRATIONS = {"UP(P)": "none", "UP(P) / sqrt(k)": "iid", "UP(P) / sqrt(k), exact k": "exact"}
TURNS = {
    "r": "turned 90°",
    "rr": "turned 180°",
    "rrr": "turned 270°",
    "m": "mirrored",
    "mr": "90°, mirrored",
    "mrr": "180°, mirrored",
    "mrrr": "270°, mirrored",
}
FIRST_BATCH = {"cuda": 256}  # images at a time, to begin with; 16 elsewhere
KEPT = "prediction stays"

Result = TypeVar("Result")
Row = dict[str, Any]
"""A number: its ``quantity`` and ``condition``, ``value``, ``low`` and ``high`` (95 %; None where
there is no interval), ``unit``, and of how many ``images`` it is the share or the mean."""


@dataclass(frozen=True)
class Audit:
    """What every part is given."""

    trained: Trained
    labelled: bool
    sizes: tuple[int, ...]  # test sizes in pixels
    folder: Path


class Listed(Dataset[tuple[Image.Image, int]]):
    """The images and labels that an audit has written to its ``images.json``."""

    def __init__(self, folder: Path):
        self.samples: list[tuple[str, int]] = _read(folder / "images.json")["images"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_image(path), label


def open_listed(folder: Path, _split: str) -> Listed:
    """Open the images of the audit in `folder`, as `vitrine.data.build` opens a dataset."""
    return Listed(folder)


def audit(
    model: str,
    data: Path,
    pretrained: bool,
    checkpoint: Path | None,
    images: int,
    sizes: Sequence[int],
    output: Path | None,
    seed: int,
    device: str | None,
    workers: int,
) -> None:
    """Measure all that applies to the model; write ``audit.csv`` and the page, ``audit.png``.

    The arguments are the options that `vitrine.cli.audit` describes.

    Raises:
        VitrineError: the model, its weights, the images or the device are not there, the model is
            no classifier of square RGB images, or `output` has another audit.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    Team.assemble(device)  # refuses one that is not here
    without_tf32()
    find_images(data)  # before weights are downloaded
    torch.manual_seed(seed)
    network = create(model, pretrained, checkpoint)
    if not network.num_classes:
        raise VitrineError(f"{model} has no classes to predict: give a model with a classifier")
    output = output or Path("audit-" + re.sub(r"[^\w.]+", "-", model))
    folder = Folder(data, network.num_classes, images)
    trained = _as_run(model, network.to(device), len(folder), output, seed, device, workers)
    own = trained.recipe.data.image_size
    sizes = sorted({own, *(sizes or (STEP * math.ceil(own * times / STEP) for times in LARGER))})
    identity = {
        "model": model,
        "weights": _digest(network),
        "data": folder.digest(),
        "labels": "own" if folder.labelled else "predicted",
        "sizes": sizes,
        "seed": seed,
    }
    batch_size = FIRST_BATCH.get(torch.device(device).type, 16)
    batch_size = _list_images(trained, folder, identity, batch_size)
    one = Audit(trained, folder.labelled, tuple(sizes), output)
    parts: dict[str, dict[str, Any]] = {}
    for name in PARTS:
        parts[name], batch_size = _part(name, one, batch_size)
    weights = checkpoint or ("pretrained" if pretrained else "random")
    origin = identity | {"weights_from": str(weights), "image_size": own} | provenance(device)
    _write_table(parts, origin, output / "audit.csv")
    title = f"{model} ({weights} weights) on {count(len(folder), 'image')} of {data.name}"
    page(parts, title, _stamp(origin), output / "audit")
    _tell(parts)
    say(f"Page: {output / 'audit.png'} (and .svg); numbers: {output / 'audit.csv'}")


def _as_run(
    name: str, model: nn.Module, images: int, output: Path, seed: int, device: str, workers: int
) -> Trained:
    """Describe the model as a run that was trained for no epochs, on the images in `output`."""
    config = resolve_model_data_config(model)
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise VitrineError(
            f"{name} takes images of {channels} x {height} x {width}: give a model of square RGB "
            "images"
        )
    chosen = {key: config[key] for key in ("interpolation", "crop_pct", "crop_mode")}
    try:
        recipe = Recipe(
            model=Model(name=name),
            data=Data(dataset="images", image_size=height, **chosen),
            optimizer=Optimizer(lr=1),
            schedule=Schedule(epochs=0),
            batch=Batch(size=1, micro=1),
        )
    except ValidationError:
        raise VitrineError(
            f"{name} is evaluated with {chosen}, which is none of our ways to show an image: give "
            "another model"
        ) from None
    info = DatasetInfo(
        name="images",
        title="the folder's images",
        classes=model.num_classes,
        train_images=images,
        val_images=images,
        split="all images",
        mean=config["mean"],
        std=config["std"],
        source="bundled",
        licence="the folder's own",
        homepage="",
        loader=f"{__name__}:{open_listed.__name__}",
    )
    common: dict[str, Any] = {"device": device, "data_root": output, "seed": seed}
    return Trained(**common, workers=workers, recipe=recipe, info=info, model=model)


def _digest(model: nn.Module) -> str:
    noted = hashlib.sha256()
    for name, value in model.state_dict().items():
        noted.update(name.encode())
        noted.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return noted.hexdigest()[:16]


def _list_images(
    trained: Trained, folder: Folder, identity: Mapping[str, Any], batch_size: int
) -> int:
    """Write ``images.json``, with the predicted labels if there are no others.

    Returns:
        How many images at a time the memory holds.

    Raises:
        VitrineError: an image cannot be read, or the file is there and of another audit.
    """
    path = trained.data_root / "images.json"
    if path.is_file():
        begun = _read(path)["identity"]
        if changed := [key for key in identity if begun.get(key) != identity[key]]:
            raise VitrineError(
                f"{path.parent} has an audit of other {' and '.join(changed)}: give another "
                "--output, or delete that folder"
            )
        return batch_size
    shown = EvaluationSamples(folder, eval_transform(trained.recipe, trained.info))

    def predict(size: int) -> list[int]:
        batches = eval_loader(shown, size, trained.workers)
        return torch.cat([trained.logits(images).argmax(dim=1) for images, _ in batches]).tolist()

    with _watched(trained.model, "predictions", len(folder)):
        predicted, batch_size = _fitting(predict, batch_size)
    listed = [
        [str(image.resolve()), label if folder.labelled else guess]
        for (image, label), guess in zip(folder.samples, predicted, strict=True)
    ]
    write_atomically(path, json.dumps({"identity": identity, "images": listed}, indent=1) + "\n")
    return batch_size


def _part(name: str, one: Audit, batch_size: int) -> tuple[dict[str, Any], int]:
    """Measure a part, or read what was measured.

    Returns:
        Its ``rows``, or the sentence with which it was ``refused``, and the next batch size.
    """
    path = one.folder / f"{name.replace(' ', '-').lower()}.json"
    if path.is_file():
        say(f"{name}: kept from before")
        return _read(path), batch_size
    measure, views = PARTS[name]
    start = time.monotonic()
    try:
        total = None if views is None else views * one.trained.info.val_images
        with _watched(one.trained.model, name, total):
            rows, batch_size = _fitting(partial(measure, one), batch_size)
    except VitrineError as error:
        say(f"{name}: not measured, as {sentence(error)}")
        return {"refused": sentence(error)}, batch_size
    seconds = time.monotonic() - start
    origin = provenance(one.trained.device, wall_seconds=round(seconds, 3), batch_size=batch_size)
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
            if not _out_of_memory(error):
                raise
        # Outside of the handler, whose error holds the tensors of the failed pass.
        if batch_size == 1:
            raise VitrineError("a single image takes more memory than there is")
        batch_size //= 2
        torch.cuda.empty_cache()
        say(f"out of memory: {batch_size} images at a time from here on")


def _out_of_memory(error: Exception) -> bool:
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error)  # torch's allocator of the CPU


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


def _accuracy(one: Audit, batch_size: int) -> list[Row]:
    if not one.labelled:
        raise VitrineError(
            f"the images are not in folders of the model's {one.trained.info.classes} classes: "
            "accuracy needs labels"
        )
    values: Any = accuracy(one.trained, batch_size)
    images = values["images"]
    return [_share(name, "", values[name.replace("-", "")], images) for name in ("top-1", "top-5")]


def _circular(one: Audit, batch_size: int) -> list[Row]:
    values: Any = circular_consistency(one.trained, batch_size)
    worst: Any = worst_shift(one.trained, batch_size, shifts=SHIFTS)
    images = values["images"]
    return [
        _share(KEPT, "circular, two shifts", values["consistency"], images),
        _share(KEPT, f"circular, worst of {SHIFTS}", worst["consistency"], images),
        _share("logits equal in every bit", "circular, two shifts", values["bitwise"], images),
        _number(
            "largest difference of a logit",
            "circular, two shifts",
            values["max_logit_difference"],
            images,
        ),
    ]


def _standard(one: Audit, batch_size: int) -> list[Row]:
    data = one.trained.recipe.data
    # timm's own crop is too tight for most models to shift it.
    wider = data.model_copy(update={"crop_pct": min(data.crop_pct, CROP_PCT)})
    cropped = replace(one.trained, recipe=one.trained.recipe.model_copy(update={"data": wider}))
    values: Any = {
        **standard_consistency(one.trained, ["zero"], batch_size=batch_size),
        **standard_consistency(cropped, ["crop"], batch_size=batch_size),
    }
    return [
        _share(
            KEPT,
            f"{name}, up to {values[f'{mode}/max_shift_pixels']} px",
            values[f"{mode}/consistency"],
            values[f"{mode}/images"],
        )
        for mode, name in (("zero", "zero-padded"), ("crop", "crops"))
    ]


def _turns(one: Audit, batch_size: int) -> list[Row]:
    trained = one.trained
    view = eval_transform(trained.recipe, trained.info)
    stays, equal, right = [], [], []
    for _, images, labels in validation_batches(trained, view, batch_size, None):
        upright = trained.logits(images)
        logits = torch.stack([trained.logits(transform(images, name)) for name in ELEMENTS])
        stays.append(logits.argmax(dim=2) == upright.argmax(dim=1))  # (8, B)
        changes = (logits - upright).abs().amax(dim=2)
        equal.append((changes <= EQUAL * upright.abs().amax(dim=1)).all(dim=0))
        right.append(logits.argmax(dim=2) == labels)
    kept, judged = torch.cat(stays, dim=1), torch.cat(right, dim=1)
    images_seen = kept.shape[1]

    def row(quantity: str, condition: str, shares: Tensor) -> Row:
        return _share(quantity, condition, 100 * shares.double().mean().item(), images_seen)

    rows = [row(KEPT, TURNS[name], kept[ELEMENTS.index(name)]) for name in TURNS]
    rows.append(row(KEPT, "all of these", kept.all(dim=0)))
    rows.append(
        row(f"logits equal within {EQUAL:g} of the largest", "all of these", torch.cat(equal))
    )
    if one.labelled:
        turned = [index for index, name in enumerate(ELEMENTS) if "m" not in name]
        rows.append(row("top-1", "at a random quarter turn", judged[turned]))
    return rows


def _p_shap(one: Audit, batch_size: int) -> list[Row]:
    trained = one.trained
    result = sweep(
        permutable(trained.model),
        transformed(trained, validation(trained)),
        permutations=PERMUTATIONS,
        batch_size=batch_size,
        seed=trained.seed,
        device=trained.device,
        workers=trained.workers,
        resume=one.folder / "p-shap.part",
    )
    correct = int(result.correct.sum())
    if not correct:
        raise VitrineError(
            "the model classifies none of the images correctly, and P-SHAP is of those: give "
            "images of its own classes"
        )
    row = _number(
        "P-SHAP",
        "too high, as images are few" if len(result.correct) < FEW else "",
        result.mean,
        correct,
    )
    low, high = result.interval or (None, None)
    return [row | {"low": low, "high": high}]


def _sizes(one: Audit, batch_size: int) -> list[Row]:
    rows = []
    for pixels in one.sizes:
        view = eval_transform(one.trained.recipe, one.trained.info, pixels)
        models = _at_size(one.trained, pixels)
        right: dict[nn.Module, list[Tensor]] = {model: [] for model in models.values()}
        for _, images, labels in validation_batches(one.trained, view, batch_size, None):
            for model, found in right.items():
                logits = replace(one.trained, model=model).logits(images)
                found.append(hits(logits, labels)[:, 0])
        for name, model in models.items():
            judged = torch.cat(right[model])
            quantity = f"{'top-1' if one.labelled else KEPT}: {name}"
            percent = 100 * judged.double().mean().item()
            rows.append(_share(quantity, f"{pixels} px", percent, len(judged)))
    return rows


def _at_size(trained: Trained, pixels: int) -> dict[str, nn.Module]:
    """The model for images of another size: by each calibration of its table, if it has one."""
    own = pixels == trained.recipe.data.image_size
    try:
        patch_positions(trained.model)
    except VitrineError:
        return {"no table of positions": trained.model if own else _resized(trained, pixels)}
    if own:
        return dict.fromkeys(CALIBRATIONS, trained.model)
    resized = partial(rescale_pos_embed, trained.model, pixels, antialias=False)
    return {name: resized(calibration=way) for name, way in CALIBRATIONS.items()}


def _resized(trained: Trained, pixels: int) -> nn.Module:
    shared = {id(parameter): parameter for parameter in trained.model.parameters()}
    model: Any = copy.deepcopy(trained.model, shared)
    try:
        if hasattr(model, "set_input_size"):
            model.set_input_size(img_size=(pixels, pixels))
        replace(trained, model=model).logits(torch.zeros(1, 3, pixels, pixels))
    except Exception as error:  # a model may raise anything about images that do not suit it
        if _out_of_memory(error):
            raise
        raise VitrineError(
            f"the model takes no images of {pixels} pixels ({first_line(error)}): name sizes that "
            "it takes by --size"
        ) from None
    return model


PARTS: dict[str, tuple[Callable[[Audit, int], list[Row]], int | None]] = {
    "Accuracy": (_accuracy, 1),
    "Circular shifts": (_circular, 3 + 1 + SHIFTS),
    "Standard shifts": (_standard, 6),
    "Turns and mirrors": (_turns, 1 + len(ELEMENTS)),
    "P-SHAP": (_p_shap, 1 + PERMUTATIONS),
    "Test sizes": (_sizes, None),
}
"""Each part's function, and how many times it shows each image to the model (None: it depends)."""


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
        raise VitrineError(f"cannot read {path} ({first_line(error)}): delete it") from None
    return found


def _write_table(
    parts: Mapping[str, Mapping[str, Any]], origin: Mapping[str, Any], path: Path
) -> None:
    """Write all rows, each with where it comes from; a part that was refused says why."""
    rows = [
        {"part": name, **row}
        for name, part in parts.items()
        for row in part.get("rows") or [{"quantity": "not measured", "condition": part["refused"]}]
    ]
    facts = {key: value for key, value in origin.items() if key not in ("packages", "sizes")}
    packages = {f"{name}_version": version for name, version in origin["packages"].items()}
    with atomic_path(path) as partial_file:
        pd.DataFrame(rows).assign(**facts, **packages).to_csv(partial_file, index=False)


def _stamp(origin: Mapping[str, Any]) -> str:
    packages = origin["packages"]
    code = str(origin["commit"] or packages.get("vitrine"))[:8]
    return (
        f"vitrine {code}, torch {packages['torch']}, timm {packages['timm']}; {origin['device']}; "
        f"weights {origin['weights']}, images {origin['data']}"
    )


def _tell(parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Print all numbers as a table."""
    rows = [
        (name, row["quantity"], row["condition"], f"{row['value']:.4g}", _interval(row))
        for name, part in parts.items()
        for row in part.get("rows", [])
    ]
    table(("part", "quantity", "condition", "value", "95 %"), rows, right=("value",))


def _interval(row: Row) -> str:
    return "" if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"
