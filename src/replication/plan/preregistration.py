"""Preregistration: which claims were fixed before their runs began.

``vitrail register`` writes, for each empirical claim at a scale, the time and the digest of all
that decides its verdict except the outcome, into ``registrations.csv`` in the paper's folder. A
claim is exploratory if its digest has changed since, or if the training of its models began before
that time; otherwise it is confirmatory. The commit of a registration is the one that added its
lines.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from replication.config.claims import Claim
from replication.config.recipe import short_hash
from vitrail.errors import VitrailError, first_line
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.records.specs import Artifact, Cell, Measurement

REGISTRATIONS = "registrations.csv"


class Registered(NamedTuple):
    """A registered claim: its scale and id, the time (UTC, ISO 8601), and its digest."""

    scale: str
    claim: str
    registered: str
    digest: str


def read_registrations(folder: Path) -> list[Registered]:
    """Read the registered claims of a paper at all scales; [] if there is no file.

    Raises:
        VitrailError: the file cannot be read, has other columns than `Registered`, or an empty
            field.
    """
    path = folder / REGISTRATIONS
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, strict=True)
            if tuple(next(reader, ())) != Registered._fields:
                raise ValueError(f"its columns are not {', '.join(Registered._fields)}")
            rows = [Registered._make(row) for row in reader]
        if cut := [row for row in rows if not all(row)]:
            raise ValueError(f"a field is empty in the line of claim '{cut[0].claim}'")
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise VitrailError(
            f"cannot read {path} ({first_line(error)}); restore it with git checkout"
        ) from None
    return rows


def register(folder: Path, scale: str, digests: Mapping[str, str]) -> list[str]:
    """Register a paper's claims at a scale; return the ids of those that are new or changed.

    `digests` are those of the claims by id. A claim that is registered with the same digest keeps
    its time; a claim that is not in `digests` is removed.
    """
    known = read_registrations(folder)
    before = {row.claim: row for row in known if row.scale == scale}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = [
        name
        for name, digest in digests.items()
        if name not in before or before[name].digest != digest
    ]
    rows = [row for row in known if row.scale != scale]
    rows += [
        Registered(scale, name, now, digest) if name in new else before[name]
        for name, digest in digests.items()
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([Registered._fields, *rows])
    write_atomically(folder / REGISTRATIONS, text.getvalue())
    return new


def registered(folder: Path, scale: str, digests: Mapping[str, str]) -> dict[str, str] | None:
    """Return the registration time of each claim whose digest is still the registered one, by id.

    None if nothing is registered at the scale.

    Raises:
        VitrailError: as `read_registrations`.
    """
    known = [row for row in read_registrations(folder) if row.scale == scale]
    if not known:
        return None
    return {row.claim: row.registered for row in known if digests.get(row.claim) == row.digest}


def digests_of(
    claims: Iterable[Claim],
    artifacts: Mapping[str, Artifact],
    measurements_of: Callable[[Cell], Sequence[Measurement]],
) -> dict[str, str]:
    """Return the digest of each empirical claim: its relation and margin, and what it measures.

    Of each cell of the claim, the digest covers the measure with its arguments, the seeds, the
    datasets, and the recipe of a trained model. Neither the claim's wording nor code counts: the
    code is told by the commits of the runs. `measurements_of` gives the measurements of a cell.
    """

    def measured(claim: Claim) -> list[Any]:
        cells = cells_of(claim, artifacts)
        return [_measured(cell.key, measurements_of(cell)) for cell in cells]

    return {
        claim.id: short_hash([_relation(claim), measured(claim)])
        for claim in claims
        if claim.kind == "empirical"
    }


def cells_of(claim: Claim, artifacts: Mapping[str, Artifact]) -> Iterator[Cell]:
    """Yield the cells of both sides of a claim, in every row that the claim covers."""
    for operand in claim.operands:
        if operand.artifact not in artifacts:
            continue
        for cell in artifacts[operand.artifact].cells:
            if operand.text((operand.artifact, cell.row, cell.column)) is not None:
                yield cell


def _relation(claim: Claim) -> dict[str, Any]:
    fields = {"left", "correlates_with", "relation", "right", "margin"}
    return claim.model_dump(mode="json", include=fields, exclude_none=True)


def _measured(key: str, measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Return what decides a cell's number, except code; None if nothing is measured for it."""
    if not measurements:
        return None
    first, run = measurements[0], measurements[0].on
    return {
        "key": key,
        "name": first.name,
        "args": first.args,
        "seeds": [measurement.seed for measurement in measurements],
        "datasets": [info.name for info in first.datasets],
        "recipe": run.recipe.canonical_json() if run else None,
        "data": run.data if run else None,
    }
