"""The accuracy of a classifier on turned and mirrored images (octic, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitrail.measures.accuracy import hits
from vitrail.measures.outputs import Batches, logits_of, numbered
from vitrail.octic.group import ELEMENTS, transform
from vitrail.seeding import derive

EQUAL_RTOL = 1e-4  # relative to the image's largest logit: a smaller change counts as none


class RotatedAccuracy(NamedTuple):
    """Results of a classifier on N images, and on the same images turned by quarters."""

    right: Tensor  # (N, 2) bool: top-1 and top-5 hits on upright images
    right_rotated: Tensor  # (N, 2) bool: those on turned images
    equal: Tensor  # (N,) bool: whether all logits stay within `EQUAL_RTOL`
    max_logit_difference: float

    @property
    def top1(self) -> float:
        """Top-1 accuracy on upright images in percent."""
        return 100 * self.right[:, 0].double().mean().item()

    @property
    def rotated_top1(self) -> float:
        """Top-1 accuracy on turned images in percent."""
        return 100 * self.right_rotated[:, 0].double().mean().item()


class Views(NamedTuple):
    """Results of a model on eight views of N images: turned by quarters, mirrored or both."""

    kept: Tensor  # (8, N): for each of `ELEMENTS`, whether the prediction equals the upright one
    right: Tensor  # (8, N): for each of `ELEMENTS`, whether the prediction is the label
    equal: Tensor  # (N,): whether all logits of all views stay within `EQUAL_RTOL`


def accuracy_under_turns(
    model: nn.Module, batches: Batches, *, seed: int = 0, indices: Iterable[int] | None = None
) -> RotatedAccuracy:
    """Measure top-1 and top-5 accuracy on upright images and on the same images turned.

    Every image is turned by a random multiple of 90 degrees. Source: octic, Sec. 4.1, and "OOD
    Rot." of Table 2.

    Args:
        model: a classifier in evaluation mode.
        batches: square images ``(B, 3, S, S)`` with labels ``(B,)``.
        seed: seed of the turns; a turn by 0 degrees has probability 1/4.
        indices: indices of the images, as for `vitrail.measures.outputs.numbered`.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """
    upright, rotated, equal = list[Tensor](), list[Tensor](), list[Tensor]()
    difference = 0.0
    for own, images, labels in numbered(batches, model, indices):
        before = logits_of(model, images)
        after = logits_of(model, turned(images, [quarter_turns(seed, index) for index in own]))
        upright.append(hits(before, labels))
        rotated.append(hits(after, labels))
        changes = (after - before).abs().amax(1)
        equal.append(changes <= EQUAL_RTOL * before.abs().amax(1))
        difference = max(difference, changes.max().item())
    return RotatedAccuracy(torch.cat(upright), torch.cat(rotated), torch.cat(equal), difference)


def eight_views(model: nn.Module, batches: Batches) -> Views:
    """Show a classifier all eight views of each image (octic, Sec. 4.1 draws one of four turns).

    Args:
        model: a classifier in evaluation mode.
        batches: square images ``(B, 3, S, S)`` with labels ``(B,)``.

    Raises:
        VitrailError: the model has fewer than two classes, or a logit is not finite.
    """
    kept, right, equal = list[Tensor](), list[Tensor](), list[Tensor]()
    for _, images, labels in numbered(batches, model):
        upright = logits_of(model, images)
        logits = torch.stack([logits_of(model, transform(images, name)) for name in ELEMENTS])
        kept.append(logits.argmax(dim=2) == upright.argmax(dim=1))  # (8, B)
        right.append(logits.argmax(dim=2) == labels)
        changes = (logits - upright).abs().amax(dim=2)
        equal.append((changes <= EQUAL_RTOL * upright.abs().amax(dim=1)).all(dim=0))
    return Views(torch.cat(kept, dim=1), torch.cat(right, dim=1), torch.cat(equal))


def quarter_turns(seed: int, index: int) -> int:
    """Draw the number of quarter turns, 0 to 3, of the image of this index."""
    return derive("quarter turns", seed, index) % 4


def turned(images: Tensor, turns: Sequence[int]) -> Tensor:
    """Turn each of ``(B, C, S, S)`` anticlockwise by its number of quarters."""
    return torch.stack([image.rot90(k, (-2, -1)) for image, k in zip(images, turns, strict=True)])
