"""By how much the choices of a model are ahead of what rounding can do to them.

A module that chooses has a method ``margin``, of the arguments of its ``forward``, which returns
the margin of each image ``(B,)``, above 1 where no rounding can change the choice, and whether it
anchors: whether all that follows sees shifted images as one (`vitrail.shift.certificate`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError


class MarginSummary(NamedTuple):
    """Margins of all views that a model was shown, in units of what rounding may change.

    All are None for a model that chooses nothing.
    """

    smallest: float | None = None
    median: float | None = None
    certified: float | None = None  # percent of views whose margin is above 1


class SelectionMargins:
    """The smallest margin of any choice for each image: see `selection_margins`."""

    def __init__(self) -> None:
        self.calls: list[Tensor] = []  # (B,) of each call of the model
        self.chosen, self.anchored = False, True  # nothing counts outside of a call

    def clear(self) -> None:
        """Forget what was recorded."""
        self.calls.clear()

    def begin(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Begin a call of the model."""
        self.calls.append(torch.full((len(inputs[0]),), torch.inf, device=inputs[0].device))
        self.chosen, self.anchored = False, False

    def note(self, module: Any, inputs: tuple[Any, ...], _: object) -> None:
        """Record the margin of a choice; behind an anchor none can differ."""
        if not self.anchored:
            margin, self.anchored = module.margin(*inputs)
            self.calls[-1] = torch.minimum(self.calls[-1], margin.to(self.calls[-1].dtype))
            self.chosen = True

    def end(self, *_: object) -> None:
        """End a call: choices that no anchor follows leave later ones open."""
        if self.chosen and not self.anchored:
            self.calls[-1] = torch.zeros_like(self.calls[-1])
        self.anchored = True

    def smallest(self) -> Tensor:
        """Return the smallest margin of each image since the last `clear`, ``(B,)``.

        It is infinite for a model that chooses nothing.

        Raises:
            VitrailError: the model has not run.
        """
        if not self.calls:
            raise VitrailError("no margin is recorded: run the model inside selection_margins")
        return torch.stack(self.calls).amin(dim=0)

    def summary(self) -> MarginSummary:
        """Summarise the margins of all images of all calls, each a view."""
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
    """Record by how much the choices in `model` are decided; eager models only.

    An image whose margin is above 1 is certified: every circular shift of it is given the same
    grids, up to the anchor, behind which tokens are in the same order. Near 0 two grids tie, as
    those of a periodic image do; at 0 the model has no anchor, and nothing is certain::

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
