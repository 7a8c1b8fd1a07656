"""Render artifacts: a table in Markdown, and the files of a table or figure.

A table has the paper's rows and columns. Each row takes two lines: what was measured here, as mean
± standard deviation over seeds, and below it, in italics and labelled "paper", what the paper
prints. So up to fifteen columns stay readable; a wider table is split into panels between groups of
columns.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from replication.claims.comparison import Measured, compare, gather_seeds, read_measurement
from replication.config.functions import import_function
from replication.report.formatting import Table, measured_on, stand_ins_of, table_of
from vitrail.errors import VitrailError
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.config.paper import ShownColumn
    from replication.records.specs import Artifact

PANEL_WIDTH = 120  # characters: about the text width of a printed page or a code host


def panels(columns: Sequence[ShownColumn], widths: Sequence[int], room: int) -> list[list[int]]:
    """Split columns into panels of at most `room` characters; return the columns' indices.

    `widths` are those of the columns in characters. A group of columns stays in one panel if it
    fits; a group wider than a panel is split into even pieces.
    """
    result: list[list[int]] = []
    left = 0
    for _, group in itertools.groupby(range(len(columns)), lambda i: columns[i].group or i):
        members = list(group)
        pieces = math.ceil(sum(widths[i] for i in members) / room)
        size = math.ceil(len(members) / pieces)
        for piece in (members[start : start + size] for start in range(0, len(members), size)):
            needed = sum(widths[i] for i in piece)
            if not result or needed > left:
                result.append([])
                left = room
            result[-1] += piece
            left -= needed
    return result


def markdown(table: Table) -> str:
    """Return the table in Markdown, aligned so that it can be read as plain text, too."""
    artifact = table.artifact
    columns: Sequence[ShownColumn] = artifact.columns
    titles = [
        "<br>".join(markdown_escape(part) for part in (column.group, heading) if part)
        for column, heading in zip(columns, table.headings, strict=True)
    ]
    parts = [f"# {artifact.paper} {artifact.name}: {markdown_escape(artifact.title)}"]
    parts += [f"> {markdown_escape(artifact.caption)}"] if artifact.caption else []
    parts.append(markdown_escape(table.origin))
    for panel in _panels_of(table):
        head = [markdown_escape(artifact.row_header), *(titles[index] for index in panel)]
        lines = []
        for row in table.shown_rows:
            entries = [row.entries[index] for index in panel]
            lines.append([markdown_escape(row.label), *(entry.shown.text for entry in entries)])
            if row.prints:
                printed = [markdown_escape(entry.printed.text) for entry in entries]
                lines.append(["*paper*", *(text and f"*{text}*" for text in printed)])
        parts.append(pipe_table(head, lines))
    parts += [markdown_escape(note) for note in table.notes]
    return "\n\n".join(parts) + "\n"


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Return a Markdown table, aligned as plain text.

    With `numbers`, all columns but the first are aligned to the right.
    """
    sides = ["left", *["right" if numbers else "left"] * (len(head) - 1)]
    return tabulate(rows, head, "pipe", colalign=sides if rows else None, disable_numparse=True)


def markdown_escape(text: str) -> str:
    """Escape plain text so that Markdown shows it unchanged."""
    return re.sub(r"([\\`*_<|$~])", r"\\\1", text)


def _panels_of(table: Table) -> list[list[int]]:
    """Return the panels into which a table's columns are split."""
    widths = []
    for index, heading in enumerate(table.headings):
        entries = [row.entries[index] for row in table.shown_rows]
        texts = [number.text for entry in entries for number in (entry.shown, entry.printed)]
        widths.append(3 + max(len(heading) + 2, *map(len, texts)))
    artifact = table.artifact
    labels = max(len(label) for label in [artifact.row_header, *artifact.rows])
    return panels(artifact.columns, widths, max(PANEL_WIDTH - labels, PANEL_WIDTH // 2))


def render(artifact: Artifact, folder: Path, measured: Measured) -> tuple[Path, ...]:
    """Write an artifact's files into a folder, always with the tidy CSV; return their paths.

    `measured` maps the paths of its measurements' records to their content, as `read_measurement`
    returns it.

    Raises:
        VitrailError: a figure's measurement is missing, a cell's key is unknown, or the folder
            cannot be written to.
    """
    cells = compare(artifact, measured)
    table = table_of(artifact, cells)
    csv, *_ = paths = artifact.files_in(folder)
    if artifact.draw is None:
        write_atomically(csv.with_suffix(".md"), markdown(table))
    else:
        from vitrail import style  # imports matplotlib, which only figures need

        if missing := [path for path in artifact.records if path not in measured]:
            raise VitrailError(f"{artifact.target} needs {missing[0]}; run {artifact.command}")
        draw = import_function(artifact.draw, "artifacts.yaml")
        named = style.with_stand_ins_named(cells, stand_ins_of(artifact))
        gathered = [gather_seeds(seeds, measured) for seeds in artifact.measurements]
        figure = draw(named, gathered)
        if len(cells):
            style.stamp(figure, measured_on(artifact, cells))
        style.save(figure, csv.with_suffix(""))
    write_atomically(csv, cells.to_csv(index=False, lineterminator="\n"))
    return paths


def read_measured(artifact: Artifact) -> dict[Path, dict[str, Any]]:
    """Read the records of an artifact's measurements, by path; missing ones are left out."""
    found = {path: read_measurement(path) for path in artifact.records}
    return {path: values for path, values in found.items() if values is not None}
