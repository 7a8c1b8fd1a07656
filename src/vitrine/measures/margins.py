"""By how much the selections of a model are decided: what rounding would have to do to change them.

Models that select (the grids of `vitrine.shift`) note the scores of each selection; a measure asks
for the margins while it runs the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitrine.errors import VitrineError
from vitrine.measures.context import Values


class SelectionMargins:
    """The smallest margin of any selection for each image: see `selection_margins`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what was recorded."""
        self._smallest: Tensor | None = None

    def smallest(self) -> Tensor:
        """Return the smallest margin of each image since the last `clear`, ``(B,)``.

        It is infinite for a model that selects nothing.

        Raises:
            VitrineError: the model has not run.
        """
        if self._smallest is None:
            raise VitrineError("no margin is recorded: run the model inside selection_margins")
        return self._smallest

    def note(self, margins: Tensor) -> None:
        """Take ``(B,)`` margins of one selection into account."""
        if self._smallest is None:
            self._smallest = margins
        self._smallest = torch.minimum(self._smallest, margins)


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

    def begin(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        _RECORDING.append(margins)
        margins.note(torch.full((len(inputs[0]),), torch.inf, device=inputs[0].device))

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


ROUNDINGS = 8
"""Units in the last place by which a token's energy is assumed to err at most."""


def note_margin(scores: Tensor, dtype: torch.dtype) -> None:
    """Record the margins of scores ``(B, P, Q)`` of energies of `dtype`, where asked for."""
    if not _RECORDING or scores[0].numel() < 2:
        return
    first, second = scores.flatten(1).topk(2, dim=1).values.unbind(dim=1)
    gap = (first - second).float() / first.float().clamp_min(1e-30)
    for margins in _RECORDING:
        margins.note(gap / (2 * ROUNDINGS * torch.finfo(dtype).eps))


@contextmanager
def margins_of_views(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the smallest margin of each image that `model` is shown, a tensor for each batch."""
    collected: list[Tensor] = []
    with selection_margins(model) as margins:

        def collect(*_: object) -> None:
            collected.append(margins.smallest().cpu())
            margins.clear()

        hook = model.register_forward_hook(collect)
        try:
            yield collected
        finally:
            hook.remove()


def margin_values(margins: Sequence[Tensor]) -> Values:
    """Summarise margins that `margins_of_views` has collected.

    Returns:
        ``margin/smallest`` and ``margin/median``, in units of what rounding may change, and
        ``margin/clear``: percent of views above 1. None if the model selects nothing.
    """
    margin = torch.cat([*margins])
    found: tuple[float | None, ...] = (None, None, None)
    if not margin.isinf().all():
        clear = 100 * (margin > 1).double().mean()
        found = (margin.min().item(), margin.median().item(), clear.item())
    return dict(zip(("margin/smallest", "margin/median", "margin/clear"), found, strict=True))
