"""The losses of a training's steps, between the step that gives one and the log that shows it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitrine.training.team import Team


class Losses:
    """The losses of the steps: kept on the device until they are read, all at once.

    Args:
        team: the processes whose losses are averaged.
        step: steps taken before; later, the last step whose loss was read.
        unlogged: losses of those of them that no entry of the log has covered yet.
    """

    def __init__(self, team: Team, step: int, unlogged: list[float]) -> None:
        self.unlogged = unlogged
        self._team = team
        self.step = step
        self._unread: list[Tensor] = []

    def add(self, loss: Tensor) -> None:
        """Take the loss of the next step."""
        self._unread.append(loss)

    def read(self) -> str | None:
        """Average the losses over the team; return what is wrong with them, if anything is."""
        for loss in self._team.mean(torch.stack(self._unread)).tolist():
            self.step += 1
            self.unlogged.append(loss)
            if not math.isfinite(loss):
                return f"the loss is {loss} at step {self.step}"
        self._unread.clear()
        return None

    def mean(self) -> float:
        """Return the mean over the steps since the last call."""
        mean = sum(self.unlogged) / len(self.unlogged)
        self.unlogged.clear()
        return mean
