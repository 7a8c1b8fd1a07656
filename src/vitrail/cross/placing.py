"""Where a number lies among the rows of the published cross table.

The library has no results of its own: ``published.csv`` beside this file holds the columns that
`vitrail audit` measures in the same way. ``python -m tools.docs`` writes it from the published
results, and a test compares the two.
"""

from __future__ import annotations

import csv
from pathlib import Path

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


def placed(answer: str, value: float) -> str:
    """Say where a value of an audit lies in the cross table, "" where none is published.

    Args:
        answer: one of `COLUMNS`.
        value: in the column's unit.
    """
    if not PUBLISHED.is_file():
        return ""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["column"] == COLUMNS[answer]]
    if not rows:
        return ""
    others = [float(row["value"]) for row in rows]
    smaller, equal = sum(other < value for other in others), others.count(value)
    scale = rows[0]["scale"]
    return (
        f" Of the {len(rows)} models of the cross table (scale {scale}: "
        f"{MODELS.get(scale, 'published weights')}), {smaller or 'none'} "
        f"{'has' if smaller < 2 else 'have'} a smaller number"
        f"{f', and {equal} the same' if equal else ''}."
    )
