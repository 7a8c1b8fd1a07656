"""The margins by which a model makes its choices, relative to the possible effect of rounding.

A module that chooses has a method ``margin`` with the arguments of its ``forward``. It returns the
margin of each image ``(B,)``, which is above 1 if rounding cannot change the choice, and whether
the module anchors: whether all later modules get the same input for all shifts of an image
(`vitrail.shift.certificate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError


class MarginSummary(NamedTuple):
    """Margins over all views on which a model was run, in units of the largest rounding effect.

    All are None for a model that makes no choices.
    """

    smallest: float | None = None
    median: float | None = None
    certified: float | None = None  # percent of views whose margin is above 1


class SelectionMargins:
    """The smallest margin of any choice for each image: see `selection_margins`."""

    def __init__(self) -> None:
        self.calls: list[Tensor] = []  # (B,) of each call of the model
        self.chosen, self.anchored = False, True  # outside of a call nothing is recorded

    def clear(self) -> None:
        """Forget what was recorded."""
        self.calls.clear()

    def begin(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Begin a call of the model."""
        self.calls.append(torch.full((len(inputs[0]),), torch.inf, device=inputs[0].device))
        self.chosen, self.anchored = False, False

    def note(self, module: Any, inputs: tuple[Any, ...], _: object) -> None:
        """Record the margin of a choice; after an anchor, choices cannot differ and are ignored."""
        if not self.anchored:
            margin, self.anchored = module.margin(*inputs)
            self.calls[-1] = torch.minimum(self.calls[-1], margin.to(self.calls[-1].dtype))
            self.chosen = True

    def end(self, *_: object) -> None:
        """End a call; if choices were made without an anchor, the margin is 0."""
        if self.chosen and not self.anchored:
            self.calls[-1] = torch.zeros_like(self.calls[-1])
        self.anchored = True

    def smallest(self) -> Tensor:
        """Return the smallest margin of each image since the last `clear`, ``(B,)``.

        It is infinite for a model that makes no choices.

        Raises:
            VitrailError: the model has not run.
        """
        if not self.calls:
            raise VitrailError("no margin is recorded: run the model inside selection_margins")
        return torch.stack(self.calls).amin(dim=0)

    def summary(self) -> MarginSummary:
        """Summarise the margins of all images of all calls; each of them is a view."""
        margin = torch.cat(self.calls).cpu()
        if margin.isinf().all():
            return MarginSummary()
        return MarginSummary(
            smallest=margin.min().item(),
            median=margin.median().item(),
            certified=100 * (margin > 1).double().mean().item(),
        )


@contextmanager
def selection_margins(model: nn.Module) -> Iterator[SelectionMargins]:
    """Record the margins of the choices in `model`, which must not be compiled.

    An image whose margin is above 1 is certified: for every circular shift of it the model chooses
    the same grids, up to the anchor, after which tokens are in the same order. A margin near 0
    means that two grids tie, as for a periodic image; 0 means that the model has no anchor, and
    nothing is certified::

        with selection_margins(model) as margins:
            model(images)
        margins.smallest()  # (B,)
    """
    margins = SelectionMargins()
    hooks = [
        model.register_forward_pre_hook(margins.begin),
        *(
            module.register_forward_hook(margins.note)
            for module in model.modules()
            if hasattr(module, "margin")
        ),
        model.register_forward_hook(margins.end),
    ]
    try:
        yield margins
    finally:
        for hook in hooks:
            hook.remove()
