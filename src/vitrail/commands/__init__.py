"""The library's commands, one module each, and the functions by which all commands print.

They print tables and sentences. On a terminal, lines are wrapped at its width and never cut off;
through a pipe, each row is one line, for grep.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

MODULES = ("audit", "pshap", "mmseg")  # in the order of the help
PIPED_WIDTH = 10_000


def printable(text: str, encoding: str = "utf-8") -> str:
    """Replace characters that `encoding` cannot encode by ``\\x..`` or ``\\u....``.

    These may be any letters on an old terminal; in UTF-8, bytes of file names that are not UTF-8.
    """
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say(*lines: str, style: str = "") -> None:
    """Print lines without wrapping them; the terminal wraps."""
    for line in lines:
        _console().print(_text(line, style), soft_wrap=True)


def heading(text: str) -> None:
    """Print the line above a table or some sentences."""
    say(text, style="bold")


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Collection[str] = (),
    title: str = "",
) -> None:
    """Print rows under a header; None is an empty cell, the columns in `right` are right-aligned.

    Words are never split: if the columns' longest words do not fit into the terminal's width, lines
    are wider, and the terminal wraps them.
    """
    if title:
        heading(title)
    lines = [["" if cell is None else str(cell) for cell in row] for row in rows]
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for number, name in enumerate(header):
        side: JustifyMethod = "right" if name in right else "left"
        single = not any(" " in line[number] for line in lines)
        shown.add_column(_text(name), justify=side, overflow="fold", no_wrap=single)
    for line in lines:
        shown.add_row(*map(_text, line))
    console = _console()
    unlimited = console.options.update(max_width=PIPED_WIDTH)
    console.width = max(console.width, Measurement.get(console, unlimited, shown).minimum)
    console.print(shown, "")


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: 1 run, 2 runs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text, sys.stdout.encoding or "utf-8"), style)


def _console() -> Console:
    # Made at each call, as standard output may have been redirected meanwhile.
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, emoji=False)
