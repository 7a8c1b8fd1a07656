"""Shift consistency: how often a prediction survives a shift (shift, Eq. 25).

Two shifted views of an image are classified; their predictions agree or they do not. A circular
shift only moves pixels, so a truly shift-invariant model agrees always, bit for bit. A standard
shift replaces content at the border, so none can.

The one idea: what is drawn for an image follows from the seed and its index in the split alone. So
batch size and workers change nothing, and compared conditions (offset ranges, erased patches,
flips) see the same draws, scaled to their ranges.

An offset o is the exponent of S (shift, Eq. 1): shifted[i] = x[(i + o) mod M], on each axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import Subset

from vitrail.errors import VitrailError, did_you_mean
from vitrail.factory import Precision, autocast
from vitrail.images.loading import EvaluationSamples, eval_loader, evenly_spread
from vitrail.images.opening import build
from vitrail.images.shifts import (
    circular_shift,
    crop,
    draws,
    erase_square,
    integers,
    zero_padded_shift,
)
from vitrail.images.transforms import Transform, eval_transform, normalization
from vitrail.measures.context import Trained, Values, passes
from vitrail.measures.margins import selection_margins
from vitrail.seeding import derive

Mode = Literal["zero", "crop"]
STANDARD_SIDE = 224
"""Side of the images whose pixels `max_shift` of `standard_consistency` counts."""


@dataclass(frozen=True)
class Condition:
    """What is done to an image, and how far it is then shifted; lengths are in image sides.

    Source: shift, Sec. A5.1, Sec. A5.2.
    """

    max_offset: float = 1.0  # offsets are uniform integers from 0 to this, on each axis
    erase: float = 0.0  # the side of the erased square is a uniform integer from 0 to this
    flip: Literal["vertical"] | None = None  # turn the image upside down first

    def __post_init__(self) -> None:
        for name, value, most in (("max_offset", self.max_offset, inf), ("erase", self.erase, 1)):
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise VitrailError(
                    f"{name} is {value!r}; it counts image sides: give a number from 0 to {most}"
                )
        if self.flip not in ("vertical", None):
            raise VitrailError(f"flip is '{self.flip}'; use 'vertical' or leave it out")


def _circular_passes(given: Mapping[str, Any]) -> int:
    """Each condition's pairs of shifts, and each view once before any shift."""
    shared = {field.name: given[field.name] for field in fields(Condition) if field.name in given}
    named = (given["conditions"] or {"": {}}).values()
    conditions = [_condition({**shared, **own}) for own in named]
    views = {(condition.erase, condition.flip) for condition in conditions}
    return len(views) + 2 * given["pairs"] * len(conditions)


@passes(_circular_passes)
def circular_consistency(
    trained: Trained,
    batch_size: int = 128,
    pairs: int = 1,
    images: int | None = None,
    precision: Precision = "fp32",
    conditions: Mapping[str, Mapping[str, Any]] | None = None,
    **condition: Any,
) -> Values:
    """C-Cons: do predictions agree under two circular shifts (shift, Sec. 5.1, Eq. 25)?

    The shifts are at the resolution of the network. `pairs` of them are drawn for each image, the
    same for every batch size. `images` are spread evenly over the validation split; None is all.
    `conditions` are fields of `Condition` by name, all measured in one pass over the data;
    `condition` are those of the only one, or those that all share.

    Returns:
        ``top1`` (percent, before any shift), ``consistency`` (percent of pairs), ``bitwise``
        (percent of pairs with logits equal in every bit), ``max_logit_difference``,
        ``max_offset_pixels`` and ``max_erased_pixels`` (ranges of the draws), ``images``,
        ``pairs``; with `conditions` each as ``"<name>/<key>"``. Over all views that the model is
        shown, what `SelectionMargins.summary` says.

    Raises:
        VitrailError: a condition has an unknown field, or a value out of range.
    """
    each = {f"{name}/": own for name, own in (conditions or {}).items()} or {"": {}}
    named = {name: _condition({**condition, **own}) for name, own in each.items()}
    tallies = {name: _Tally() for name in named}
    side = trained.recipe.data.image_size
    transform = eval_transform(trained.recipe, trained.info)
    with selection_margins(trained.model) as margins:
        for indices, batch, labels in validation_batches(trained, transform, batch_size, images):
            shifts = draws(trained.seed, "circular shift", indices, pairs, 2, 2)
            patches = draws(trained.seed, "erased patch", indices, 3)
            seen: dict[object, tuple[Tensor, Tensor]] = {}  # images, logits
            for name, own in named.items():
                view = (own.erase, own.flip)
                with autocast(trained.device, precision):
                    if view not in seen:
                        sides = integers(patches[:, 0], _pixels(own.erase, side))
                        corners = integers(patches[:, 1:], side - sides[:, None])
                        upright = batch.flip(-2) if own.flip else batch
                        shown = erase_square(upright, corners, sides)
                        seen[view] = shown, trained.logits(shown)
                    shown, logits = seen[view]
                    offsets = integers(shifts, _pixels(own.max_offset, side))
                    views = [
                        trained.logits(circular_shift(shown, offset))
                        for offset in offsets.flatten(1, 2).unbind(1)
                    ]
                tallies[name].add(logits, labels, views)
    values: dict[str, Any] = {}
    for name, own in named.items():
        ranges = {"max_offset_pixels": own.max_offset, "max_erased_pixels": own.erase}
        result = tallies[name].values() | {k: _pixels(v, side) for k, v in ranges.items()}
        values |= {f"{name}{key}": value for key, value in result.items()}
    return {**values, **margins.summary()}


@passes(lambda given: len(given["modes"]) * (1 + 2 * given["pairs"]))
def standard_consistency(
    trained: Trained,
    modes: Sequence[Mode] = get_args(Mode),
    max_shift: int = 32,
    batch_size: int = 128,
    pairs: int = 1,
    images: int | None = None,
) -> Values:
    """S-Cons: do predictions agree under two standard shifts, which change the border's content?

    Source: shift, Sec. 5.2.

    The mode ``zero`` (Sec. 5.2 on CIFAR) shifts the image that the network would see by up to
    `max_shift` either way, on each axis; pixels that are left empty are black. ``crop`` (on
    ImageNet; Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019) cuts both views
    out of the resized image's centre, `max_shift` wider than the network's input: they differ by
    up to `max_shift` either way, and all that they show is real, but for what timm's ``border``
    mode of cropping pads with the mean. `max_shift` is in pixels of an image of 224; other sizes
    shift by the same part, rounded down. `batch_size`, `pairs` and `images` are as of
    `circular_consistency`.

    Returns:
        for each mode ``"<mode>/<key>"``: ``top1`` (percent, of the unshifted or centrally cropped
        images), ``consistency``, ``bitwise``, ``max_logit_difference``, ``images`` and ``pairs``
        as `circular_consistency`, and ``max_shift_pixels`` of this network's input.

    Raises:
        VitrailError: there is no such mode, or the crops do not fit into the resized image.
    """
    side = trained.recipe.data.image_size
    limit = max_shift * side // STANDARD_SIDE
    mean, std = normalization(trained.info, trained.recipe.data.normalization)
    black = -torch.tensor(mean) / torch.tensor(std)
    values: dict[str, float] = {}
    for mode in modes:
        if mode not in get_args(Mode):
            raise VitrailError(f"there is no mode '{mode}'{did_you_mean(mode, get_args(Mode))}")
        margin = limit if mode == "crop" else 0
        transform = eval_transform(trained.recipe, trained.info, margin=margin)
        tally = _Tally()
        for indices, batch, labels in validation_batches(trained, transform, batch_size, images):
            uniform = draws(trained.seed, "standard shift", indices, 2 * pairs, 2)
            if mode == "crop":
                corners = integers(uniform, limit)
                views = [crop(batch, corner, side) for corner in corners.unbind(1)]
                batch = crop(batch, torch.full((len(batch), 2), limit // 2), side)
            else:
                offsets = integers(uniform, 2 * limit) - limit
                views = [zero_padded_shift(batch, offset, black) for offset in offsets.unbind(1)]
            tally.add(trained.logits(batch), labels, [trained.logits(view) for view in views])
        values |= {f"{mode}/{key}": value for key, value in tally.values().items()}
        values[f"{mode}/max_shift_pixels"] = limit
    return values


@passes(lambda given: 1 + min(given["side"] ** 2, given["shifts"] or inf))  # if all are kept
def worst_shift(
    trained: Trained, batch_size: int = 128, images: int | None = None, shifts: int | None = None
) -> Values:
    """Of how many images does the prediction stay under every circular shift, the worst included?

    `batch_size` is that of the views, and `images` is as of `circular_consistency`. `shifts` says
    how many are tried, drawn from all without repetition, the same for all images; None is all. An
    image is done with at the first that changes its prediction.

    Returns:
        ``consistency`` (percent of images), ``images`` and ``shifts`` (how many of each).
    """
    side = trained.recipe.data.image_size
    generator = torch.Generator().manual_seed(derive("worst shift", trained.seed))
    order = torch.randperm(side**2, generator=generator)[:shifts]
    offsets = torch.stack([order // side, order % side], dim=1)
    transform = eval_transform(trained.recipe, trained.info)
    kept = judged = 0
    for _, batch, _ in validation_batches(trained, transform, batch_size, images):
        expected, tried = trained.logits(batch).argmax(dim=1), 0
        judged += len(batch)
        while len(batch) and tried < len(offsets):
            some = offsets[tried : tried + max(1, batch_size // len(batch))]
            views = circular_shift(
                batch.repeat(len(some), 1, 1, 1), some.repeat_interleave(len(batch), dim=0)
            )
            same = trained.logits(views).argmax(dim=1).view(len(some), -1) == expected
            stays, tried = same.all(dim=0), tried + len(some)
            batch, expected = batch[stays.to(batch.device)], expected[stays]
        kept += len(batch)
    return {"consistency": 100 * kept / judged, "images": judged, "shifts": len(offsets)}


def _condition(values: Mapping[str, Any]) -> Condition:
    known = [field.name for field in fields(Condition)]
    for name in sorted(values.keys() - known):
        raise VitrailError(
            f"circular_consistency has no argument '{name}'{did_you_mean(name, known)}"
        )
    return Condition(**values)


def _pixels(fraction: float, side: int) -> int:
    return round(fraction * side)


def validation_batches(
    trained: Trained, transform: Transform, batch_size: int, images: int | None
) -> Iterator[tuple[Sequence[int], Tensor, Tensor]]:
    """Yield indices in the validation split, images on the device, and labels."""
    dataset: Any = build(trained.info, "val", trained.data_root, trained.seed)
    chosen = evenly_spread(len(dataset), images)
    samples, device = EvaluationSamples(Subset(dataset, chosen), transform), trained.device
    loader = eval_loader(samples, batch_size, trained.workers, device)
    for number, (batch, labels) in enumerate(loader):
        start = number * batch_size
        yield chosen[start : start + batch_size], batch.to(device, non_blocking=True), labels


class _Tally:
    """Counts over batches."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.difference = 0.0

    def add(self, logits: Tensor, labels: Tensor, views: Sequence[Tensor]) -> None:
        """Count a batch: logits ``(B, classes)`` of its images and of 2 views for each pair."""
        correct = int((logits.argmax(dim=1) == labels).sum())
        self.counts.update(images=len(labels), correct=correct)
        for first, second in zip(views[::2], views[1::2], strict=True):
            same = int((first.argmax(dim=1) == second.argmax(dim=1)).sum())
            bitwise = int((first == second).all(dim=1).sum())
            self.counts.update(pairs=len(labels), same=same, bitwise=bitwise)
            self.difference = max(self.difference, (first - second).abs().max().item())

    def values(self) -> dict[str, float]:
        """The keys that all measures of consistency share."""
        images, pairs = self.counts["images"], self.counts["pairs"]
        return {
            "top1": 100 * self.counts["correct"] / images,
            "consistency": 100 * self.counts["same"] / pairs,
            "bitwise": 100 * self.counts["bitwise"] / pairs,
            "max_logit_difference": self.difference,
            "images": images,
            "pairs": pairs // images,
        }
