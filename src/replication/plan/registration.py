"""Which claims were fixed before their runs began: ``claims.lock`` in a paper's folder.

``vitrail register`` writes there, for each empirical claim at a scale, a digest of all that decides
its verdict but the outcome, with the time. A claim whose digest is another by now, or whose models
began to be trained before that time, is exploratory; the others are confirmatory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.plan.claims import Claim
from replication.plan.recipe import short_hash
from replication.plan.schema import Strict, parse
from vitrail.errors import VitrailError, first_line
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.plan.parts import Artifact, Cell

LOCK = "claims.lock"


class Registered(Strict):
    """A claim as it was registered: what decides it, when, and the effect that it can show.

    `sees` is the half-width of the interval that is expected at this scale, None where no result
    tells the spread; it decides nothing.
    """

    digest: str
    at: str
    sees: float | None = None


class Lock(Strict):
    """``claims.lock``: the registered claims by scale and id."""

    scales: dict[str, dict[str, Registered]] = {}


def read_lock(folder: Path) -> Lock:
    """Read the lock of a paper; one without claims where there is none.

    Raises:
        VitrailError: the file is damaged.
    """
    path = folder / LOCK
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Lock()
    except OSError as error:
        raise VitrailError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        return parse(Lock, json.loads(text), str(path))
    except (ValueError, RecursionError) as error:
        raise VitrailError(
            f"cannot read {path} ({first_line(error)}); restore it with git checkout"
        ) from None


def register(
    folder: Path, scale: str, digests: Mapping[str, str], sees: Mapping[str, float | None]
) -> list[str]:
    """Write a paper's claims into its lock; return the ids of those that are new or changed.

    A claim that is there with its digest keeps its time, and one that is not given is left out.
    """
    lock = read_lock(folder)
    before = lock.scales.get(scale, {})
    now = datetime.now(UTC).isoformat(timespec="seconds")
    claims = {
        name: before[name]
        if name in before and before[name].digest == digest
        else Registered(digest=digest, at=now, sees=sees.get(name))
        for name, digest in digests.items()
    }
    written = Lock(scales={**lock.scales, scale: claims}).model_dump(mode="json")
    write_atomically(folder / LOCK, json.dumps(written, indent=1) + "\n")
    return [name for name, claim in claims.items() if claim != before.get(name)]


def registered(folder: Path, scale: str, digests: Mapping[str, str]) -> dict[str, str] | None:
    """The time of each claim that has the digest it was registered with; None without a lock.

    Raises:
        VitrailError: the lock is damaged.
    """
    known = read_lock(folder).scales.get(scale)
    if known is None:
        return None
    return {name: claim.at for name, claim in known.items() if digests.get(name) == claim.digest}


def digests_of(claims: Iterable[Claim], artifacts: Mapping[str, Artifact]) -> dict[str, str]:
    """The digest of each empirical claim: its relation and margin, and what its cells measure.

    That is function and arguments, seeds, images, and of trained models the recipe. Neither the
    claim's words nor code count: code is told by the commits of the runs.
    """
    return {
        claim.id: short_hash([_relation(claim), [*map(_measured, cells_of(claim, artifacts))]])
        for claim in claims
        if claim.kind == "empirical"
    }


def cells_of(claim: Claim, artifacts: Mapping[str, Artifact]) -> Iterator[Cell]:
    """The cells of both sides of a claim, in every row that it speaks of."""
    for operand in claim.operands:
        if operand.artifact not in artifacts:
            continue
        for cell in artifacts[operand.artifact].cells:
            if operand.text((operand.artifact, cell.row, cell.column)) is not None:
                yield cell


def _relation(claim: Claim) -> dict[str, Any]:
    fields = {"left", "correlates_with", "relation", "right", "margin"}
    return claim.model_dump(mode="json", include=fields, exclude_none=True)


def _measured(cell: Cell) -> Any:
    """What decides a cell's number, but for code; None where it is not measured at this scale."""
    if (measurement := cell.measurement) is None:
        return None
    run = measurement.on
    return {
        "key": cell.key,
        **{name: getattr(measurement, name) for name in ("function", "args", "seeds", "datasets")},
        "recipe": run.recipe.canonical_json() if run else None,
        "data": run.data if run else None,
    }
