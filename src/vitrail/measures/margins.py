"""By how much the selections of a model are decided: what rounding would have to do to change them.

Models that select (the grids of `vitrail.shift`) note the scores of each selection; a measure asks
for the margins while it runs the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.measures.context import Values

ROUNDINGS = 8
"""Units in the last place by which a token's energy is assumed to err at most."""


class SelectionMargins:
    """The smallest margin of any selection for each image: see `selection_margins`."""

    def __init__(self) -> None:
        self.calls: list[Tensor] = []  # (B,) of each call of the model

    def clear(self) -> None:
        """Forget what was recorded."""
        self.calls.clear()

    def smallest(self) -> Tensor:
        """Return the smallest margin of each image since the last `clear`, ``(B,)``.

        It is infinite for a model that selects nothing.

        Raises:
            VitrailError: the model has not run.
        """
        if not self.calls:
            raise VitrailError("no margin is recorded: run the model inside selection_margins")
        return torch.stack(self.calls).amin(dim=0)

    def summary(self) -> Values:
        """Summarise the margins of all images of all calls, each a view.

        Returns:
            ``margin/smallest`` and ``margin/median``, in units of what rounding may change, and
            ``margin/clear``: percent of views above 1. None if the model selects nothing.
        """
        margin = torch.cat(self.calls).cpu()
        if margin.isinf().all():
            return dict.fromkeys(("margin/smallest", "margin/median", "margin/clear"))
        return {
            "margin/smallest": margin.min().item(),
            "margin/median": margin.median().item(),
            "margin/clear": 100 * (margin > 1).double().mean().item(),
        }


_RECORDING: list[SelectionMargins] = []


@contextmanager
def selection_margins(model: nn.Module) -> Iterator[SelectionMargins]:
    """Record by how much the selections in `model` are decided; eager models only.

    The margin of a selection is the gap between its best two scores over what rounding may change
    that gap by. That is assumed, see `ROUNDINGS`, and no bound derived from the model: above 1, a
    clear margin, rounding is not expected to change the selection; near 0 two grids tie, as those
    of a periodic image do::

        with selection_margins(model) as margins:
            model(images)
        margins.smallest()  # (B,)
    """
    margins = SelectionMargins()

    def begin(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        _RECORDING.append(margins)
        margins.calls.append(torch.full((len(inputs[0]),), torch.inf, device=inputs[0].device))

    def end(*_: object) -> None:
        _RECORDING.remove(margins)

    hooks = [
        model.register_forward_pre_hook(begin),
        model.register_forward_hook(end, always_call=True),
    ]
    try:
        yield margins
    finally:
        for hook in hooks:
            hook.remove()


def note_margin(scores: Tensor, dtype: torch.dtype) -> None:
    """Record the margins of scores ``(B, P, Q)`` of energies of `dtype`, where asked for."""
    if not _RECORDING or scores[0].numel() < 2:
        return
    first, second = scores.flatten(1).topk(2, dim=1).values.unbind(dim=1)
    gap = (first - second).float() / first.float().clamp_min(1e-30)
    margin = gap / (2 * ROUNDINGS * torch.finfo(dtype).eps)
    for margins in _RECORDING:
        margins.calls[-1] = torch.minimum(margins.calls[-1], margin)
