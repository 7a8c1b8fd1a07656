"""Run steps, each in its own process with a time limit, and write one row for each number.

A step is a generator of `Measured`. It runs in a fork of this process, which has imported torch and
used neither a GPU nor threads. So a step need not import anything. If a step raises, hangs,
exhausts the memory or leaves the GPU in an error state, only this step ends, with a row that says
so. Steps that are not `alone` share the device with a few others. Steps that measure times are
`alone`: they start when no other step runs.
"""

from __future__ import annotations

import csv
import fnmatch
import math
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from replication.context import Context
from vitrail.errors import VitrailError, first_line
from vitrail.measures.outputs import without_tf32
from vitrail.provenance import provenance

PREDICTIONS = Path(__file__).with_name("predictions.csv")
GRACE = 15.0  # seconds from SIGTERM to SIGKILL, in which a training saves a checkpoint
FORK = multiprocessing.get_context("fork")

COLUMNS = (
    *("quantity", "value", "unit", "dtype", "predicted", "low", "high", "verdict", "note"),
    *("step", "seconds", "time", "device", "torch", "timm", "triton", "commit"),
)


@dataclass(frozen=True)
class Settings:
    """The settings of all steps.

    Args:
        device: name of the device in torch.
        quick: use the smallest sizes, to see that every step runs.
        archive: file of Flowers-102's images that `tools.gpu_inputs` writes; it may be missing.
        runs: folder for the checkpoints of trainings.
        threads: number of CPU threads of each step.
    """

    device: str
    quick: bool
    archive: Path
    runs: Path
    threads: int

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return torch.device(self.device).type == "cuda"

    @property
    def context(self) -> Context:
        """The context that is passed to the measures of `replication`."""
        return Context(self.device, Path(), 0)


class Measured(NamedTuple):
    """One number; if `value` is None, `note` says why there is no number."""

    quantity: str
    value: float | None
    unit: str = ""
    dtype: str = "float32"
    note: str = ""


@dataclass(frozen=True)
class Step:
    """A measurement that takes at most `limit` seconds on a GPU, and needs it `alone` or not."""

    name: str
    measure: Callable[[Settings], Iterable[Measured]]
    limit: float
    alone: bool = False
    needs_cuda: bool = False


class Prediction(NamedTuple):
    """The prediction of a quantity, made before the first run, and its range."""

    predicted: float
    low: float
    high: float

    def verdict(self, value: float) -> str:
        """Say whether a measured number is in the predicted range."""
        return "inside" if self.low <= value <= self.high else "outside"


def read_predictions(path: Path = PREDICTIONS) -> dict[str, Prediction]:
    """Read the predictions, by patterns of names of quantities (`*` matches any text)."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["quantity"]: Prediction(*(float(row[name]) for name in Prediction._fields))
            for row in csv.DictReader(file)
        }


class Rows:
    """The table on disk, to which each row is written as soon as its number is known."""

    def __init__(
        self, path: Path, origin: Mapping[str, Any], predictions: Mapping[str, Prediction]
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._origin, self._predictions = origin, predictions
        if not path.stat().st_size:
            self._writer.writeheader()

    def add(self, step: str, seconds: float, measured: Measured) -> None:
        """Write a row, with the first prediction whose pattern matches the quantity."""
        row: dict[str, Any] = {**measured._asdict(), "step": step, "seconds": round(seconds, 1)}
        patterns = (p for p in self._predictions if fnmatch.fnmatchcase(measured.quantity, p))
        pattern = next(patterns, None)
        told = measured.note
        if measured.value is not None:
            told = f"{measured.value:.6g} {measured.unit}".strip()
            row["value"] = f"{measured.value:.8g}"
            if pattern is not None:
                prediction = self._predictions[pattern]
                row |= prediction._asdict() | {"verdict": prediction.verdict(measured.value)}
                told += (
                    f", predicted {prediction.predicted:g} ({prediction.low:g} to "
                    f"{prediction.high:g}): {row['verdict']}"
                )
            told += f"; {measured.note}" if measured.note else ""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._writer.writerow({**row, **self._origin, "time": now})
        self._file.flush()
        os.fsync(self._file.fileno())
        print(f"{measured.quantity}: {told}", flush=True)


def origin_of(device: str, commit: str | None) -> dict[str, Any]:
    """Return the columns of device and software for all rows, found by a process of its own.

    Raises:
        VitrailError: torch cannot use the device.
    """
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_send_origin, args=(sender, device, commit))
    process.start()
    sender.close()
    found: dict[str, Any] | str = receiver.recv()
    process.join()
    if isinstance(found, str):
        raise VitrailError(
            f"device '{device}' cannot be used ({found}): give --quick, which runs on the CPU, or "
            "another --device"
        )
    return found


def _send_origin(sender: Connection, device: str, commit: str | None) -> None:
    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:  # of a torch without CUDA
        sender.send(first_line(error))
        return
    known = provenance(device, **({"commit": commit} if commit else {}))
    sender.send(
        {
            "device": known["device"],
            "commit": known["commit"],
            **{name: _version(name) for name in ("torch", "timm", "triton")},
        }
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@dataclass
class Child:
    """A running step."""

    step: Step
    process: Any
    begin: float
    end: float
    told: bool = field(default=False)  # whether it was sent SIGTERM because its time is over

    @property
    def seconds(self) -> float:
        """The time since the step began, in seconds."""
        return time.monotonic() - self.begin


def run(steps: Iterable[Step], settings: Settings, rows: Rows, lanes: int, seconds: float) -> int:
    """Run the steps in order, all together in at most `seconds`; return the number of failures.

    Up to `lanes` steps run at the same time. A step whose turn comes after `seconds` is left out,
    with a row that says so.
    """
    deadline = time.monotonic() + seconds
    waiting, running, failed = deque(steps), dict[Connection, Child](), 0
    try:
        while waiting or running:
            while waiting and _has_room(waiting[0], running, lanes):
                step = waiting.popleft()
                if step.needs_cuda and not settings.cuda:
                    rows.add(step.name, 0, Measured(step.name, None, note="needs CUDA"))
                elif time.monotonic() >= deadline:
                    rows.add(step.name, 0, Measured(step.name, None, note="no time was left"))
                else:
                    receiver, child = _start(step, settings, deadline)
                    running[receiver] = child
            ready: Any = wait(running, timeout=0.5) if running else ()
            for receiver in ready:
                owner = running[receiver]
                try:
                    measured, fault = receiver.recv()
                except EOFError:
                    del running[receiver]
                    failed += _end(owner, rows)
                    continue
                failed += fault
                rows.add(owner.step.name, owner.seconds, measured)
            for child in running.values():
                _keep_in_time(child)
    finally:  # if this process ends for any reason, its steps end, too
        for child in running.values():
            _signal_group(child.process.pid, signal.SIGKILL)
    return failed


def _has_room(step: Step, running: dict[Connection, Child], lanes: int) -> bool:
    if step.alone or any(child.step.alone for child in running.values()):
        return not running
    return len(running) < lanes


def _start(step: Step, settings: Settings, deadline: float) -> tuple[Connection, Child]:
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_work, args=(sender, step, settings))
    process.start()
    sender.close()
    begin = time.monotonic()
    limit = step.limit if settings.cuda else math.inf
    return receiver, Child(step, process, begin, min(begin + limit, deadline))


def _keep_in_time(child: Child) -> None:
    late = time.monotonic() - child.end
    if late > GRACE:
        _signal_group(child.process.pid, signal.SIGKILL)
    elif late > 0 and not child.told:
        child.told = True
        child.process.terminate()


def _end(child: Child, rows: Rows) -> int:
    """End a step that has closed its pipe, with processes that it left; return 1 if it failed."""
    child.process.join(GRACE)
    _signal_group(child.process.pid, signal.SIGKILL)
    child.process.join()
    code = child.process.exitcode
    if not code:
        return 0
    why = "its time was over" if child.told else f"its process ended with {code}"
    rows.add(child.step.name, child.seconds, Measured(child.step.name, None, note=why))
    return int(not child.told)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _work(sender: Connection, step: Step, settings: Settings) -> None:
    os.setsid()  # processes that the step starts are in its group, and end with it
    torch.set_num_threads(settings.threads)
    without_tf32()
    try:
        for measured in step.measure(settings):
            sender.send((measured, measured.value is None and measured.note.startswith(FAILED)))
    except Exception as error:  # whatever it is, the other steps go on
        sender.send((failure(step.name, error), True))


FAILED = "failed: "


def failure(quantity: str, error: Exception) -> Measured:
    """Return the row that reports an error."""
    return Measured(quantity, None, note=f"{FAILED}{type(error).__name__}: {error}"[:500])


def each(names: Iterable[str], measure: Callable[[str], Iterable[Measured]]) -> Iterator[Measured]:
    """Measure one name after the other; after a failure, go on with the next name."""
    for name in names:
        try:
            yield from measure(name)
        except Exception as error:
            yield failure(name, error)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def largest_change(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference over the largest expected value, in float64."""
    found, expected = (x.detach().double().cpu() for x in (found, expected))
    change = ((found - expected).abs().max() / expected.abs().max()).item()
    return change if math.isfinite(change) else math.inf
