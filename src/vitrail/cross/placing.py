"""Where a number lies among the rows of the published cross table.

The library has no results of its own: ``published.csv`` beside this file holds the columns that
`vitrail audit` measures in the same way. ``python -m tools.docs`` writes it from the published
results, and a test compares the two.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

PUBLISHED = Path(__file__).with_name("published.csv")
FIELDS = ("scale", "row", "column", "value")
COLUMNS = {
    "C-Cons.": "Shifted / circular",
    "S-Cons.": "Shifted / crops",
    "turns": "Turned / all eight",
    "P-SHAP": "P-SHAP",
}
"""The table's columns, by the answers of an audit that they are beside."""
MODELS = {"study": "small models on images of 16 pixels, so this is no grade"}
"""What the rows of a scale are, where they are not models of published weights."""


class Place(NamedTuple):
    """How many of some other models have a smaller number, and what models these are."""

    smaller: int
    others: int
    models: str


def place(answer: str, value: float) -> Place | None:
    """Return where a value of an audit lies in the cross table, None where none is published.

    Args:
        answer: one of `COLUMNS`.
        value: in the column's unit.
    """
    if not PUBLISHED.is_file():
        return None
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["column"] == COLUMNS[answer]]
    if not rows:
        return None
    scale = rows[0]["scale"]
    smaller = sum(float(row["value"]) < value for row in rows)
    return Place(smaller, len(rows), f"scale {scale}: {MODELS.get(scale, 'published weights')}")
