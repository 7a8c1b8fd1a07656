"""A paper's checkable statements as relations over cells: ``claims.yaml`` as typed objects.

`replication.claims.judge` judges them on what was measured.
"""

from __future__ import annotations

import itertools
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from replication.config.paper import ArtifactSpec, fill
from replication.config.schema import Delta, Placed, Strict, merge, parse, read_yaml
from vitrail.errors import VitrailError, require_known

EVERY_ROW = "*"

Key = tuple[str, str, str]  # artifact, row and column
Kind = Literal["empirical", "exact", "construction", "timing", "control"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Operand(Strict):
    """A cell; a "*" in the row stands for any text, so that "*" alone is every row."""

    artifact: str
    row: str
    column: str

    def key(self, text: str) -> Key:
        """The cell's key, with this text for the "*"."""
        return self.artifact, self.row.replace(EVERY_ROW, text), self.column

    def text(self, key: Key) -> str | None:
        """What "*" stands for in a cell's key; None if the operand does not speak of the cell."""
        before, star, after = self.row.partition(EVERY_ROW)
        artifact, row, column = key
        if (artifact, column) != (self.artifact, self.column):
            return None
        if not star:
            return "" if row == self.row else None
        long_enough = len(row) >= len(before) + len(after)
        fits = long_enough and row.startswith(before) and row.endswith(after)
        return row[len(before) : len(row) - len(after)] if fits else None


class Claim(Strict):
    """One statement of a paper: `left` is above, below, equal to or at least `right`.

    `above` and `below` ask for more than `margin` between them, `equal` allows up to it, and
    `at least` ("matches or improves") lets `left` be lower by up to it.

    Its `kind` says what it rests on, and thus how it is judged and counted: `empirical` is an
    effect of trained models or of image statistics, `exact` a closed form or a count, which needs
    no data, `construction` what holds for any weights, `timing` a measured time. A `control` is no
    statement of the paper: it says what must come out if measures and verdicts are sound, such as
    that a broken method fails, or that nothing is learned of shuffled labels.

    With `correlates_with` the claim is about Spearman's rank correlation, from -1 to 1, of `left`
    with the first less the second of these cells, over every text that their "*" stands for. It is
    taken under each seed; its value is the mean.
    """

    id: str
    kind: Kind = "empirical"
    headline: bool = Field(False, description="whether the paper's abstract makes the statement")
    statement: str = Field(description="the paper's own words, in short")
    source: str = Field(description="where the paper says it")
    left: Operand
    correlates_with: tuple[Operand, Operand] | None = None
    relation: Literal["above", "below", "equal", "at least"]
    right: Operand | float
    margin: float = Field(0.0, ge=0)
    untested: str = Field("", description="why a scale cannot test it; the scale's file says so")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands of the claim."""
        return tuple(operand for _, operand in _named_operands(self))


class ClaimsFile(Strict):
    """``claims.yaml``: entries that stand for one claim or several."""

    claims: tuple[Delta, ...]


ListOfChoices = tuple[dict[str, str], ...]


class Choices(Strict):
    """The lists that an entry of ``claims.yaml`` runs through."""

    each: tuple[ListOfChoices, ...] = ()


def read_claims(path: Path, artifacts: Mapping[str, ArtifactSpec]) -> tuple[Claim, ...]:
    """Read the claims of a paper with these artifacts, of any scale; none if there is no such file.

    An entry with ``each: [choices, ...]`` stands for a claim for each combination of one choice of
    every list: a choice is a mapping of names, which fill ``{name}`` in the entry's strings.

    Raises:
        VitrailError: the file is not a list of claims, a ``{name}`` is in no choice, two claims
            have one id, or a claim names an artifact, a row or a column that does not exist.
    """
    if not path.is_file():
        return ()
    entries = parse(ClaimsFile, {"claims": read_yaml(path) or []}, str(path)).claims
    claims = tuple(claim for entry in entries for claim in _claims_of(entry, str(path)))
    for name, times in Counter(claim.id for claim in claims).items():
        if times > 1:
            raise VitrailError(f"{path}: two claims are called '{name}'; rename one")
    for claim in claims:
        for side, operand in _named_operands(claim):
            _refuse_unknown(operand, artifacts, f"{path}, '{claim.id}': {side}.")
    return claims


def _named_operands(claim: Claim) -> Iterator[tuple[str, Operand]]:
    """The operands of a claim, each with the field that has it."""
    yield "left", claim.left
    for number, operand in enumerate(claim.correlates_with or ()):
        yield f"correlates_with.{number}", operand
    if isinstance(claim.right, Operand):
        yield "right", claim.right


def _claims_of(entry: Delta, path: str) -> Iterator[Claim]:
    where = f"{path}, '{entry.get('id')}'"
    template = merge({}, entry)
    lists = parse(Choices, Placed({"each": template.pop("each", ())}, template.places), where).each
    for choices in itertools.product(*lists):
        claim = _filled(template, ChainMap(*choices), where)
        yield parse(Claim, claim, f"{path}, '{claim.get('id')}'")


def _filled(value: Any, names: Mapping[str, str], where: str) -> Any:
    """Fill ``{name}`` in every string of nested data, whose places are kept."""
    if isinstance(value, str):
        return fill(value, names, where)
    if isinstance(value, Placed):
        return Placed({key: _filled(own, names, where) for key, own in value.items()}, value.places)
    return value


def _refuse_unknown(operand: Operand, artifacts: Mapping[str, ArtifactSpec], where: str) -> None:
    """Refuse an operand that is no cell: a claim on it would never be judged."""
    require_known(f"{where}artifact", operand.artifact, artifacts)
    spec = artifacts[operand.artifact]
    rows = [row.full_label for row in spec.rows]
    if not any(operand.text((operand.artifact, row, operand.column)) is not None for row in rows):
        require_known(f"{where}row of {operand.artifact}", operand.row, rows)
    columns = {column.full_label for column in spec.columns}
    require_known(f"{where}column of {operand.artifact}", operand.column, columns)
