"""What a run has cost, attempts that were killed included.

Each start of a training is an attempt; it notes its commit, how far it came and how long it took
beside the checkpoints, where its successor finds it. The sum goes into the run's provenance.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vitrine.files import write_atomically

UNKNOWN = "unknown"  # the commit or the code of an attempt that did not note it


@dataclass
class Attempt:
    """One start of a training: by which code, from which step to which, how long that took."""

    started: str
    first_step: int
    last_step: int
    seconds: float
    commit: str = UNKNOWN
    code: str = UNKNOWN


class Attempts:
    """All attempts at one run; the present one, the last, begins with this object.

    Args:
        path: the file that holds them; one that cannot be read counts as empty.
        images_per_step: images of one step, over all processes.
        commit: where the code that trains is from, None if it is in no repository.
        code: the digest of that code.
    """

    def __init__(self, path: Path, images_per_step: int, commit: str | None, code: str) -> None:
        self._path = path
        self._images_per_step = images_per_step
        self._start = time.monotonic()
        self._all = [*_read(path), Attempt(now(), 0, 0, 0.0, commit or UNKNOWN, code)]

    def begin(self, step: int) -> None:
        """Write down where the present attempt starts."""
        self._all[-1].first_step = step
        self.note(step)

    def note(self, step: int) -> None:
        """Write down that the present attempt has come to `step`."""
        self._all[-1].last_step = step
        self._all[-1].seconds = round(time.monotonic() - self._start, 3)
        write_atomically(self._path, json.dumps([asdict(attempt) for attempt in self._all]))

    def summary(self) -> dict[str, Any]:
        """Return the cost of the run so far, all attempts added up.

        `commit` and `code` are of the code when each attempt began, which may have changed by the
        end; several are joined by "+" in order.
        """
        seconds = sum(attempt.seconds for attempt in self._all)
        steps = sum(attempt.last_step - attempt.first_step for attempt in self._all)
        return {
            "commit": "+".join(dict.fromkeys(attempt.commit for attempt in self._all)),
            "code": "+".join(dict.fromkeys(attempt.code for attempt in self._all)),
            "started": self._all[0].started,
            "finished": now(),
            "attempts": len(self._all),
            "interruptions": len(self._all) - 1,
            "wall_seconds": round(seconds, 3),
            "steps_repeated": steps - self._all[-1].last_step,
            "images_per_second": round(steps * self._images_per_step / seconds, 1) if steps else 0,
        }


def now() -> str:
    """Return the present time, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read(path: Path) -> list[Attempt]:
    try:
        return [Attempt(**entry) for entry in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
