"""Artifacts as people read them: a table in Markdown and LaTeX, and the files of table or figure.

A table has the paper's rows and columns. Each row is two lines: what was measured here, mean ±
standard deviation over seeds, and under it, in italics and called "paper", what the paper prints.
So fifteen columns stay readable; a wider table is broken into panels between groups of columns.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from tabulate import tabulate

from replication.evidence.comparison import (
    YES_NO,
    Measured,
    compare,
    decimals_of,
    read_measurement,
)
from vitrail.errors import VitrailError
from vitrail.files import write_atomically
from vitrail.naming import import_function

if TYPE_CHECKING:
    from replication.plan.nodes import RenderingNode, ShownCell, ShownColumn

PANEL_WIDTH = 120  # characters: a text column of a printed page, or of a code host
NOT_RUN = "—"
MARKS = {"not_comparable": "†", "outside": "‡"}
TEXTS = ("backslash", "asciitilde", "asciicircum", "bar", "less", "greater")
RAISED = ("2", "3", r"\circ", r"\dagger", r"\ddagger")
COMMANDS = (
    *("cdot", "pm", "times", "rightarrow", "approx", "leq", "geq", "surd", "uparrow", "downarrow"),
    *("alpha", "gamma", "theta", "mu", "sigma", "in"),
)
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{raw: rf"\text{name}{{}}" for raw, name in zip("\\~^|<>", TEXTS, strict=True)},
    "[": "{[}",  # after \\ a bracket or a star would be its argument
    "*": "{*}",
    "—": "---",
    "–": "--",
    "−": "$-$",
    **{high: f"$^{{{text}}}$" for high, text in zip("²³°†‡", RAISED, strict=True)},
    **{symbol: rf"$\{name}$" for symbol, name in zip("·±×→≈≤≥√↑↓αγθμσ∈", COMMANDS, strict=True)},
}
NOTES = {
    "measured": (
        "Upright: measured here, the mean over seeds (± sample standard deviation). "
        "Italic, under it: printed in the paper ({source})."
    ),
    "copies": "= The number of another row or column: at this scale both are one measurement.",
    "not_comparable": (
        "† Not comparable: the paper prints a word, or something stands in for the paper's own "
        "(dataset, model size, schedule, hardware). A stand-in's numbers are not the paper's and "
        "neither confirm nor contradict it."
    ),
    "outside": "‡ Outside: differs from the printed number by more than is allowed.",
    "within": "No mark beside a printed number: it agrees, the difference is allowed.",
    "exact": "A deterministic fact without a mark equals the printed number in every digit.",
    "not_run": "— Not run.",
}
# What `comparison.judge` allows, by what is known of a cell.
ALLOWED = {
    "fact": "Allowed for a deterministic fact: rounding to the printed digits.",
    "seeds": (
        "Allowed with several seeds: the 95 % interval that their spread gives (and the printed "
        "spread, if there is one), plus half a unit of the last printed digit."
    ),
    "printed spread": (
        "Allowed with one seed and a printed spread: the 95 % interval that it gives, plus half a "
        "unit of the last printed digit."
    ),
    "digit": (
        "One seed and no printed spread: compared to the last digit alone, which may differ by one."
    ),
}


@dataclass(frozen=True)
class Number:
    """A number's text: `value`, its `spread` ("" if none), and the `mark` of its verdict."""

    value: str = ""
    spread: str = ""
    mark: str = ""

    @property
    def text(self) -> str:
        """All of it, as plain text."""
        return (f"{self.value} ± {self.spread}" if self.spread else self.value) + self.mark


@dataclass(frozen=True)
class Row:
    """A row with a number for each column; `printed` is empty if the paper prints none of them."""

    label: str
    measured: tuple[Number, ...]
    printed: tuple[Number, ...]


def format_number(value: float, decimals: int | None) -> str:
    """Write a number with `decimals`, or with three significant digits; never a negative zero."""
    if decimals is not None:
        return f"{value:z.{decimals}f}"
    if value == 0 or not math.isfinite(value):
        return f"{value:zg}"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, 2 - magnitude)}f}" if magnitude >= -4 else f"{value:.2e}"


def format_answer(value: float, unit: str) -> str | None:
    """Write 1 and 0 as "yes" and "no" under that unit; None for any other number or unit."""
    return {1.0: "yes", 0.0: "no"}.get(value) if unit == YES_NO else None


def printed_number(
    value: float | str, std: float | None, unit: str, decimals: int | None
) -> Number:
    """Write a number, an answer or a word as the paper prints it."""
    if isinstance(value, str):
        return Number(value)
    decimals = decimals_of(value) if decimals is None else decimals
    text = format_answer(value, unit)
    spread = "" if text or pd.isna(std) else f"{std:g}"
    return Number(text or format_number(value, decimals), spread)


def rows_of(artifact: RenderingNode, cells: pd.DataFrame) -> list[Row]:
    """Return the table's rows, with the numbers as they are written."""
    found = {(cell["row"], cell["column"]): cell for cell in cells.to_dict("records")}
    digits = {(cell.row, cell.column): cell.digits for cell in artifact.cells}
    copies = _copies(artifact)
    result = []
    for row in artifact.rows:
        places = [(row, column.full_label) for column in artifact.columns]
        measured = [measured_number(found.get(at), digits.get(at), copies.get(at)) for at in places]
        printed = [_printed(found.get(at), digits.get(at)) for at in places]
        prints = any(number.value for number in printed)
        result.append(Row(row, tuple(measured), tuple(printed) if prints else ()))
    return result


def _copies(artifact: RenderingNode) -> dict[tuple[str, str], str]:
    """The cells that show the same number as an earlier one, by place, with where that stands."""
    columns = {column.full_label: column for column in artifact.columns}
    first: dict[tuple[Path, str], ShownCell] = {}
    copies = {}
    for cell in artifact.cells:
        if cell.measurement is None:
            continue
        same = first.setdefault((cell.measurement, cell.key), cell)
        here, there = columns[cell.column], columns[same.column]
        names = [(same.row, cell.row), (there.group, here.group), (there.label, here.label)]
        if differing := [theirs for theirs, own in names if theirs != own]:
            copies[cell.row, cell.column] = ", ".join(filter(None, differing))
    return copies


def panels(columns: Sequence[ShownColumn], widths: Sequence[int], room: int) -> list[list[int]]:
    """Break columns into panels of at most `room` characters, by index.

    Groups stay whole where they fit; one that fits no panel is broken into even pieces.
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


def markdown(artifact: RenderingNode, cells: pd.DataFrame) -> str:
    """Return the table in Markdown, aligned so that it can be read as plain text too."""
    headings, body, broken = _layout(artifact, cells)
    titles = [
        "<br>".join(markdown_escape(part) for part in (column.group, heading) if part)
        for column, heading in zip(artifact.columns, headings, strict=True)
    ]
    parts = [f"# {artifact.paper} {artifact.name}: {markdown_escape(artifact.title)}"]
    parts += [f"> {markdown_escape(artifact.caption)}"] if artifact.caption else []
    parts.append(markdown_escape(origin(cells)))
    for panel in broken:
        head = [markdown_escape(artifact.row_header), *(titles[index] for index in panel)]
        rows = []
        for row in body:
            measured = [row.measured[index].text for index in panel]
            rows.append([markdown_escape(row.label), *measured])
            if row.printed:
                printed = [markdown_escape(row.printed[index].text) for index in panel]
                rows.append(["*paper*", *(text and f"*{text}*" for text in printed)])
        parts.append(pipe_table(head, rows))
    parts += [markdown_escape(note) for note in _notes(artifact, cells)]
    return "\n\n".join(parts) + "\n"


def latex(artifact: RenderingNode, cells: pd.DataFrame) -> str:
    """Return the table in LaTeX: booktabs, a float for each panel, notes under the last.

    adjustbox shrinks what would still overflow the line or the page.
    """
    headings, body, broken = _layout(artifact, cells)
    label = rf"\label{{tab:{artifact.paper}-{artifact.name}}}"
    notes = " \\\\\n".join(map(_latex_escape, [origin(cells), *_notes(artifact, cells)]))
    floats = [r"% needs \usepackage{booktabs,adjustbox}"]
    for part, panel in enumerate(broken, start=1):
        caption = f"{artifact.title}. {artifact.caption}" if part == 1 else artifact.title
        caption += f" (Part {part} of {len(broken)}.)" if len(broken) > 1 else ""
        floats += [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{_latex_escape(caption)}}}{label if part == 1 else ''}",
            _tabular(artifact, body, headings, panel),
        ]
        if part == len(broken):
            floats += [r"\par\smallskip\raggedright\footnotesize", notes]
        floats.append(r"\end{table}")
    return "\n".join(floats) + "\n"


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Write a Markdown table, aligned as plain text; columns after the first hold `numbers`."""
    sides = ["left", *["right" if numbers else "left"] * (len(head) - 1)]
    return tabulate(rows, head, "pipe", colalign=sides if rows else None, disable_numparse=True)


def markdown_escape(text: str) -> str:
    """Write plain text so that Markdown shows it as it is."""
    return re.sub(r"([\\`*_<|$~])", r"\\\1", text)


def short_commit(commit: str) -> str:
    """Eight digits of a commit's hash, "-dirty" kept."""
    return re.sub(r"^([0-9a-f]{8})[0-9a-f]*", r"\1", commit)


def _layout(
    artifact: RenderingNode, cells: pd.DataFrame
) -> tuple[list[str], list[Row], list[list[int]]]:
    """The columns' headings, the rows, and the panels that the columns are broken into."""
    headings = [_heading(column, cells) for column in artifact.columns]
    body = rows_of(artifact, cells)
    numbers = [line for row in body for line in (row.measured, row.printed) if line]
    widths = [
        3 + max(len(heading) + 2, *(len(line[index].text) for line in numbers))
        for index, heading in enumerate(headings)
    ]
    labels = max(len(label) for label in [artifact.row_header, *artifact.rows])
    room = max(PANEL_WIDTH - labels, PANEL_WIDTH // 2)
    return headings, body, panels(artifact.columns, widths, room)


def measured_number(
    cell: Mapping[Hashable, Any] | None, decimals: int | None, same_as: str | None = None
) -> Number:
    """Write a tidy cell's number with the spread that it has, or which cell it is `same_as`."""
    if cell is None or pd.isna(cell["measured"]):
        return Number(NOT_RUN if cell else "")
    mark = MARKS.get(cell["verdict"], "")
    value, std = cell["measured"], cell["std"]
    if text := f"= {same_as}" if same_as else format_answer(value, cell["unit"]):
        return Number(text, mark=mark)
    if cell["unit"] == YES_NO:
        decimals = None  # the share of the seeds that say yes, which no rounding makes all of them
    if decimals is None and std > 0:
        decimals = max(0, 1 - math.floor(math.log10(std)))  # two digits of the spread
    spread = "" if pd.isna(std) else format_number(std, decimals)
    return Number(format_number(value, decimals), spread, mark)


def _printed(cell: Mapping[Hashable, Any] | None, decimals: int | None) -> Number:
    if cell is None or pd.isna(cell["paper_value"]):
        return Number()
    return printed_number(cell["paper_value"], cell["paper_std"], cell["unit"], decimals)


def _heading(column: ShownColumn, cells: pd.DataFrame) -> str:
    """A column's label, with its unit where the table has several and the label does not say it."""
    units = cells.loc[cells["column"] == column.full_label, "unit"].unique()
    if cells["unit"].nunique() < 2 or len(units) != 1 or units[0] in ("", YES_NO):
        return column.label
    return column.label if units[0] in column.label else f"{column.label} ({units[0]})"


def origin(cells: pd.DataFrame) -> str:
    """What was measured, and on what, in one line."""
    named = zip(cells["metric"], cells["unit"], strict=True)
    quantities = {f"{metric} ({unit})" if unit else metric for metric, unit in named}
    facts = list(quantities) if len(quantities) == 1 else []
    facts += [f"scale {scale}" for scale in cells["scale"].unique()]
    run = cells[cells["verdict"] != "not_run"]
    if run.empty:
        return " · ".join([*facts, "nothing measured yet"])
    fewest, most = int(run["n_seeds"].min()), int(run["n_seeds"].max())
    facts += [
        _named("dataset", run["dataset"]),
        _named("device", run["device"]),
        (f"{fewest} to {most}" if fewest < most else f"{most}")
        + (" seeds" if most > 1 else " seed"),
        _named("commit", run["commit"].map(short_commit, na_action="ignore")),
    ]
    return " · ".join(fact for fact in facts if fact)


def _named(name: str, column: pd.Series) -> str:
    """``"dataset digits, photos"``, or nothing where no row says."""
    values = ", ".join(filter(None, column.dropna().unique()))
    return values and f"{name} {values}"


def _notes(artifact: RenderingNode, cells: pd.DataFrame) -> list[str]:
    """The notes that this table needs, in the order of `NOTES`, then the artifact's own."""
    needed = {"measured", *cells["verdict"], *(["copies"] if _copies(artifact) else [])}
    notes = {name: note for name, note in NOTES.items() if name in needed}
    notes["measured"] = notes["measured"].format(source=artifact.source)
    if last := next((name for name in ("within", "outside") if name in notes), None):
        notes[last] += f" {_allowed(artifact, cells)}"
    return [*notes.values(), *filter(None, [artifact.note])]


def _allowed(artifact: RenderingNode, cells: pd.DataFrame) -> str:
    """What may differ, for the kinds of cells that this table judges by a difference."""
    facts = {(cell.row, cell.column) for cell in artifact.cells if cell.exact}
    found = set()
    for cell in cells[cells["verdict"].isin(["within", "outside"])].to_dict("records"):
        one_run = "digit" if pd.isna(cell["paper_std"]) else "printed spread"
        of_seeds = "seeds" if cell["n_seeds"] > 1 else one_run
        found.add("fact" if (cell["row"], cell["column"]) in facts else of_seeds)
    return " ".join(text for name, text in ALLOWED.items() if name in found)


def _tabular(
    artifact: RenderingNode, body: Sequence[Row], headings: Sequence[str], panel: Sequence[int]
) -> str:
    """One panel as a booktabs table that never exceeds the line."""
    head = [artifact.row_header, *(headings[index] for index in panel)]
    rows = [
        r"\begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}",
        rf"\begin{{tabular}}{{l{'r' * len(panel)}}}",
        r"\toprule",
        *_group_header([artifact.columns[index] for index in panel]),
        _latex_row(map(_latex_escape, head)),
        r"\midrule",
    ]
    for row in body:
        if row is not body[0]:
            rows.append(r"\addlinespace[2pt]")
        measured = (row.measured[index] for index in panel)
        numbers = (_latex_number(one) + _latex_escape(one.mark) for one in measured)
        rows.append(_latex_row([_latex_escape(row.label), *numbers]))
        if row.printed:
            printed = (_latex_number(row.printed[index]) for index in panel)
            italic = (text and rf"\textit{{{text}}}" for text in printed)
            rows.append(_latex_row([r"\quad\textit{paper}", *italic]))
    return "\n".join([*rows, r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}"])


def _group_header(columns: Sequence[ShownColumn]) -> list[str]:
    """The line of group names over their columns, with a rule under each; none without groups."""
    if not any(column.group for column in columns):
        return []
    spans, rules, start = [""], [], 2
    for group, members in itertools.groupby(column.group or "" for column in columns):
        end = start + len(list(members))
        spans.append(rf"\multicolumn{{{end - start}}}{{c}}{{{_latex_escape(group)}}}")
        rules += [rf"\cmidrule(lr){{{start}-{end - 1}}}"] if group else []
        start = end
    return [_latex_row(spans), " ".join(rules)]


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_number(number: Number) -> str:
    value = re.sub(r"^-(?=\d)", "$-$", _latex_escape(number.value))
    return rf"{value} {{\scriptsize $\pm$ {number.spread}}}" if number.spread else value


def _latex_escape(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def render(artifact: RenderingNode, folder: Path, measured: Measured) -> tuple[Path, ...]:
    """Write an artifact's files into a folder, the tidy CSV always among them; return their paths.

    `measured` are the records of its measurements, as `read_measurement` gives them, by path.

    Raises:
        VitrailError: a figure's measurement is missing, a cell's key is unknown, or the folder
            cannot be written to.
    """
    cells = compare(artifact, measured)
    csv, *others = paths = tuple(folder / file.name for file in artifact.files)
    if artifact.draw is None:
        for path, write in zip(others, (markdown, latex), strict=True):
            write_atomically(path, write(artifact, cells))
    else:
        from vitrail import style  # matplotlib only where something is drawn

        if missing := [path for path in artifact.measurements if path not in measured]:
            raise VitrailError(
                f"{artifact.target} needs {missing[0]}; run snakemake {artifact.target}"
            )
        draw = import_function(artifact.draw, "artifacts.yaml")
        figure = draw(cells, [measured[path] for path in artifact.measurements])
        if len(cells):
            style.stamp(figure, origin(cells))
        style.save(figure, csv.with_suffix(""))
    write_atomically(csv, cells.to_csv(index=False, lineterminator="\n"))
    return paths


def read_measured(artifact: RenderingNode) -> dict[Path, dict[str, Any]]:
    """Read the records of an artifact's measurements that were taken, by path."""
    found = {path: read_measurement(path) for path in artifact.measurements}
    return {path: values for path, values in found.items() if values is not None}
