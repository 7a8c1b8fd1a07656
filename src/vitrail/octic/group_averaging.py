"""Invariance of any classifier by looking at eight views: what octic models compete with.

A view is the image under one of the eight elements of the octic group. The views of a turned or
mirrored image are the same eight in another order. So whatever is made of them without regard to
their order is invariant, for any model and any weights. Nothing is trained, and an image takes
eight forward passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vitrail.measures.outputs import require_classes
from vitrail.octic.group import ELEMENTS, transform


def mean_of_views(logits: Tensor) -> Tensor:
    """Average the logits of views ``(8, B, classes)``: ``(B, classes)``."""
    return logits.mean(0)


def most_confident_view(logits: Tensor) -> Tensor:
    """Take of logits ``(8, B, classes)`` those of the most confident view: ``(B, classes)``.

    Source: canonicalisation by optimisation (Kaba et al., "Equivariance with Learned
    Canonicalization Functions", ICML 2023) lets a model see the view with the least energy. Here
    nothing is learned: a view's energy is minus the largest softmax probability that the classifier
    itself gives, its confidence (Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks", ICLR 2017).

    Confidences are compared by their log odds, as probabilities near 1 are equal after rounding. Of
    equally confident views the first counts, so the result is invariant but for images of which two
    views that tie have different logits.

    Raises:
        VitrailError: there is one logit alone, whose softmax probability is 1 in every view.
    """
    require_classes(logits.shape[-1])
    top, index = logits.max(-1, keepdim=True)
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1, keepdim=True)
    view = (top - others).argmax(0, keepdim=True)  # (1, B, 1)
    return logits.gather(0, view.expand(1, *logits.shape[1:]))[0]


class GroupAverage(nn.Module):
    """A classifier of square images ``(B, 3, S, S)`` that shows them to `model` in eight views.

    `combine` makes one of the views' logits, as `mean_of_views` and `most_confident_view`.
    """

    def __init__(self, model: nn.Module, combine: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.combine = model, combine

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes)``."""
        views = [self.model(transform(images, element)) for element in ELEMENTS]
        return self.combine(torch.stack(views))


WAYS = {"mean": mean_of_views, "surest": most_confident_view}
"""How the logits of the views are combined, by name."""
