"""Numbers and verdicts that documents quote from published results.

A document quotes a cell by a comment behind the number, which Markdown does not show:

    it reaches 91.5 %<!-- shift_table1["A-Swin-T (Ours)", "CIFAR-10 / Acc."] --> on the stand-in

The comment is an expression of Jinja: arithmetic, ``min`` and ``max`` over these names.
``TARGET[row, column]`` is the measured value of an artifact's cell. ``TARGET.count[verdict]`` is
the number of its cells with a verdict, such as "outside" (`replication.claims.comparison`). The
number in front of the comment is replaced by the computed one, with the same number of decimals.

``claim.FIELD["octic/h8-l-accuracy"]`` is a number of a judged claim: a column of ``claims.csv``,
or ``effect`` (left less right). A verdict in front of
``<!-- claim.status["octic/h8-l-accuracy"] -->`` is replaced by the claim's.
``claims["octic", "empirical", "held"]`` is the number of claims of a paper and a kind with a
verdict; claims on the same numbers are counted once.

Results are those of the default scale (`configs/default.yaml`); a comment may name another one, as
in ``<!-- small: shift_photographs[row, column] -->``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from replication.claims.comparison import VERDICTS, read_cells
from replication.claims.judge import STATUSES
from replication.records.specs import target_of
from replication.report.results import count_evidence
from vitrail.errors import VitrailError, os_errors, require_known

QUOTE = re.compile(
    r"(?:(?P<sign>[-+−]?)(?P<number>\d[\d,]*(?:\.(?P<decimals>\d+))?)(?P<unit> ?%?)"
    r"|(?P<verdict>(?:not )?[^\s<>(]+)(?=<!-- (?:[\w-]+: )?claim\.status\[))"
    r"<!-- (?:(?P<scale>[\w-]+): )?(?P<expression>[-+\d.*/( ]*\w+(?:\.\w+)?[\[(].*?) -->",
    re.DOTALL,
)
EXPRESSIONS = ImmutableSandboxedEnvironment(undefined=StrictUndefined)


class QuotedArtifact:
    """An artifact of a results folder as comments name it; its CSV is read when it is needed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @functools.cached_property
    def _cells(self) -> pd.DataFrame:
        return read_cells(self._file)

    def __getitem__(self, place: tuple[str, str]) -> float:
        """Return the measured value of a cell by row and column.

        Raises:
            VitrailError: there is no such cell, or it was not measured.
        """
        if not (isinstance(place, tuple) and len(place) == 2):
            raise VitrailError("name the row and the column of the cell")
        cells = self._cells
        for name, label in zip(("row", "column"), place, strict=True):
            require_known(name, label, cells[name].unique())
            cells = cells[cells[name] == label]
        value = float(cells["measured"].item())
        if math.isnan(value):
            raise VitrailError(f"row '{place[0]}', column '{place[1]}' was not measured")
        return value

    @property
    def count(self) -> dict[str, int]:
        """Return the number of cells by verdict."""
        counts = self._cells["verdict"].value_counts()
        return {verdict: int(counts.get(verdict, 0)) for verdict in VERDICTS}


class QuotedField(dict[str, Any]):
    """A column of ``claims.csv`` as comments name it: the value by the claim's name."""

    def __missing__(self, name: str) -> Any:
        """Refuse a name without a value."""
        raise VitrailError(f"there is no claim '{name}', or this was not measured of it")


def quotable(results: Path) -> dict[str, Any]:
    """Return all that comments may name in a results folder.

    Raises:
        VitrailError: the folder has no ``claims.csv``.
    """
    with os_errors(f"cannot read {results / 'claims.csv'}", "publish the results again"):
        judged = pd.read_csv(results / "claims.csv")
    judged.index = judged["paper"] + "/" + judged["id"]
    counted = {
        (paper, kind, status): counts[status]
        for paper, own in judged.groupby("paper")
        for kind, counts in count_evidence(own).items()
        for status in STATUSES
    }
    files = results.glob("*/*.csv")
    artifacts = {target_of(file.parent.name, file.stem): QuotedArtifact(file) for file in files}
    fields = judged.assign(effect=judged["left"] - judged["right"])
    claim = {field: QuotedField(fields[field].dropna()) for field in fields}
    return {**artifacts, "claim": claim, "claims": counted, "min": min, "max": max}


def refreshed(
    text: str,
    names: Mapping[str, Any],
    where: str,
    scales: Collection[str | None] = (None,),
) -> str:
    """Return a document with each number that it quotes of a scale computed from `quotable` names.

    `where` is the document's path, for errors. `scales` are the names under which comments give the
    scale; None stands for comments that name no scale.

    Raises:
        VitrailError: a comment names a cell or claim that does not exist, or gives no number.
    """

    def rewritten(quote: re.Match[str]) -> str:
        if quote["scale"] not in scales:
            return quote[0]
        if word := quote["verdict"]:
            if word not in STATUSES:
                raise VitrailError(
                    f"{where}: the comment '{quote['expression']}' stands behind '{word}'; put it "
                    f"behind a verdict: {', '.join(STATUSES)}"
                )
            return _evaluate(quote["expression"], names, where, str) + quote[0][len(word) :]
        value = _evaluate(quote["expression"], names, where, float)
        separator = "," if "," in quote["number"] else ""
        text = f"{value:z{separator}.{len(quote['decimals'] or '')}f}"
        if text.startswith("-"):
            text = ("−" if quote["sign"] == "−" else "-") + text[1:]
        elif quote["sign"] == "+":
            text = f"+{text}"
        return text + quote[0][quote.start("unit") - quote.start() :]

    return QUOTE.sub(rewritten, text)


def _evaluate(expression: str, names: Mapping[str, Any], where: str, kind: type) -> Any:
    """Return the value of a comment's expression as a number or a text, by its `kind`."""
    try:
        computed = EXPRESSIONS.compile_expression(
            " ".join(expression.split()), undefined_to_none=False
        )
        return kind(computed(names))
    except (TemplateError, ArithmeticError, TypeError, ValueError, VitrailError) as error:
        raise VitrailError(
            f"{where}: the comment '{expression}' cannot be computed: {error}"
        ) from None


def documents(root: Path) -> list[Path]:
    """Return the documents of a checkout that may quote results."""
    patterns = ("*.md", "docs/**/*.md", "configs/papers/*/deviations.md")
    return [path for pattern in patterns for path in sorted(root.glob(pattern))]


def changed_documents(
    root: Path, results: Path, scales: Collection[str | None] = (None,)
) -> dict[Path, str]:
    """Return the new texts of the documents whose quoted numbers change with a scale's results.

    `scales` is as in `refreshed`.

    Raises:
        VitrailError: as `refreshed`.
    """
    names = quotable(results)
    texts = {path: path.read_text(encoding="utf-8") for path in documents(root)}
    fresh = {path: refreshed(text, names, str(path), scales) for path, text in texts.items()}
    return {path: text for path, text in fresh.items() if text != texts[path]}
