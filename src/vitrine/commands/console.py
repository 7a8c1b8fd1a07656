"""Tables and sentences on a terminal or through a pipe: nothing is cut off, only folded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 120


def say(text: str = "") -> None:
    """Print a line as it is; the terminal wraps it."""
    _console().print(Text(text), soft_wrap=True)


def heading(text: str) -> None:
    """Print the line above a table."""
    _console().print(Text(text, style="bold"), soft_wrap=True)


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()
) -> None:
    """Print a table.

    Args:
        header: the columns' names.
        rows: one cell for each column; None is left empty.
        right: the columns whose cells are numbers, flush right.
    """
    numbers = set(right)
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in header:
        justify: JustifyMethod = "right" if name in numbers else "left"
        shown.add_column(Text(name), justify=justify, overflow="fold")
    for row in rows:
        shown.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    _console().print(shown)
    _console().print()


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: float) -> str:
    """Bytes with a decimal unit: 1.2 GB."""
    units = ["B", "kB", "MB", "GB", "TB"]
    power = next((i for i in range(len(units)) if number < 1000 ** (i + 1)), len(units) - 1)
    scaled = number / 1000**power
    decimals = 0 if power == 0 or scaled >= 100 else 1
    return f"{scaled:.{decimals}f} {units[power]}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best: 45 s, 12 min, 3.5 h, 2.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds:.1g} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _console() -> Console:
    # Made anew each time: standard output may have been redirected since.
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, emoji=False)
