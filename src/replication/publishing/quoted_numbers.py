"""Numbers and verdicts that documents quote from published results.

A document quotes a cell by a comment behind the number, which Markdown does not show:

    it reaches 91.5 %<!-- shift_table1["A-Swin-T (Ours)", "CIFAR-10 / Acc."] --> on the stand-in

The comment is arithmetic (``+ - * /``, ``abs``, ``min``, ``max``, ``mean``) over cells of
artifacts. ``TARGET[row, column]`` is the measured value, ``TARGET.std[row, column]`` its spread
over seeds, and ``TARGET.paper[row, column]`` the printed value. ``TARGET.count[verdict]`` is the
number of its cells with a verdict, such as "outside" (`replication.claims.comparison`). The number
in front of the comment is replaced by the computed one, with the same number of decimals.

``claim.FIELD["octic/h8-l-accuracy"]`` is a number of a judged claim (``claims.csv``): ``left``,
``effect`` (left less right), ``half_width`` of its 95 % interval, or ``printed_effect``. A verdict
in front of ``<!-- claim.status["octic/h8-l-accuracy"] -->`` is replaced by the claim's.
``claims["octic", "empirical", "held"]`` is the number of claims of a paper and a kind with a
verdict; claims on the same numbers are counted once.

Results are those of the default scale (`configs/default.yaml`); a comment may name another one, as
in ``<!-- small: shift_photographs[row, column] -->``.
"""

from __future__ import annotations

import ast
import operator
import re
import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from replication.claims.comparison import Verdict, read_cells
from replication.claims.judge import STATUSES
from replication.config.claims import KINDS
from replication.records.specs import parse_target
from replication.report.results import count_evidence
from vitrail.errors import VitrailError, did_you_mean

QUOTE = re.compile(
    r"(?:(?P<sign>[-+−]?)(?P<number>\d[\d,]*(?:\.(?P<decimals>\d+))?)(?P<unit> ?%?)"
    r"|(?P<verdict>(?:not )?[^\s<>(]+)(?=<!-- (?:[\w-]+: )?claim\.status\[))"
    r"<!-- (?:(?P<scale>[\w-]+): )?(?P<expression>[-+\d.*/( ]*\w+(?:\.\w+)?[\[(].*?) -->",
    re.DOTALL,
)
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
FIELDS = {"std": "std", "paper": "paper_value"}
CLAIM_FIELDS = ("left", "effect", "half_width", "printed_effect")
VERDICTS = get_args(Verdict)
FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "mean": lambda *values: statistics.fmean(values),
}


def refreshed(
    text: str, results: Path, where: str, scales: Collection[str | None] = (None,)
) -> str:
    """Return a document with each number that it quotes of a scale taken from a results folder.

    `where` is the document's path, for errors. `scales` are the names under which comments give the
    scale; None stands for comments that name no scale.

    Raises:
        VitrailError: a comment names a cell or claim that does not exist, or is no arithmetic.
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
            return _evaluate(quote["expression"], results, where, _status) + quote[0][len(word) :]
        value = float(_evaluate(quote["expression"], results, where, _value))
        separator = "," if "," in quote["number"] else ""
        text = f"{value:z{separator}.{len(quote['decimals'] or '')}f}"
        if text.startswith("-"):
            text = ("−" if quote["sign"] == "−" else "-") + text[1:]
        elif quote["sign"] == "+":
            text = f"+{text}"
        return text + quote[0][quote.start("unit") - quote.start() :]

    return QUOTE.sub(rewritten, text)


def _evaluate(
    expression: str, results: Path, where: str, of: Callable[[ast.AST, Path], Any]
) -> Any:
    try:
        return of(ast.parse(" ".join(expression.split()), mode="eval").body, results)
    except (SyntaxError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise VitrailError(
            f"{where}: the comment '{expression}' cannot be computed: {error}"
        ) from None
    except VitrailError as error:
        raise VitrailError(f"{where}: the comment '{expression}': {error}") from None


def _value(node: ast.AST, results: Path) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left, results), _value(right, results))
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_value(operand, results))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return FUNCTIONS[name](*(_value(argument, results) for argument in arguments))
        case ast.Subscript(ast.Name(target), ast.Tuple([_, _] as place)):
            return _cell(target, "measured", place, results)
        case ast.Subscript(ast.Attribute(ast.Name("claim"), field), ast.Constant(str(claim))):
            return _of_claim(claim, field, results)
        case ast.Subscript(ast.Name("claims"), ast.Tuple([_, _, _] as place)):
            return _claims_counted([ast.literal_eval(part) for part in place], results)
        case ast.Subscript(ast.Attribute(ast.Name(target), "count"), ast.Constant(str(verdict))):
            return _count(target, verdict, results)
        case ast.Subscript(ast.Attribute(ast.Name(target), field), ast.Tuple([_, _] as place)):
            return _cell(target, FIELDS[field], place, results)
    raise TypeError(
        "it is no arithmetic over cells such as shift_table1[row, column] or claim.left[name]"
    )


def _status(node: ast.AST, results: Path) -> str:
    match node:
        case ast.Subscript(ast.Attribute(ast.Name("claim"), "status"), ast.Constant(str(claim))):
            return str(_claim(claim, results)["status"])
    raise TypeError('a verdict is quoted by claim.status["paper/claim"]')


def _of_claim(name: str, field: str, results: Path) -> float:
    claim = _claim(name, results)
    if field not in CLAIM_FIELDS:
        raise VitrailError(f"a claim has no '{field}'{did_you_mean(field, CLAIM_FIELDS)}")
    if pd.isna(claim[field]):
        raise VitrailError(f"claim '{name}' has no {field}, as it is {claim['status']}")
    return float(claim[field])


def _claim(name: str, results: Path) -> pd.Series:
    claims = _claims(results)
    names = claims["paper"] + "/" + claims["id"]
    if name not in (known := [*names]):
        raise VitrailError(f"there is no claim '{name}'{did_you_mean(name, known)}")
    return claims.iloc[known.index(name)]


def _claims_counted(place: Sequence[str], results: Path) -> int:
    claims, (paper, kind, status) = _claims(results), place
    named = (
        ("paper", paper, {*claims["paper"]}),
        ("kind", kind, KINDS),
        ("verdict", status, STATUSES),
    )
    for what, word, known in named:
        if word not in known:
            raise VitrailError(f"there is no {what} '{word}'{did_you_mean(word, known)}")
    return count_evidence(claims[claims["paper"] == paper])[kind][status]


def _claims(results: Path) -> pd.DataFrame:
    path = results / "claims.csv"
    if not path.is_file():
        raise VitrailError(f"there is no {path}")
    claims = pd.read_csv(path)
    return claims.assign(effect=claims["left"] - claims["right"])


def _count(target: str, verdict: str, results: Path) -> int:
    if verdict not in VERDICTS:
        raise VitrailError(f"there is no verdict '{verdict}'{did_you_mean(verdict, VERDICTS)}")
    return int((_cells(target, results)["verdict"] == verdict).sum())


def _cells(target: str, results: Path) -> pd.DataFrame:
    named = parse_target(target, (file.name for file in results.glob("*/")))
    if named is None:
        raise VitrailError(f"{results} has no results of the paper of '{target}'")
    paper, artifact = named
    return read_cells(results / paper / f"{artifact}.csv")


def _cell(target: str, field: str, place: Sequence[ast.expr], results: Path) -> float:
    cells = _cells(target, results)
    row, column = map(ast.literal_eval, place)
    for name, wanted in (("row", row), ("column", column)):
        known = cells[name].unique()
        if wanted not in known:
            raise VitrailError(f"{target} has no {name} '{wanted}'{did_you_mean(wanted, known)}")
        cells = cells[cells[name] == wanted]
    found = pd.to_numeric(cells[field], errors="coerce").dropna()  # the paper may print a word
    if len(found) != 1:
        raise VitrailError(f"{target} has {len(found)} numbers in row '{row}', column '{column}'")
    return float(found.iloc[0])


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
    texts = {path: path.read_text(encoding="utf-8") for path in documents(root)}
    fresh = {path: refreshed(text, results, str(path), scales) for path, text in texts.items()}
    return {path: text for path, text in fresh.items() if text != texts[path]}
