"""Make any classifier invariant by eight views of each image, to compare with octic models.

A view is the image under one of the eight elements of the octic group. The views of a turned or
mirrored image are the same eight in another order. So any function of the views that does not
depend on their order is invariant, for any model and any weights. Nothing is trained, and an image
takes eight forward passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vitrail.measures.outputs import require_classes
from vitrail.octic.group import ELEMENTS, transform


def mean_of_views(logits: Tensor) -> Tensor:
    """Return the mean over the views of their logits, ``(8, B, classes)`` to ``(B, classes)``."""
    return logits.mean(0)


def most_confident_view(logits: Tensor) -> Tensor:
    """Return the logits of the most confident view, ``(8, B, classes)`` to ``(B, classes)``.

    Source: canonicalisation by optimisation (Kaba et al., "Equivariance with Learned
    Canonicalization Functions", ICML 2023) lets a model see the view with the least energy. Here
    nothing is learned: a view's energy is minus the largest softmax probability that the classifier
    itself gives, its confidence (Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
    Out-of-Distribution Examples in Neural Networks", ICLR 2017).

    Confidences are compared by their log odds, as probabilities near 1 are equal after rounding. Of
    equally confident views the first one is chosen. So the result is invariant except where equally
    confident views of an image have different logits.

    Raises:
        VitrailError: there is only one class, whose softmax probability is 1 in every view.
    """
    require_classes(logits.shape[-1])
    top, index = logits.max(-1, keepdim=True)
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1, keepdim=True)
    view = (top - others).argmax(0, keepdim=True)  # (1, B, 1)
    return logits.gather(0, view.expand(1, *logits.shape[1:]))[0]


class GroupAverage(nn.Module):
    """A classifier of square images ``(B, 3, S, S)`` that applies `model` to their eight views.

    `combine` maps the logits of the views, ``(8, B, classes)``, to ``(B, classes)``: for example
    `mean_of_views` or `most_confident_view`.
    """

    def __init__(self, model: nn.Module, combine: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.combine = model, combine

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, classes)``."""
        views = [self.model(transform(images, element)) for element in ELEMENTS]
        return self.combine(torch.stack(views))


WAYS = {"mean": mean_of_views, "surest": most_confident_view}
"""Functions that combine the logits of the views, by name."""
