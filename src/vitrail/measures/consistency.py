"""Shift consistency: how often a prediction survives a shift (shift, Eq. 25).

Two shifted views of an image are classified, and their predictions are compared. A circular shift
only moves pixels, so the logits of a truly shift-invariant model agree except for rounding; those
of our models with an anchor (`vitrail.shift.selection`) agree bit for bit. A standard shift
replaces content at the border, so no model always agrees.

The random draws for an image depend on the seed and its index in the split only. So batch size and
workers do not change the result, and compared conditions (offset ranges, erased patches, flips) use
the same draws, scaled to their ranges.

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
"""Side in pixels of the images to which the paper's standard shifts refer."""
CROP_PCT = 0.875
"""Largest ratio of a crop's side to the resized image's at which all of a `standard_shift` fits."""


@dataclass(frozen=True)
class Condition:
    """How an image is changed before the shifts, and their range; the unit of lengths is its side.

    Source: shift, Sec. A5.1, Sec. A5.2.

    Raises:
        VitrailError: `max_offset` or `erase` is not a number from 0 (`erase`: to 1), or there is no
            such `flip`.
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
    """How often two shifted views have the same prediction, for N images and P pairs in all."""

    top1: float  # percent of labelled images classified correctly before any shift, else NaN
    consistency: float  # percent of pairs with the same prediction
    bitwise: float  # percent of pairs with logits equal in every bit
    max_logit_difference: float  # over all pairs
    images: int  # N
    pairs: int  # P / N


class WorstShift(NamedTuple):
    """The share of images whose prediction no shift changes."""

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
        pairs: pairs of shifts that are drawn for each image.
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

    Conditions with equal `erase` and `flip` share the unshifted view.
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
        black: ``(3,)``, the value of a black pixel after normalisation.
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
        the result, whose ``top1`` is that of the central crops.

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
    """Compare the views that `views` makes of images and draws ``(B, 2 pairs, 2)`` from [0, 1).

    The first view is unshifted; the others are pairs.
    """
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
    """Measure the share of images that keep their prediction under every circular shift.

    After the first shift that changes an image's prediction, its other shifts are not tried.

    Args:
        model: a classifier in evaluation mode.
        batches: square images ``(B, 3, S, S)`` with labels ``(B,)``, which are not used.
        shifts: how many of the S^2 are tried, drawn without repetition, the same for all images;
            None is all.
        batch_size: number of shifted views in a forward pass.
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
    """Scale a shift from images with sides of `STANDARD_SIDE` pixels to sides of `side` pixels.

    It is the same fraction of the side, rounded down. The paper shifts by up to 32 pixels of 224.
    """
    return max_shift * side // STANDARD_SIDE


def pixels(fraction: float, side: int) -> int:
    """Return a length, given as a fraction of the side, in whole pixels."""
    return round(fraction * side)


class _Tally:
    """Counts of agreeing pairs and correct predictions, summed over batches."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.difference = 0.0

    def add(self, logits: Tensor, labels: Tensor, views: Sequence[Tensor]) -> None:
        """Add a batch: logits ``(B, classes)`` of its unshifted images and of 2 views per pair."""
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
