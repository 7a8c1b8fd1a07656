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
    """A cell of an artifact; "*" in the row stands for any text, so that "*" alone is every row."""

    artifact: str
    row: str
    column: str

    def key(self, text: str) -> Key:
        """Return the key of the cell whose row has `text` in place of "*"."""
        return self.artifact, self.row.replace(EVERY_ROW, text), self.column

    def text(self, key: Key) -> str | None:
        """Return the text that "*" stands for in a cell's key; None if the cell does not match.

        For an operand without "*" it is "" if it names this cell.
        """
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

    `above` and `below` require a difference of more than `margin`. `equal` allows a difference of
    up to `margin`. `at least` ("matches or improves") allows `left` to be lower by up to `margin`.

    `kind` says what the claim is based on, and so how it is judged and counted:

    - `empirical`: an effect of trained models or of image statistics.
    - `exact`: a closed form or a count, which needs no data.
    - `construction`: a property that holds for any weights.
    - `timing`: a measured time.
    - `control`: no statement of the paper, but a result that must come out if measures and verdicts
      are sound, such as that a broken method fails, or that nothing is learned from shuffled
      labels.

    With `correlates_with`, the claim is about Spearman's rank correlation, from -1 to 1, between
    `left` and the first less the second of these cells, over every text that their "*" stands for.
    It is computed under each seed, and its value is the mean.
    """

    id: str
    kind: Kind = "empirical"
    headline: bool = Field(False, description="whether it is one of the paper's main statements")
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
        """Return all operands of the claim."""
        return tuple(operand for _, operand in _named_operands(self))


class ClaimsFile(Strict):
    """``claims.yaml``: entries that each stand for one or several claims."""

    claims: tuple[Delta, ...]


ListOfChoices = tuple[dict[str, str], ...]


class Choices(Strict):
    """The lists of choices over which an entry of ``claims.yaml`` is repeated."""

    each: tuple[ListOfChoices, ...] = ()


def read_claims(path: Path, artifacts: Mapping[str, ArtifactSpec]) -> tuple[Claim, ...]:
    """Read the claims of a paper with these artifacts, for all scales; () if there is no such file.

    An entry with ``each: [choices, ...]`` stands for one claim for each combination of a choice
    from every list. A choice is a mapping of names to texts, which replace ``{name}`` in the
    entry's strings.

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
    """Yield the operands of a claim, each with the name of its field."""
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
    """Replace ``{name}`` in every string of nested data; the origins of keys are kept."""
    if isinstance(value, str):
        return fill(value, names, where)
    if isinstance(value, Placed):
        return Placed({key: _filled(own, names, where) for key, own in value.items()}, value.places)
    return value


def _refuse_unknown(operand: Operand, artifacts: Mapping[str, ArtifactSpec], where: str) -> None:
    """Raise VitrailError if an operand matches no cell: its claim would never be judged."""
    require_known(f"{where}artifact", operand.artifact, artifacts)
    spec = artifacts[operand.artifact]
    rows = [row.full_label for row in spec.rows]
    if not any(operand.text((operand.artifact, row, operand.column)) is not None for row in rows):
        require_known(f"{where}row of {operand.artifact}", operand.row, rows)
    columns = {column.full_label for column in spec.columns}
    require_known(f"{where}column of {operand.artifact}", operand.column, columns)
