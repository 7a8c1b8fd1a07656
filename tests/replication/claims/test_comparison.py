"""Each cell's statistics and verdict follow from the seeds by closed formulas."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from replication.claims.comparison import (
    COLUMNS,
    Summary,
    compare,
    decimals_of,
    difference_of_means,
    read_cells,
    read_measurement,
    summarize,
    tolerance,
)
from replication.records.nodes import RenderingNode
from replication.records.records import complete
from vitrail.errors import REFUSED, VitrailError
from vitrail.files import sha256


@pytest.fixture
def verdict(build):
    """The verdict on one cell, given what the seeds measured."""

    def judge(values, **cell):
        artifact = build.table(build.cell(**cell))
        measured = build.measured(*({"A/x": value} for value in values)) if values else {}
        return compare(artifact, measured).loc[0, "verdict"]

    return judge


def test_mean_deviation_and_interval_are_the_textbook_ones():
    values = [90.0, 91.0, 95.0]
    summary = summarize(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert summary.measured == pytest.approx(92.0)
    assert summary.std == pytest.approx(math.sqrt(7))
    assert (summary.ci_low, summary.ci_high) == pytest.approx((low, high))


def test_one_seed_has_no_spread_and_none_has_nothing():
    assert summarize([3.5]) == Summary(3.5, None, 1, None, None)
    assert summarize([]) == Summary()


def test_equal_seeds_have_no_spread_at_all():
    assert summarize([0.1, 0.1, 0.1]).std == 0.0


def test_the_difference_of_two_means_is_welchs():
    left, right = [1.0, 2.0, 4.0], [2.0, 2.5, 2.0, 3.5]
    interval = stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
    half = difference_of_means(3, np.std(left, ddof=1), 4, np.std(right, ddof=1)).half_width
    assert half == pytest.approx((interval.high - interval.low) / 2)


@pytest.mark.parametrize(
    ("n", "std", "paper_std", "expected"),
    [
        (
            3,
            0.3,
            0.4,
            stats.t.ppf(0.975, 2 * (0.25**2) / (0.09**2 + 0.16**2)) * 0.5 / 3**0.5 + 0.05,
        ),
        (3, 0.3, None, stats.t.ppf(0.975, 2) * 0.3 * math.sqrt(4 / 3) + 0.05),
        (3, 0.0, None, 0.05),
        (1, None, 0.4, stats.norm.ppf(0.975) * 0.4 + 0.05),
        (1, None, None, 0.1),
    ],
    ids=["both spreads", "our spread", "no spread", "the paper's spread", "one run each"],
)
def test_the_tolerance_follows_from_what_is_known_of_the_spread(n, std, paper_std, expected):
    assert tolerance(n, std, paper_std, decimals=1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "decimals"), [(93.6, 1), (22050664.0, 0), (2.5e-4, 5), (1e-7, 7), (-0.25, 2)]
)
def test_the_decimals_of_a_printed_number_are_those_of_its_shortest_text(value, decimals):
    assert decimals_of(value) == decimals


def test_a_deterministic_fact_is_exact_when_it_rounds_to_the_printed_digits(verdict):
    assert verdict([0.74949], printed=0.749, digits=3, exact=True) == "exact"
    assert verdict([0.7496], printed=0.749, digits=3, exact=True) == "outside"


@pytest.mark.parametrize("printed", [0.2, 0.3])
def test_a_half_may_be_rounded_either_way(verdict, printed):
    assert verdict([0.25], printed=printed, digits=1, exact=True) == "exact"


def test_a_difference_that_seeds_explain_is_within_and_a_larger_one_outside(verdict):
    seeds = [93.0, 93.5, 94.0]
    assert verdict(seeds, printed=94.9) == "within"
    assert verdict(seeds, printed=96.1) == "outside"


def test_one_run_may_differ_by_one_printed_unit_only(verdict):
    assert verdict([93.4], printed=93.5) == "within"
    assert verdict([93.3], printed=93.5) == "outside"


@pytest.mark.parametrize("exact", [True, False])
def test_a_stand_in_is_never_a_match(verdict, exact):
    assert verdict([93.5], printed=93.5, comparable=False, exact=exact) == "not_comparable"


def test_a_printed_word_is_not_compared_with_a_number(verdict):
    assert verdict([1.0], printed="Inconsistent") == "not_comparable"


def test_a_cell_that_the_paper_does_not_print_is_unprinted(verdict):
    assert verdict([1.0]) == "unprinted"


@pytest.mark.parametrize("printed", [None, 93.5, "Inconsistent"])
def test_a_cell_without_a_measurement_or_with_a_null_was_not_run(verdict, printed):
    assert verdict([], printed=printed) == "not_run"
    assert verdict([None], printed=printed) == "not_run"
    assert verdict([math.nan], printed=printed) == "not_run"
    assert verdict([], printed=printed, records=()) == "not_run"


@pytest.mark.parametrize("printed", [None, 93.5])
def test_what_a_measure_refuses_is_refused_in_its_words(build, printed):
    table = build.table(build.cell(printed=printed), build.cell("B"))
    seed = {"A/x": None, "A/x" + REFUSED: "it has no positions", "B/x": 1.0}
    refused, other = compare(table, build.measured(seed, seed)).to_dict("records")
    assert (refused["verdict"], refused["explained_by"]) == ("refused", "it has no positions")
    assert (other["verdict"], other["explained_by"]) == ("unprinted", "")
    part = compare(table, build.measured(seed, {"A/x": 2.0, "B/x": 1.0})).iloc[0]
    assert (part["measured"], part["n_seeds"], part["explained_by"]) == (2.0, 1, "")


def test_a_null_under_one_seed_leaves_the_others(build):
    measured = build.measured({"A/x": 1.0}, {"A/x": None}, {"A/x": 3.0})
    cell = compare(build.table(build.cell()), measured).iloc[0]
    assert (cell["measured"], cell["n_seeds"]) == (2.0, 2)


def test_every_row_says_what_was_measured_where(build):
    artifact = build.table(build.cell(printed=90.0, std="0.2"), build.cell("B", printed=80.0))
    cells = compare(artifact, build.measured({"A/x": 91.0, "B/x": None}))
    assert list(cells.columns) == COLUMNS
    assert cells["row"].tolist() == ["A", "B"]
    assert cells.iloc[0].drop(["std", "ci_low", "ci_high"]).to_dict() == {
        "paper": "paper",
        "artifact": "table1",
        "row": "A",
        "column": "x",
        "metric": "top-1 accuracy",
        "unit": "%",
        "measured": 91.0,
        "n_seeds": 1,
        "paper_value": 90.0,
        "paper_std": 0.2,
        "difference": 1.0,
        "verdict": "outside",
        "explained_by": "",
        "scale": "laptop",
        "dataset": "digits",
        "device": "cpu: a processor, 1 thread",
        "recipe_hash": "abcd1234",
        "commit": "0123456789abcdef",
        "measurement": "fedcba9876543210",
        "source": "Table 1, p. 2",
        "by_seed": "91.0",
        "drawn_by_seed": "",
        "by_image": "",
    }


def explained(build, base, **variants):
    """The cells of a printed 10.4 and of variants of it, each a fact of one digit."""
    cells = [build.cell("A", "x", printed=10.4, exact=True)]
    cells += [
        build.cell(row, column, exact=True, variant_of=("A", "x"))
        for row, column in (name.split("_") for name in variants)
    ]
    values = {"A/x": base} | {name.replace("_", "/"): value for name, value in variants.items()}
    found = compare(build.table(*cells), build.measured(values))
    return found[["verdict", "explained_by"]].to_numpy().tolist()


def test_a_printed_number_has_one_verdict_and_a_variant_may_explain_it(build):
    assert explained(build, 10.2, B_x=10.41) == [["explained", "B"], ["unprinted", ""]]
    assert explained(build, 10.2, A_y=10.41)[0] == ["explained", "y"]
    assert explained(build, 10.2, B_y=10.41)[0] == ["explained", "B; y"]
    assert explained(build, 10.2, B_x=10.5) == [["outside", ""], ["unprinted", ""]]
    assert explained(build, 10.4, B_x=10.41) == [["exact", ""], ["unprinted", ""]]
    assert explained(build, 10.2, B_x=None)[0] == ["outside", ""]


def test_an_unknown_key_is_refused_with_the_closest_one(build):
    artifact = build.table(build.cell(key="top1"))
    expected = r"paper table1, cell \(A, x\): .*'accuracy' has no value 'top1'.*'top-1'"
    with pytest.raises(VitrailError, match=expected):
        compare(artifact, build.measured({"top-1": 1.0, "loss": 2.0}))


def test_a_cell_cannot_show_an_array(build):
    with pytest.raises(VitrailError, match=r"'A/x' of the measurement 'accuracy' is an array"):
        compare(build.table(build.cell()), build.measured({"A/x": [1.0]}))


def test_a_cell_cannot_show_a_text(build):
    with pytest.raises(VitrailError, match=r"'A/x' of the measurement 'accuracy' is of type str;"):
        compare(build.table(build.cell()), build.measured({"A/x": "AAEC"}))


def test_cells_come_back_from_their_file_as_they_were(build, tmp_path):
    artifact = build.table(build.cell("none", printed="NA"), build.cell("B", printed=80.0))
    cells = compare(artifact, build.measured({"none/x": 91.0, "B/x": None}))
    path = tmp_path / "table1.csv"
    cells.to_csv(path, index=False)
    back = read_cells(path)
    assert back["row"].tolist() == ["none", "B"]
    assert back["paper_value"].tolist() == ["NA", "80.0"]
    assert back["measured"].iloc[0] == 91.0
    assert math.isnan(back["measured"].iloc[1])
    assert back["n_seeds"].tolist() == [1, 0]


def test_a_file_that_holds_no_cells_is_refused(tmp_path):
    path = tmp_path / "table1.csv"
    with pytest.raises(VitrailError, match="cannot read"):
        read_cells(path)
    path.write_text("row,column\nA,x\n")
    with pytest.raises(VitrailError, match="not the columns"):
        read_cells(path)


@pytest.fixture
def taken(build, tmp_path):
    """The record of a measurement."""
    node = build.measurement(tmp_path / "measurements" / "accuracy.json")
    values = {"top1": 1.0}
    return complete(node, {"values": values, "code": node.code, "provenance": {"device": "cpu"}})


def test_a_measurement_is_read_with_its_values_and_its_seed(taken):
    path = taken.node.output
    assert read_measurement(path) == {
        **taken.outcome,
        "name": "accuracy",
        "seed": 3,
        "recipe_hash": None,
        "dataset": None,
        "sha256": sha256(path),
    }


def test_a_measurement_that_was_not_taken_is_none(tmp_path):
    assert read_measurement(tmp_path / "accuracy.json") is None


def test_a_damaged_measurement_is_named(taken):
    path = taken.node.output
    path.write_text(path.read_text()[:-3])
    with pytest.raises(VitrailError, match=r"accuracy\.json.*--forcerun"):
        read_measurement(path)


def without(name):
    return lambda content: {key: value for key, value in content.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: {},
        lambda content: [content],
        without("node"),
        without("values"),
        lambda content: {**content, "values": [1.0]},
        lambda content: {**content, "code": None},
    ],
    ids=["nothing", "a list", "no node", "no values", "a list of values", "no code"],
)
def test_a_file_that_is_no_measurement_is_refused(taken, change):
    path = taken.node.output
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(VitrailError, match=r"accuracy\.json.*--forcerun"):
        read_measurement(path)


def test_the_record_of_another_kind_is_no_measurement(build, tmp_path):
    output = tmp_path / "table1.json"
    common = {"scale": "laptop", "inputs": (), "code": "0123456789abcdef", "commit": None}
    node = RenderingNode(artifact=build.table(build.cell()), output=output, **common)
    complete(node, {"inputs": {}, "outputs": {}})
    with pytest.raises(VitrailError, match=r"table1\.json is no record of a measurement"):
        read_measurement(node.output)
