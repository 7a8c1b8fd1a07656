"""Report a training's losses and validation scores in log.jsonl and on standard error.

A terminal shows one progress bar. Elsewhere (in a log file) a line is printed every 30 seconds,
and a last one at the end.
"""

# decides no number

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from tqdm import tqdm

from vitrail.errors import os_errors
from vitrail.files import write_atomically
from vitrail.provenance import duration

if TYPE_CHECKING:
    from replication.training.distributed import Team

SECONDS_BETWEEN_LINES = 30.0
LOG_STEPS = 50  # steps between entries of the log; an epoch or a run also ends with an entry
VALIDATION = "validation/"  # prefix of the names of validation scores in the log


class TrainingLog:
    """Write entries to `folder`/log.jsonl and show progress on standard error.

    Args:
        folder: the run folder.
        step: steps already taken; entries of later steps are removed from the log.
        steps: steps of the whole run.
        steps_per_epoch: steps of an epoch.
        images_per_step: images of a step, over all processes.
        silent: write and show nothing; true on all ranks but 0.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        steps: int,
        steps_per_epoch: int,
        images_per_step: int,
        *,
        silent: bool,
    ) -> None:
        self._path = folder / "log.jsonl"
        self._label = "/".join(folder.parts[-2:])
        self._steps, self._steps_per_epoch = steps, steps_per_epoch
        self._images_per_step, self._silent = images_per_step, silent
        self._first, self._start = step, time.monotonic()
        self._last, self._last_time = step, self._start
        self._line, self._line_time = "", self._start
        self._scores: dict[str, str] = {}
        self._bar: tqdm | None = None
        if not silent:
            _drop_entries_beyond(self._path, step)
            if sys.stderr.isatty():
                self._bar = tqdm(
                    total=steps, initial=step, desc=self._label, unit="step", dynamic_ncols=True
                )

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *exception: object) -> None:
        self._print_line()
        if self._bar is not None:
            self._bar.close()

    def record(self, step: int, loss: float, lr: float, **more: float) -> None:
        """Write an entry after `step` steps: mean loss since the last entry, `lr` and `more`."""
        if self._silent:
            return
        now = time.monotonic()
        speed = (step - self._last) * self._images_per_step / max(now - self._last_time, 1e-9)
        self._last, self._last_time = step, now
        told = {"loss": loss, "lr": lr, "images_per_second": round(speed, 1), **more}
        self._write(step, told)
        self._show(step, loss, lr, speed)

    def validated(self, step: int, scores: Mapping[str, float]) -> None:
        """Write an entry with the validation scores after `step` steps; none if `scores` is empty.

        The time of the validation is left out of ``images_per_second``.
        """
        if self._silent or not scores:
            return
        self._write(step, {VALIDATION + name: score for name, score in scores.items()})
        self._scores = {name: f"{score:.4g}" for name, score in scores.items()}
        self._last_time = time.monotonic()

    def _write(self, step: int, told: Mapping[str, float]) -> None:
        entry = {"step": step, "epoch": round(step / self._steps_per_epoch, 4), **told}
        remedy = "free some space or correct the folder's permissions, then start again"
        with (
            os_errors(f"cannot write {self._path}", remedy),
            self._path.open("a", encoding="utf-8") as file,
        ):
            file.write(json.dumps(entry) + "\n")

    def say(self, message: str) -> None:
        """Print a message to standard error, after the waiting line of progress."""
        self._print_line()
        if not self._silent:
            tqdm.write(f"{self._label}: {message}", file=sys.stderr)

    def _show(self, step: int, loss: float, lr: float, speed: float) -> None:
        if self._bar is not None:
            told = {"loss": f"{loss:.4f}", "lr": f"{lr:.2e}", **self._scores}
            self._bar.set_postfix(told, refresh=False)
            self._bar.update(step - self._bar.n)
            return
        now = time.monotonic()
        left = (now - self._start) / max(step - self._first, 1) * (self._steps - step)
        self._line = (
            f"{self._label}: step {step}/{self._steps}, "
            f"epoch {step / self._steps_per_epoch:.4g}/{self._steps / self._steps_per_epoch:.4g}, "
            f"loss {loss:.4f}, lr {lr:.2e}, {speed:.0f} images/s, {duration(left)} left"
        )
        if now - self._line_time >= SECONDS_BETWEEN_LINES:
            self._print_line()

    def _print_line(self) -> None:
        """Print the latest line of progress, unless it was printed already."""
        if self._line:
            scores = "".join(f", {name} {score}" for name, score in self._scores.items())
            print(self._line + scores, file=sys.stderr, flush=True)
            self._line, self._line_time = "", time.monotonic()


def _drop_entries_beyond(path: Path, step: int) -> None:
    """Remove a log's entries after `step`, which a resumed run writes again, and broken lines."""
    if not path.exists():
        return
    remedy = "correct its permissions or move it away, then start again"
    with os_errors(f"cannot read {path}", remedy):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = []
    for number, line in enumerate(lines, start=1):
        at = step_of(line)
        if at is None and number < len(lines):  # the last may be cut off where a process was killed
            print(f"warning: {path}, line {number} is no entry and left out", file=sys.stderr)
        elif at is not None and at <= step:
            kept.append(line + "\n")
    write_atomically(path, "".join(kept))


def step_of(line: str) -> int | None:
    """Return the step of a line of the log, or None if the line is not an entry."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


class Losses:
    """The losses of the steps: kept on the device until `read` copies them all at once.

    Args:
        team: the processes over which losses are averaged.
        step: the last step whose loss was read.
        unlogged: losses that were read, but are not yet in an entry of the log.
    """

    def __init__(self, team: Team, step: int, unlogged: list[float]) -> None:
        self._team, self.step, self.unlogged = team, step, unlogged
        self._unread: list[Tensor] = []

    def add(self, loss: Tensor) -> None:
        """Add the loss of the next step, a scalar tensor."""
        self._unread.append(loss)

    def read(self) -> str | None:
        """Read the new losses, averaged over the team; return a message if one is not finite."""
        for loss in self._team.mean(torch.stack(self._unread)).tolist():
            self.step += 1
            self.unlogged.append(loss)
            if not math.isfinite(loss):
                return f"the loss is {loss} at step {self.step}"
        self._unread.clear()
        return None

    def mean(self) -> float:
        """Return the mean of the `unlogged` losses, and empty that list."""
        mean = sum(self.unlogged) / len(self.unlogged)
        self.unlogged.clear()
        return mean
