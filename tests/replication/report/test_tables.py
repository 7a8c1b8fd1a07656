"""Tables keep the paper's order, tell measured from printed, and are valid Markdown."""

import re

import pytest

from replication.claims.comparison import compare
from replication.config.paper import ShownColumn
from replication.report.formatting import ALLOWED, datasets_read, stand_ins_of, table_of
from replication.report.tables import markdown, panels
from vitrail.errors import REFUSED


@pytest.fixture
def small(build):
    """Two rows, two grouped columns: one agrees, one is outside, one a stand-in, one not run."""
    columns = (
        ShownColumn(label="top-1", group="Clean"),
        ShownColumn(label="top-1", group="Shifted"),
    )
    clean, shifted = (column.full_label for column in columns)
    artifact = build.table(
        build.cell("A_1", clean, printed=93.5, std="0.25"),
        build.cell("A_1", shifted, printed=99.0),
        build.cell("B & C", clean, printed=80.0, comparable=False),
        build.cell("B & C", shifted),
        columns=columns,
        note="Trained for 10 % of the epochs.",
    )
    seeds = [
        {"A_1/Clean / top-1": v, "A_1/Shifted / top-1": 50.0, "B & C/Clean / top-1": 70.0}
        | {"B & C/Shifted / top-1": None}
        for v in (93.0, 93.5, 94.0)
    ]
    return table_of(artifact, compare(artifact, build.measured(*seeds)))


def test_a_table_of_which_the_paper_prints_nothing_says_so(build):
    artifact = build.table(build.cell(), columns=(ShownColumn(label="x"),))
    text = markdown(table_of(artifact, compare(artifact, build.measured({"A/x": 1.0}))))
    assert "The paper prints none of these numbers (Table 1, p. 2)." in text
    assert "Italic" not in text


def test_markdown_shows_the_printed_number_under_the_measured(small):
    assert (
        markdown(small)
        == """\
# paper table1: Accuracy & cost

> Accuracy (%) of A\\_1.

top-1 accuracy (%) · dataset digits · 3 seeds · scale laptop · device cpu: a processor, 1 thread \
· commit 01234567

| Model   |   Clean<br>top-1 |   Shifted<br>top-1 |
|:--------|-----------------:|-------------------:|
| A\\_1    |       93.5 ± 0.5 |        50.0 ± 0.0‡ |
| *paper* |    *93.5 ± 0.25* |             *99.0* |
| B & C   |      70.0 ± 0.0† |                  — |
| *paper* |           *80.0* |                    |

Upright: measured here, the mean over seeds or repetitions (± sample standard deviation). \
Italic, under it: printed in the paper (Table 1, p. 2).

† Not comparable: the paper prints a word, or something stands in for the paper's own (dataset, \
model size, schedule, hardware). A stand-in's numbers are not the paper's and neither confirm nor \
contradict it.

‡ Outside: differs from the printed number by more than is allowed.

No mark beside a printed number: it agrees, the difference is allowed. Allowed with several seeds: \
the 95 % interval that their spread gives (and the printed spread, if there is one), plus half a \
unit of the last printed digit.

— Not run.

Trained for 10 % of the epochs.
"""
    )


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("50 % | *x*", r"50 % \| \*x\*"),
        ("[1] 224² → γ", "[1] 224² → γ"),
        (r"a\b~c^{d}$", r"a\\b\~c^{d}\$"),
    ],
)
def test_labels_are_shown_as_they_are(build, label, shown):
    artifact = build.table(build.cell(label))
    table = table_of(artifact, compare(artifact, build.measured({f"{label}/x": 1.0})))
    assert f"| {shown} |" in markdown(table)


def test_nothing_measured_still_shows_what_the_paper_prints(build):
    artifact = build.table(build.cell(printed=93.5), build.cell("B", printed="Inconsistent"))
    text = markdown(table_of(artifact, compare(artifact, {})))
    assert "nothing measured yet" in text
    assert re.search(r"\| A +\| +— \|\n\| \*paper\* \| +\*93\.5\* \|", text)
    assert "*Inconsistent*" in text
    assert "†" not in text


def test_a_row_of_ours_that_was_not_run_is_left_out_and_named(build):
    artifact = build.table(build.cell(printed=93.5), build.cell("Ours"), build.cell("Also ours"))
    cells = compare(artifact, build.measured({"A/x": 93.0, "Ours/x": None, "Also ours/x": 1.0}))
    table = table_of(artifact, cells)
    rows, _, notes = markdown(table).partition("Not run at this scale, and not in the paper: ")
    assert "Also ours" in rows
    assert "Ours " not in rows
    assert notes.startswith("Ours.")
    assert table.entry("Ours", "x").measured.value == "—"
    assert list(cells["row"]) == ["A", "Ours", "Also ours"]  # the CSV has all


def test_a_refused_cell_is_told_from_one_that_was_not_run_and_says_why(build):
    cells = [build.cell(row, column) for row in ("A", "B") for column in ("x", "y")]
    artifact = build.table(*cells)
    why = {key + REFUSED: "it has no table" for key in ("A/x", "A/y", "B/y")}
    seed = dict.fromkeys(["A/x", "A/y", "B/y"]) | why | {"B/x": 1.0}
    table = table_of(artifact, compare(artifact, build.measured(seed)))
    assert [entry.measured.value for row in table.rows for entry in row.entries] == [
        *("n/a", "n/a", "1.0", "n/a")
    ]
    assert "n/a A (x, y); B (y): it has no table." in table.notes
    assert not [note for note in table.notes if "Not run" in note]
    assert "1 seed" in table.origin
    assert dict(table.entry("A", "x").facts) == {"not defined, as": "it has no table"}


def test_a_table_of_which_nothing_is_printed_or_run_keeps_its_rows(build):
    artifact = build.table(build.cell("Ours"))
    text = markdown(table_of(artifact, compare(artifact, {})))
    assert "| Ours" in text
    assert "Not run at this scale" not in text


@pytest.mark.parametrize(
    ("seeds", "cell", "opening"),
    [
        (2, {}, "Allowed with several seeds: "),
        (1, {"std": "0.2"}, "Allowed with one seed and a printed spread: "),
        (1, {}, "One seed and no printed spread: compared to the last digit alone"),
        (1, {"exact": True}, "Allowed for a deterministic fact: "),
    ],
)
def test_a_mark_is_explained_by_what_the_number_was_held_against(build, seeds, cell, opening):
    artifact = build.table(build.cell(printed=93.5, **cell))
    text = markdown(table_of(artifact, compare(artifact, build.measured(*[{"A/x": 50.0}] * seeds))))
    assert f"‡ Outside: differs from the printed number by more than is allowed. {opening}" in text
    assert sum(text.count(allowed) for allowed in ALLOWED.values()) == 1


def test_units_stand_in_the_headings_when_columns_differ(build):
    artifact = build.table(build.cell(column="acc"), build.cell(column="cost", unit="GMAC"))
    text = markdown(table_of(artifact, compare(artifact, {})))
    assert "|   acc (%) |   cost (GMAC) |" in text


@pytest.fixture
def answers(build):
    """Two questions, answered alike by all seeds and not; the paper prints an answer to each."""
    cells = [
        build.cell(row, "equivariant", printed=value, unit="yes/no", digits=0, exact=True)
        for row, value in (("Ours", 1.0), ("Theirs", 0.0), ("Some", 1.0))
    ]
    cells.append(build.cell("Ours", "accuracy", unit="%"))
    seeds = [
        {"Ours/equivariant": 1.0, "Theirs/equivariant": 0.0, "Some/equivariant": some}
        | {"Ours/accuracy": 50.0}
        for some in (1.0, 1.0, 0.0)
    ]
    artifact = build.table(*cells)
    return artifact, compare(artifact, build.measured(*seeds))


def test_answers_are_yes_and_no_in_tables_and_numbers_in_the_csv(answers):
    artifact, cells = answers
    table = table_of(artifact, cells)
    assert list(cells["measured"][:2]) == [1.0, 0.0]
    assert list(cells["verdict"][:3]) == ["exact", "exact", "outside"]
    rows = [line for line in markdown(table).splitlines() if line.startswith("|")]
    shown = [row.split("|")[2].strip() for row in rows]
    share = "0.67 ± 0.58‡"
    assert shown[0] == "equivariant"
    assert shown[2:] == ["yes", "*yes*", "no", "*no*", share, "*yes*"]


def test_a_wide_table_is_broken_between_groups():
    columns = [ShownColumn(label=str(size), group=group) for group in "ABC" for size in range(5)]
    assert panels(columns, [10] * 15, room=110) == [[*range(10)], [*range(10, 15)]]
    assert panels(columns, [10] * 15, room=150) == [[*range(15)]]


def test_a_group_that_fits_no_panel_is_broken_evenly():
    columns = [ShownColumn(label=str(size), group="A") for size in range(6)]
    assert panels(columns, [10] * 6, room=45) == [[0, 1, 2], [3, 4, 5]]


def test_every_column_of_a_very_wide_table_is_shown_within_the_page(build):
    columns = tuple(
        ShownColumn(label=str(size), group=model) for model in ("S", "B", "L") for size in range(5)
    )
    cells = [build.cell(column=column.full_label, printed=1.0) for column in columns]
    artifact = build.table(*cells, columns=columns)
    seeds = ({f"A/{column.full_label}": v for column in columns} for v in (80.123, 81.0))
    table = table_of(artifact, compare(artifact, build.measured(*seeds)))
    text = markdown(table)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert max(map(len, rows)) <= 125
    assert sum(line.count("80.6 ± 0.6‡") for line in rows) == 15


def test_a_copy_names_the_cell_that_it_copies(build):
    columns = tuple(
        ShownColumn(label=label, group=group)
        for group in ("CIFAR", "SVHN")
        for label in ("acc", "cons")
    )
    cells = [
        build.cell(row, column.full_label, key=key)
        for row, keys in {"A": "1213", "B": "1415"}.items()
        for column, key in zip(columns, keys, strict=True)
    ]
    artifact = build.table(*cells, columns=columns)
    measured = build.measured({key: float(key) for key in "12345"})
    rows = markdown(table_of(artifact, compare(artifact, measured))).split("\n")
    shown = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if "| " in row][1:]
    assert shown == [
        ["A", "1.0", "2.0", "= CIFAR", "3.0"],
        ["B", "= A", "4.0", "= A, CIFAR", "5.0"],
    ]


def test_a_copy_of_a_column_without_a_group_has_its_label(build):
    columns = (ShownColumn(label="tuned"), ShownColumn(label="tuned", group="by the text"))
    cells = [build.cell(column=column.full_label, key="k") for column in columns]
    artifact = build.table(*cells, columns=columns)
    text = markdown(table_of(artifact, compare(artifact, build.measured({"k": 5.0}))))
    assert re.search(r"\| A +\| +5.0 \| += tuned \|", text)


def test_a_stand_in_with_the_originals_own_name_is_not_explained(build):
    names = {"flowers102": "Flowers-102", "digits": "SVHN"}
    artifact = build.table(build.cell()).model_copy(update={"stand_ins": names})
    told = datasets_read("flowers102, digits", artifact, "for")
    assert told == ["flowers102", "digits (for SVHN)"]
    assert stand_ins_of(artifact) == {"digits": "SVHN"}  # those that a figure's legend names


def test_numbers_of_one_training_are_marked_and_a_note_says_so(build):
    marked = [build.cell(column=name, printed=70.0, one_training=True) for name in "xy"]
    artifact = build.table(*marked, build.cell(column="z"))
    measured = build.measured(*[{"A/x": v, "A/y": v, "A/z": v} for v in (80.0, 81.0)])
    text = markdown(table_of(artifact, compare(artifact, measured)))
    row = next(line for line in text.splitlines() if line.startswith("| A"))
    assert row.count("80.5 ± 0.7=") == 2
    assert row.count("80.5 ± 0.7") == 3
    assert "= behind a number: one training." in text
    unmarked = build.table(build.cell())
    assert "one training" not in markdown(table_of(unmarked, compare(unmarked, {})))
