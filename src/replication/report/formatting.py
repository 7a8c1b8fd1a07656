"""The numbers of a table or figure as text, formatted in one place for all that show them.

The Markdown files, the report and ``vitrail show`` write a `Table` and format no number themselves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from replication.claims.comparison import YES_NO, decimals_of
from replication.claims.decimals import decimals_by, format_number

if TYPE_CHECKING:
    from replication.config.paper import Printed, ShownColumn
    from replication.records.specs import Artifact, Cell

NOT_RUN = "—"
REFUSED = "n/a"
MARKS = {"not_comparable": "†", "outside": "‡", "explained": "≈"}
NOTES = {
    "measured": (
        "Upright: measured here, the mean over seeds or repetitions (± sample standard deviation)."
    ),
    "copies": "= The number of another row or column: at this scale both are one measurement.",
    "one_training": (
        "= behind a number: one training. At this scale the recipes of these columns are equal, so "
        "one model has the numbers of both."
    ),
    "not_comparable": (
        "† Not comparable: the paper prints a word, or something stands in for the paper's own "
        "(dataset, model size, schedule, hardware). A stand-in's numbers are not the paper's and "
        "neither confirm nor contradict it."
    ),
    "explained": (
        "≈ Explained: differs from the printed number, but another reading of the text gives it to "
        "the last digit; the table has a row or column for that reading, without a printed number."
    ),
    "outside": "‡ Outside: differs from the printed number by more than is allowed.",
    "within": "No mark beside a printed number: it agrees, the difference is allowed.",
    "exact": "A deterministic fact without a mark equals the printed number in every digit.",
    "not_run": "— Not run.",
    "refused": "n/a Not defined for the model; below is why.",
}
PRINTED = "Italic, under it: printed in the paper ({source})."
UNPRINTED = "The paper prints none of these numbers ({source})."
# The difference that `comparison.judge` allows, by what is known about a cell.
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
    """A number as text: `value`, its `spread` ("" if none), and the `mark` of its verdict."""

    value: str = ""
    spread: str = ""
    mark: str = ""

    @property
    def text(self) -> str:
        """Return value, spread and mark as plain text."""
        return (f"{self.value} ± {self.spread}" if self.spread else self.value) + self.mark


@dataclass(frozen=True)
class Entry:
    """A cell: what was measured, what the paper prints, the verdict, and the number's origin.

    `facts` are what is known of the origin, by name. `same_as` is the place of an earlier cell that
    shows the same number, "" if there is none. Of an artifact that is not built only `printed` is
    known.
    """

    measured: Number = Number()
    printed: Number = Number()
    verdict: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    same_as: str = ""

    @property
    def shown(self) -> Number:
        """Return the measured number, or the place of the earlier cell that shows the same."""
        return (
            Number(f"= {self.same_as}", mark=self.measured.mark) if self.same_as else self.measured
        )


@dataclass(frozen=True)
class Row:
    """A row of a table, with an entry for each column."""

    label: str
    entries: tuple[Entry, ...]

    @property
    def prints(self) -> bool:
        """Tell whether the paper prints anything in the row."""
        return any(entry.printed.value for entry in self.entries)

    @property
    def left_out(self) -> bool:
        """Tell whether the row is left out: the paper prints nothing in it and no cell was run."""
        values = {entry.measured.value for entry in self.entries}
        return not self.prints and NOT_RUN in values and values <= {"", NOT_RUN}


@dataclass(frozen=True)
class Table:
    """An artifact's numbers as text, with the columns' headings and notes on both."""

    artifact: Artifact
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    origin: str
    notes: tuple[str, ...]

    @property
    def shown_rows(self) -> tuple[Row, ...]:
        """Return the rows to write: those that are not left out, or all if each is left out."""
        return tuple(row for row in self.rows if not row.left_out) or self.rows

    def entry(self, row: str, column: str) -> Entry:
        """Return the entry of a cell, by the full labels of its row and column."""
        labels = [column.full_label for column in self.artifact.columns]
        entries = next(shown.entries for shown in self.rows if shown.label == row)
        return entries[labels.index(column)]


def table_of(artifact: Artifact, cells: pd.DataFrame) -> Table:
    """Make the table of an artifact from its tidy cells; `cells` may be empty."""
    declared = {(cell.row, cell.column): cell for cell in artifact.cells}
    found = {(cell["row"], cell["column"]): cell for cell in cells.to_dict("records")}
    copies = _timed_once(artifact, cells) | _copies(artifact)
    rows = []
    for row in artifact.rows:
        places = [(row, column.full_label) for column in artifact.columns]
        entries = (
            entry_of(declared[at], found.get(at), copies.get(at, "")) if at in declared else Entry()
            for at in places
        )
        rows.append(Row(row, tuple(entries)))
    notes = _notes(artifact, cells)
    absent = [row.label for row in rows if row.left_out]
    if 0 < len(absent) < len(rows):
        notes.append(f"Not run at this scale, and not in the paper: {'; '.join(absent)}.")
    return Table(
        artifact=artifact,
        headings=tuple(_heading(column, cells) for column in artifact.columns),
        rows=tuple(rows),
        origin=origin(artifact, cells),
        notes=tuple(notes),
    )


def format_answer(value: float, unit: str) -> str | None:
    """Return "yes" for 1 and "no" for 0 in the unit `YES_NO`; None for other numbers or units."""
    return {1.0: "yes", 0.0: "no"}.get(value) if unit == YES_NO else None


def format_interval(low: float, high: float) -> str:
    """Write a 95 % interval with four significant digits."""
    return f"95 % interval {low:.4g} to {high:.4g}"


def spans(columns: Sequence[ShownColumn]) -> list[tuple[str, int]]:
    """Return the groups of columns, each with its number of columns; [] if no column has one."""
    groups = itertools.groupby(column.group or "" for column in columns)
    counted = [(name, len(list(members))) for name, members in groups]
    return counted if any(name for name, _ in counted) else []


def short_commit(commit: str) -> str:
    """Return eight digits of a commit's hash, with a "-dirty" at its end kept."""
    return re.sub(r"^([0-9a-f]{8})[0-9a-f]*", r"\1", commit)


def entry_of(cell: Cell, found: Mapping[Hashable, Any] | None = None, same_as: str = "") -> Entry:
    """Write a cell as an entry.

    `found` is its row of the tidy cells, None if the artifact is not built. `same_as` is the place
    of the earlier cell that it copies, "" if there is none.
    """
    printed = _printed(cell.printed, cell) if cell.printed else Number()
    if found is None:
        return Entry(printed=printed)
    equal = "" if same_as or not cell.one_training else "="
    return Entry(
        measured=Number() if _only_words(cell) else _measured(found, cell, equal),
        printed=printed,
        verdict=found["verdict"],
        facts=_facts(found),
        same_as="" if pd.isna(found["measured"]) else same_as,
    )


def _only_words(cell: Cell) -> bool:
    """Tell whether the paper prints words in a cell that nothing measures, such as settings."""
    return not cell.records and cell.printed is not None and isinstance(cell.printed.value, str)


def _measured(found: Mapping[Hashable, Any], cell: Cell, equal: str) -> Number:
    """Write a tidy cell's number with its spread and mark; `equal` is put before the mark."""
    value, std, decimals = found["measured"], found["std"], cell.digits
    if pd.isna(value):
        return Number(REFUSED if found["verdict"] == "refused" else NOT_RUN)
    mark = equal + MARKS.get(found["verdict"], "")
    if answer := format_answer(value, cell.unit):
        return Number(answer, mark=mark)
    if cell.unit == YES_NO:
        decimals = None  # a share of seeds that say yes: rounding must not make it all or none
    # Times have the digits that the paper prints, unless their spread would then be 0.
    if decimals is None or (cell.of_hardware and 0 < std < 0.5 * 10.0**-decimals):
        decimals = decimals_by(std)
    spread = "" if pd.isna(std) else format_number(std, decimals)
    return Number(format_number(value, decimals), spread, mark)


def _printed(printed: Printed, cell: Cell) -> Number:
    """Write a number, an answer or a word as the paper prints it."""
    if isinstance(printed.value, str):
        return Number(printed.value)
    if answer := format_answer(printed.value, cell.unit):
        return Number(answer)
    decimals = decimals_of(printed.value) if cell.digits is None else cell.digits
    return Number(format_number(printed.value, decimals), printed.spread)


def _facts(found: Mapping[Hashable, Any]) -> dict[str, str]:
    """Return the known facts about a tidy cell's measurement, by name."""
    if pd.isna(found["measured"]):
        refused = found["verdict"] == "refused"
        return {"not defined, as": found["explained_by"]} if refused else {}
    by_seed = [format_number(float(number), None) for number in found["by_seed"].split()]
    facts = {
        "measured": found["metric"],
        "seeds": str(found["n_seeds"]),
        "by seed": ", ".join(by_seed) if len(by_seed) > 1 else "",
        "95 % interval": "",
        "explained by": found["explained_by"],
        **{name: found[name] for name in ("dataset", "device")},
        "recipe": found["recipe_hash"],
        "measurement": ", ".join(digest[:12] for digest in (found["measurement"] or "").split()),
        "commit": "" if pd.isna(found["commit"]) else short_commit(found["commit"]),
        "printed in": found["source"],
    }
    if not pd.isna(found["ci_low"]):
        facts["95 % interval"] = f"{found['ci_low']:.4g} to {found['ci_high']:.4g}"
    return {name: fact for name, fact in facts.items() if fact and not pd.isna(fact)}


def _copies(artifact: Artifact) -> dict[tuple[str, str], str]:
    """Return the cells that show the same number as an earlier cell, with that cell's place."""
    columns = {column.full_label: column for column in artifact.columns}
    first: dict[tuple[object, str], Cell] = {}
    copies = {}
    for cell in artifact.cells:
        if not cell.records:
            continue
        same = first.setdefault((cell.records, cell.key), cell)
        here, there = columns[cell.column], columns[same.column]
        names = [(same.row, cell.row), (there.group, here.group), (there.label, here.label)]
        if differing := [theirs for theirs, own in names if theirs != own]:
            place = ", ".join(filter(None, differing))
            copies[cell.row, cell.column] = place or there.label  # a column without a group
    return copies


def _timed_once(artifact: Artifact, cells: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the cells of rows whose times and memory equal those of an earlier row exactly.

    Each has the label of that row. A measure that times equal models only once gives their rows the
    same numbers; two timings never agree exactly.
    """
    numbers = {(cell.row, cell.column): cell for cell in artifact.cells if cell.of_hardware}
    rows: dict[str, dict[str, tuple[object, float]]] = {}
    for cell in cells.to_dict("records"):
        at = cell["row"], cell["column"]
        if at in numbers and not pd.isna(cell["measured"]):
            rows.setdefault(at[0], {})[at[1]] = numbers[at].records, cell["measured"]
    first: dict[Hashable, str] = {}
    return {
        (row, column): same
        for row, found in rows.items()
        if len(found) > 1  # a single number, such as memory, may be equal by chance
        and (same := first.setdefault(frozenset(found.items()), row)) != row
        for column in found
    }


def _heading(column: ShownColumn, cells: pd.DataFrame) -> str:
    """Return a column's label, with its unit if the table has several and the label lacks it."""
    units = cells.loc[cells["column"] == column.full_label, "unit"].unique()
    if cells["unit"].nunique() < 2 or len(units) != 1 or units[0] in ("", YES_NO):
        return column.label
    return column.label if units[0] in column.label else f"{column.label} ({units[0]})"


def origin(artifact: Artifact, cells: pd.DataFrame) -> str:
    """Return what was measured, and on what, in one line."""
    return " · ".join([*_quantity(cells), *measured_on(artifact, cells)])


def measured_on(artifact: Artifact, cells: pd.DataFrame) -> tuple[str, ...]:
    """Return two texts: models, data and seeds of the numbers; then scale, device and commit.

    For numbers without data and hardware, which are the same at every scale, the second text has
    the commit alone. If nothing is measured, there is only one text.
    """
    run = cells[cells["n_seeds"] > 0]
    if run.empty:
        return (f"scale {_scale(cells)} · nothing measured yet",)
    commit = _named("commit", run["commit"].map(short_commit, na_action="ignore"))
    timed = {(cell.row, cell.column) for cell in artifact.cells if cell.of_hardware}
    of_hardware = not timed.isdisjoint(zip(run["row"], run["column"], strict=True))
    if not of_hardware and run["dataset"].isna().all():
        return "Computed: no data, nothing trained", commit
    told = datasets_read(", ".join(run["dataset"].dropna()), artifact, "for")
    kind = "Small models on" if artifact.stand_ins else "dataset"
    data = f"{kind} {', '.join(told)}" if told else ""
    of_data = run.dropna(subset="dataset") if told else run
    fewest, most = int(of_data["n_seeds"].min()), int(of_data["n_seeds"].max())
    word = "seed" if told else "repetition"
    seeds = f"{fewest} to {most}" if fewest < most else f"{most}"
    what = [data, f"{seeds} {word}{'s' * (most > 1)}"]
    origin = [f"scale {_scale(cells)}", _named("device", run["device"]), commit]
    return " · ".join(filter(None, what)), " · ".join(filter(None, origin))


def stand_ins_of(artifact: Artifact) -> dict[str, str]:
    """Return an artifact's stand-ins, each with the names of what it replaces.

    A dataset with the name of what it replaces, such as another split of it, is left out.
    """

    def bare(name: str) -> str:
        return re.sub(r"\W", "", name).lower()

    return {here: names for here, names in artifact.stand_ins.items() if bare(here) != bare(names)}


def datasets_read(names: str, artifact: Artifact, word: str) -> list[str]:
    """Return the datasets named in a text, each once; after `word` a stand-in has the original."""
    stand_ins = stand_ins_of(artifact)
    return [
        f"{name} ({word} {stand_ins[name]})" if name in stand_ins else name
        for name in dict.fromkeys(names.split(", "))
        if name
    ]


def _quantity(cells: pd.DataFrame) -> list[str]:
    """Return the quantity with its unit if all numbers have the same; otherwise []."""
    named = zip(cells["metric"], cells["unit"], strict=True)
    quantities = {f"{metric} ({unit})" if unit else metric for metric, unit in named}
    return list(quantities) if len(quantities) == 1 else []


def _scale(cells: pd.DataFrame) -> str:
    """Return the scale of tidy cells."""
    return ", ".join(dict.fromkeys(cells["scale"]))


def _named(name: str, column: pd.Series) -> str:
    """Return a name with the values of a column, as "device cpu"; "" if it has none."""
    values = ", ".join(filter(None, column.dropna().unique()))
    return values and f"{name} {values}"


def _notes(artifact: Artifact, cells: pd.DataFrame) -> list[str]:
    """Return the notes that this table needs, in the order of `NOTES`, then the artifact's own."""
    copied = _copies(artifact) or _timed_once(artifact, cells)
    words = {(cell.row, cell.column) for cell in artifact.cells if _only_words(cell)}
    verdicts = {
        cell["verdict"]
        for cell in cells.to_dict("records")
        if (cell["row"], cell["column"]) not in words
    }
    needed = {"measured", *verdicts, *(["copies"] if copied else [])}
    needed |= {"one_training" for cell in artifact.cells if cell.one_training}
    notes = {name: note for name, note in NOTES.items() if name in needed}
    printed = any(cell.printed for cell in artifact.cells)
    notes["measured"] += f" {(PRINTED if printed else UNPRINTED).format(source=artifact.source)}"
    if last := next((name for name in ("within", "outside") if name in notes), None):
        notes[last] += f" {_allowed(artifact, cells)}"
    return [*notes.values(), *_refusals(cells), *filter(None, [artifact.note])]


def _refusals(cells: pd.DataFrame) -> list[str]:
    """Return the reasons why cells are not defined, each once, with the cells that it concerns."""
    said: dict[str, dict[str, list[str]]] = {}
    for cell in cells[cells["verdict"] == "refused"].to_dict("records"):
        rows = said.setdefault(cell["explained_by"], {})
        rows.setdefault(cell["row"], []).append(cell["column"])
    places = {
        why: "; ".join(f"{row} ({', '.join(columns)})" for row, columns in rows.items())
        for why, rows in said.items()
    }
    return [f"n/a {where}: {why}." for why, where in places.items()]


def _allowed(artifact: Artifact, cells: pd.DataFrame) -> str:
    """Return how far numbers may differ, for each kind of cell that this table judges."""
    facts = {(cell.row, cell.column) for cell in artifact.cells if cell.exact}
    found = set()
    for cell in cells[cells["verdict"].isin(["within", "outside"])].to_dict("records"):
        one_run = "digit" if pd.isna(cell["paper_std"]) else "printed spread"
        of_seeds = "seeds" if cell["n_seeds"] > 1 else one_run
        found.add("fact" if (cell["row"], cell["column"]) in facts else of_seeds)
    return " ".join(text for name, text in ALLOWED.items() if name in found)
