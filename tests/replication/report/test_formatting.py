"""Numbers are written once: with the digits that they have, and with what is known of them."""

import pytest

from replication.claims.comparison import compare, read_cells
from replication.claims.decimals import format_number
from replication.report.formatting import Entry, Number, table_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.65625, "0.656"),
        (93.61, "93.6"),
        (22050664.0, "22050664"),
        (0.0, "0"),
        (1.5e-7, "1.50e-07"),
    ],
)
def test_a_number_without_declared_digits_has_three_significant_ones(value, text):
    assert format_number(value, None) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.123456789, 8, "0.12345679"),
        (8.12e-264, 265, "8.1e-264"),  # as a p-value
        (1.3e-263, 265, "1.30e-263"),
        (3e-12, 9, "3e-12"),  # less than its last decimal
        (0.0, 300, "0"),
        (954676543488.0, 2, "9.55e+11"),
        (1e6, 1, "1.00e+06"),
        (999999.0, 1, "999999.0"),
        (22050664.0, 0, "22050664"),  # a count
    ],
)
def test_a_number_of_many_digits_is_written_with_a_power_of_ten(
    value: float, decimals: int, text: str
) -> None:
    assert format_number(value, decimals) == text


def test_a_negative_zero_is_zero_and_the_spread_decides_the_digits(build):
    assert format_number(-0.004, 2) == "0.00"
    artifact = build.table(build.cell(digits=None))
    spread = build.measured({"A/x": 90.0}, {"A/x": 94.0}, {"A/x": 98.123})
    assert table_of(artifact, compare(artifact, spread)).entry("A", "x").shown.text == "94.0 ± 4.1"


@pytest.mark.parametrize(
    ("of_hardware", "speeds", "text"),
    [
        (True, (9.3, 9.5, 9.7), "9.50 ± 0.20"),
        (True, (940.0, 950.0, 960.0), "950 ± 10"),
        (True, (9.5, 9.5, 9.5), "10 ± 0"),
        (False, (9.4, 9.5, 9.6), "10 ± 0"),
    ],
)
def test_a_time_has_so_many_digits_that_its_spread_is_seen(build, of_hardware, speeds, text):
    artifact = build.table(build.cell(digits=0, of_hardware=of_hardware))
    measured = build.measured(*({"A/x": speed} for speed in speeds))
    assert table_of(artifact, compare(artifact, measured)).entry("A", "x").shown.text == text


def test_an_entry_is_the_same_from_the_cells_and_from_their_csv(build, tmp_path):
    """What is rendered and what the report reads back must not differ."""
    cells = [build.cell(printed=93.5, std="0.25"), build.cell("B", printed="none"), build.cell("C")]
    artifact = build.table(*cells)
    seeds = [{"A/x": value, "B/x": 1.0, "C/x": None} for value in (93.0, 94.0)]
    tidy = compare(artifact, build.measured(*seeds))
    tidy.to_csv(tmp_path / "cells.csv", index=False)
    table = table_of(artifact, tidy)
    assert table == table_of(artifact, read_cells(tmp_path / "cells.csv"))
    assert table.entry("A", "x") == Entry(
        measured=Number("93.5", "0.7"),
        printed=Number("93.5", "0.25"),
        verdict="within",
        facts={
            "measured": "top-1 accuracy",
            "seeds": "2",
            "by seed": "93.0, 94.0",
            "95 % interval": "87.15 to 99.85",
            "dataset": "digits",
            "device": "cpu: a processor, 1 thread",
            "recipe": "abcd1234",
            "measurement": "fedcba987654, fedcba987654",
            "commit": "01234567",
            "printed in": "Table 1, p. 2",
        },
    )
    assert table.entry("B", "x").printed == Number("none")
    assert table.entry("C", "x").measured == Number("—")


def test_a_number_that_was_measured_without_git_has_no_commit(build):
    """Also beside a cell that was not measured at all, whose commit pandas does not know."""
    artifact = build.table(build.cell(), build.cell("B", records=()))
    measured = build.measured({"A/x": 90.0})
    for record in measured.values():
        record["provenance"]["commit"] = None
    table = table_of(artifact, compare(artifact, measured))
    assert "commit" not in table.entry("A", "x").facts
    assert table.entry("A", "x").measured == Number("90.0")


def test_words_that_nothing_measures_are_not_called_not_run(build):
    artifact = build.table(
        build.cell(), build.cell(column="settings", printed="GAP", records=(), comparable=False)
    )
    table = table_of(artifact, compare(artifact, build.measured({"A/x": 90.0})))
    entry = table.entry("A", "settings")
    assert (entry.measured, entry.printed) == (Number(), Number("GAP"))
    assert not any("Not run" in note for note in table.notes)


def test_a_copy_keeps_its_own_number_beside_the_name_of_the_first(build):
    artifact = build.table(build.cell("A", key="k"), build.cell("B", key="k"))
    table = table_of(artifact, compare(artifact, build.measured({"k": 5.0})))
    assert table.entry("A", "x").shown == Number("5.0")
    assert table.entry("B", "x").shown == Number("= A")
    assert table.entry("B", "x").measured == Number("5.0")


def test_rows_that_were_timed_once_are_told(build):
    """Of models that are equal at a scale; a memory or an accuracy alone may be that of two."""
    timed = [
        build.cell(row, column, of_hardware=column != "top-1")
        for row in "ABC"
        for column in ("speed", "peak", "top-1")
    ]
    numbers = {"speed": 31.25, "peak": 8.0, "top-1": 90.0}
    measured = {f"{row}/{column}": value for row in "ABC" for column, value in numbers.items()}
    artifact = build.table(*timed)
    table = table_of(artifact, compare(artifact, build.measured({**measured, "C/speed": 31.5})))
    assert table.entry("B", "speed").shown == table.entry("B", "peak").shown == Number("= A")
    assert table.entry("B", "top-1").shown == Number("90.0")
    assert [table.entry("C", name).shown.text for name in numbers] == ["31.5", "8.0", "90.0"]
    assert any(note.startswith("= The number of another row") for note in table.notes)
    alone = build.table(*[cell for cell in timed if cell.column == "peak"])
    table = table_of(alone, compare(alone, build.measured(measured)))
    assert table.entry("B", "peak").shown == Number("8.0")


@pytest.mark.parametrize(("std", "text"), [("1.0", "1.0"), ("0.10", "0.10")])
def test_a_printed_spread_keeps_its_digits(build, std, text):
    artifact = build.table(build.cell(printed=93.5, std=std))
    cells = compare(artifact, build.measured({"A/x": 93.5}))
    assert table_of(artifact, cells).entry("A", "x").printed == Number("93.5", text)
    assert cells["paper_std"][0] == float(std)
