"""Invariance of any classifier by looking at eight views: what octic models compete with.

A view is the image under one of the eight elements of the octic group. The views of a turned or
mirrored image are the same eight in another order. So whatever is made of them without regard to
their order is invariant, for any model and any weights. Nothing is trained, and an image takes
eight forward passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.measures.context import Trained, Values, passes, require_classes
from vitrail.measures.flops import flops_of_trained
from vitrail.octic.group import ELEMENTS, transform
from vitrail.octic.rotation import rotated_accuracy


def mean_of_views(logits: Tensor) -> Tensor:
    """Average the logits of views ``(8, B, classes)``: ``(B, classes)``."""
    return logits.mean(0)


def surest_view(logits: Tensor) -> Tensor:
    """Take of the logits of views ``(8, B, classes)`` those of the surest view: ``(B, classes)``.

    Source: canonicalisation by optimisation (Kaba et al., "Equivariance with Learned
    Canonicalization Functions", ICML 2023) lets a model see the view with the least energy. Here
    nothing is learned: a view's energy is minus the largest softmax probability that the classifier
    itself gives, its confidence (Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks", ICLR 2017).

    Confidences are compared by their log odds, as probabilities near 1 are equal after rounding. Of
    equally sure views the first counts, so the result is invariant but for images of which two
    views that tie have different logits.

    Raises:
        VitrailError: there is one logit alone, whose softmax probability is 1 in every view.
    """
    require_classes(logits.shape[-1])
    top, index = logits.max(-1, keepdim=True)
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1, keepdim=True)
    surest = (top - others).argmax(0, keepdim=True)  # (1, B, 1)
    return logits.gather(0, surest.expand(1, *logits.shape[1:]))[0]


class EightViews(nn.Module):
    """A classifier of square images ``(B, 3, S, S)`` that shows them to `model` in eight views.

    `combine` makes one of the views' logits, as `mean_of_views` and `surest_view`.
    """

    def __init__(self, model: nn.Module, combine: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.combine = model, combine

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes)``."""
        views = [self.model(transform(images, element)) for element in ELEMENTS]
        return self.combine(torch.stack(views))


WAYS = {"mean": mean_of_views, "surest": surest_view}
"""How the logits of the views are combined, by the name in the keys."""


@passes(2 * len(ELEMENTS) * len(WAYS))
def accuracy_of_views(trained: Trained, batch_size: int = 128, images: int | None = None) -> Values:
    """Measure a trained classifier that sees eight views of each image as `rotated_accuracy` does.

    Arguments are those of `rotated_accuracy`.

    Returns:
        of each of `WAYS` what `rotated_accuracy` and `flops_of_trained` return, as
        ``"<mean|surest>/<key>"``.
    """
    values: dict[str, Any] = {}
    for name, combine in WAYS.items():
        viewed = replace(trained, model=EightViews(trained.model, combine))
        found = {**rotated_accuracy(viewed, batch_size, images), **flops_of_trained(viewed)}
        values |= {f"{name}/{key}": value for key, value in found.items()}
    return values
