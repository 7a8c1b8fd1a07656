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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.measures.outputs import UNKNOWN, Batches, logits_of, numbered, unlabelled
from vitrail.measures.shifts import (
    circular_shift,
    crop,
    draws,
    erase_square,
    integers,
    zero_padded_shift,
)
from vitrail.seeding import derive

STANDARD_SIDE = 224
"""Side in pixels of the images of which the paper gives standard shifts."""
CROP_PCT = 0.875
"""A crop's side over that of the resized image, where all of a `standard_shift` fits into it."""


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


class Consistency(NamedTuple):
    """How often two shifted views of an image are classified alike, of N images and P pairs."""

    top1: float  # percent of labelled images classified correctly before any shift, else NaN
    consistency: float  # percent of pairs with the same prediction
    bitwise: float  # percent of pairs with logits equal in every bit
    max_logit_difference: float  # over all pairs
    images: int  # N
    pairs: int  # P / N


class WorstShift(NamedTuple):
    """Of how many images no shift changes the prediction."""

    consistency: float  # percent of images
    images: int
    shifts: int  # how many were tried


def circular_consistency(
    model: nn.Module,
    images: Tensor | Batches,
    condition: Condition | None = None,
    *,
    pairs: int = 1,
    seed: int = 0,
    indices: Iterable[int] | None = None,
) -> Consistency:
    """C-Cons: do predictions agree under two circular shifts (shift, Sec. 5.1, Eq. 25)?

    Args:
        model: a classifier in evaluation mode.
        images: square images ``(n, 3, S, S)``, as the network sees them, or batches of such images
            with labels ``(B,)``, such as a `DataLoader` yields. Only ``top1`` needs labels.
        condition: what is done to the images, and how far they are shifted.
        pairs: of shifts that are drawn for each image.
        seed: of the draws.
        indices: of the images, as for `vitrail.measures.outputs.numbered`.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """
    conditions = {"": condition or Condition()}
    return circular_consistencies(
        model, images, conditions, pairs=pairs, seed=seed, indices=indices
    )[""]


def circular_consistencies(
    model: nn.Module,
    images: Tensor | Batches,
    conditions: Mapping[str, Condition],
    *,
    pairs: int = 1,
    seed: int = 0,
    indices: Iterable[int] | None = None,
) -> dict[str, Consistency]:
    """Measure `circular_consistency` under several conditions, by name, in one pass over the data.

    Conditions that erase and flip alike share the view before any shift.
    """
    tallies = {name: _Tally() for name in conditions}
    batches = unlabelled(images) if isinstance(images, Tensor) else images
    for own, batch, labels in numbered(batches, model, indices):
        side = batch.shape[-1]
        shifts = draws(seed, "circular shift", own, pairs, 2, 2)
        patches = draws(seed, "erased patch", own, 3)
        seen: dict[object, tuple[Tensor, Tensor]] = {}  # images, logits
        for name, condition in conditions.items():
            view = (condition.erase, condition.flip)
            if view not in seen:
                sides = integers(patches[:, 0], pixels(condition.erase, side))
                corners = integers(patches[:, 1:], side - sides[:, None])
                upright = batch.flip(-2) if condition.flip else batch
                shown = erase_square(upright, corners, sides)
                seen[view] = shown, logits_of(model, shown)
            shown, logits = seen[view]
            offsets = integers(shifts, pixels(condition.max_offset, side))
            views = [
                logits_of(model, circular_shift(shown, offset))
                for offset in offsets.flatten(1, 2).unbind(1)
            ]
            tallies[name].add(logits, labels, views)
    return {name: tally.result() for name, tally in tallies.items()}


def zero_padded_consistency(
    model: nn.Module,
    batches: Batches,
    max_shift: int,
    black: Tensor,
    *,
    pairs: int = 1,
    seed: int = 0,
    indices: Iterable[int] | None = None,
) -> Consistency:
    """S-Cons on CIFAR: do predictions agree under two shifts that leave black pixels behind?

    Source: shift, Sec. 5.2.

    Args:
        model: a classifier in evaluation mode.
        batches: images ``(B, 3, S, S)`` with labels ``(B,)``, as the network sees them.
        max_shift: in pixels, the largest shift in each direction, on each axis.
        black: ``(3,)``, what a pixel of zero becomes by normalisation.
        pairs: of shifts that are drawn for each image.
        seed: of the draws.
        indices: of the images, as for `vitrail.measures.outputs.numbered`.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """

    def views(images: Tensor, uniform: Tensor) -> Iterator[Tensor]:
        offsets = integers(uniform, 2 * max_shift) - max_shift
        yield images
        for offset in offsets.unbind(1):
            yield zero_padded_shift(images, offset, black)

    return _standard_consistency(model, batches, views, pairs, seed, indices)


def crop_consistency(
    model: nn.Module,
    batches: Batches,
    max_shift: int,
    *,
    pairs: int = 1,
    seed: int = 0,
    indices: Iterable[int] | None = None,
) -> Consistency:
    """S-Cons on ImageNet: do predictions agree on two crops, which differ by a shift?

    Source: shift, Sec. 5.2; Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019.

    Args:
        model: a classifier in evaluation mode, of images of ``S - max_shift`` pixels a side.
        batches: images ``(B, 3, S, S)`` with labels ``(B,)``, out of which the crops are cut.
        max_shift: in pixels, the largest distance of two crops in each direction, on each axis.
        pairs: of crops that are drawn for each image.
        seed: of the draws.
        indices: of the images, as for `vitrail.measures.outputs.numbered`.

    Returns:
        with ``top1`` of the central crops.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """

    def views(images: Tensor, uniform: Tensor) -> Iterator[Tensor]:
        side = images.shape[-1] - max_shift
        yield crop(images, torch.full((len(images), 2), max_shift // 2), side)
        for corner in integers(uniform, max_shift).unbind(1):
            yield crop(images, corner, side)

    return _standard_consistency(model, batches, views, pairs, seed, indices)


def _standard_consistency(
    model: nn.Module,
    batches: Batches,
    views: Callable[[Tensor, Tensor], Iterator[Tensor]],
    pairs: int,
    seed: int,
    indices: Iterable[int] | None,
) -> Consistency:
    """Compare `views`, the first unshifted, of images and draws ``(B, 2 pairs, 2)`` from [0, 1)."""
    tally = _Tally()
    for own, images, labels in numbered(batches, model, indices):
        uniform = draws(seed, "standard shift", own, 2 * pairs, 2)
        unshifted, *shifted = (logits_of(model, view) for view in views(images, uniform))
        tally.add(unshifted, labels, shifted)
    return tally.result()


def worst_shift(
    model: nn.Module,
    batches: Batches,
    shifts: int | None = None,
    *,
    batch_size: int = 128,
    seed: int = 0,
) -> WorstShift:
    """Of how many images does the prediction stay under every circular shift, the worst included?

    An image is done with at the first shift that changes its prediction.

    Args:
        model: a classifier in evaluation mode.
        batches: square images ``(B, 3, S, S)`` with labels ``(B,)``, which have no influence.
        shifts: how many of the S^2 are tried, drawn without repetition, the same for all images;
            None is all.
        batch_size: of the shifted views.
        seed: of the draw.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """
    generator = torch.Generator().manual_seed(derive("worst shift", seed))
    offsets = torch.empty(0, 2, dtype=torch.long)
    kept = judged = 0
    for _, images, _ in numbered(batches, model):
        if not judged:
            side = images.shape[-1]
            order = torch.randperm(side**2, generator=generator)[:shifts]
            offsets = torch.stack([order // side, order % side], dim=1)
        expected, tried = logits_of(model, images).argmax(dim=1), 0
        judged += len(images)
        while len(images) and tried < len(offsets):
            some = offsets[tried : tried + max(1, batch_size // len(images))]
            views = circular_shift(
                images.repeat(len(some), 1, 1, 1), some.repeat_interleave(len(images), dim=0)
            )
            same = logits_of(model, views).argmax(dim=1).view(len(some), -1) == expected
            stays, tried = same.all(dim=0), tried + len(some)
            images, expected = images[stays.to(images.device)], expected[stays]
        kept += len(images)
    return WorstShift(100 * kept / judged, judged, len(offsets))


def standard_shift(side: int, max_shift: int = 32) -> int:
    """Return a shift of images of `STANDARD_SIDE` pixels in pixels of an image of `side`.

    It is the same part of the side, rounded down. The paper shifts by up to 32 pixels of 224.
    """
    return max_shift * side // STANDARD_SIDE


def pixels(fraction: float, side: int) -> int:
    """Return a length in image sides as whole pixels of an image of `side`."""
    return round(fraction * side)


class _Tally:
    """Counts over batches."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.difference = 0.0

    def add(self, logits: Tensor, labels: Tensor, views: Sequence[Tensor]) -> None:
        """Count a batch: logits ``(B, classes)`` of its images and of 2 views for each pair."""
        correct = int((logits.argmax(dim=1) == labels).sum())
        labelled = int((labels != UNKNOWN).sum())
        self.counts.update(images=len(labels), labelled=labelled, correct=correct)
        for first, second in zip(views[::2], views[1::2], strict=True):
            same = int((first.argmax(dim=1) == second.argmax(dim=1)).sum())
            bitwise = int((first == second).all(dim=1).sum())
            self.counts.update(pairs=len(labels), same=same, bitwise=bitwise)
            self.difference = max(self.difference, (first - second).abs().max().item())

    def result(self) -> Consistency:
        """Return what was counted in percent."""
        images, labelled, pairs = (self.counts[name] for name in ("images", "labelled", "pairs"))
        return Consistency(
            top1=100 * self.counts["correct"] / labelled if labelled else nan,
            consistency=100 * self.counts["same"] / pairs,
            bitwise=100 * self.counts["bitwise"] / pairs,
            max_logit_difference=self.difference,
            images=images,
            pairs=pairs // images,
        )
