"""Claims are judged on measured numbers: held, contrary, undecided, or not run."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from replication.claims.comparison import compare, read_cells
from replication.claims.judge import (
    Side,
    adjusted,
    evaluate,
    share_of_orders,
    slack_of,
    told_relation,
    uncertainty,
)
from replication.config.claims import Claim
from replication.config.tuning import TuningResult
from replication.measures.packed_scores import pack, unpack
from vitrail.errors import VitrailError

CLAIM = {
    "id": "better",
    "kind": "exact",
    "statement": "Ours is better.",
    "source": "Sec. 4",
    "left": {"artifact": "table1", "row": "A", "column": "ours"},
    "relation": "above",
    "right": {"artifact": "table1", "row": "A", "column": "base"},
}


@pytest.fixture
def table(build):
    """A table with the columns ours and base; a row is {label: (ours, base)}, values over seeds."""

    def make(**rows):
        cells = [build.cell(row, column) for row in rows for column in ("ours", "base")]
        seeds = zip(*(values for pair in rows.values() for values in pair), strict=True)
        keys = [cell.key for cell in cells]
        measured = build.measured(*(dict(zip(keys, values, strict=True)) for values in seeds))
        return {"table1": compare(build.table(*cells), measured)}

    return make


def half_width(left, right):
    known = uncertainty(left, right)
    return known and known.half_width


def judge(tables, artifacts=None, **changes):
    return evaluate([Claim.model_validate({**CLAIM, **changes})], tables, artifacts or {}).iloc[0]


@pytest.mark.parametrize(
    ("relation", "margin", "status"),
    [
        ("above", 0.0, "held"),
        ("above", 1.9, "held"),
        ("above", 2.0, "contrary"),
        ("below", 0.0, "contrary"),
        ("equal", 1.9, "contrary"),
        ("equal", 2.0, "held"),
    ],
)
def test_a_relation_holds_beyond_its_margin(table, relation, margin, status):
    result = judge(table(A=([92.0], [90.0])), relation=relation, margin=margin)
    assert result["status"] == status
    assert (result["left"], result["right"], result["margin"]) == (92.0, 90.0, margin)


def test_below_is_above_turned_round(table):
    assert judge(table(A=([1.0], [2.0])), relation="below")["status"] == "held"


@pytest.mark.parametrize(
    ("ours", "status"), [(95.0, "held"), (90.0, "held"), (89.5, "held"), (89.4, "contrary")]
)
def test_at_least_is_above_or_lower_by_up_to_the_margin(table, ours, status):
    tables = table(A=([ours], [90.0]))
    assert judge(tables, relation="at least", margin=0.5)["status"] == status


@pytest.mark.parametrize("relation", ["above", "below", "equal", "at least"])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_words_of_a_relation_name_the_difference_at_which_it_begins_to_fail(relation, margin):
    end = told_relation(relation, margin).split()[-1]
    assert slack_of(relation, float(end), margin) == 0
    assert end != "-0"


def test_a_number_may_stand_on_the_right(table):
    tables = table(A=([100.0, 100.0], [1.0, 1.0]))
    assert judge(tables, relation="equal", right=100)["status"] == "held"
    assert judge(tables, relation="equal", right=99.9)["status"] == "contrary"


@pytest.mark.parametrize(
    ("ours", "relation", "status"),
    [
        ([92.0, 92.1], "above", "held"),
        ([92.0, 92.1], "at least", "held"),
        ([88.0, 88.1], "above", "contrary"),
        ([88.0, 88.1], "at least", "contrary"),
        ([92.0, 96.0], "above", "undecided"),
        ([88.0, 84.0], "above", "undecided"),
        ([90.1, 90.0], "at least", "undecided"),
        ([90.0, 90.1], "equal", "undecided"),
        ([92.0, 92.1], "equal", "contrary"),
    ],
)
def test_what_lies_within_the_spread_over_seeds_is_undecided(table, ours, relation, status):
    result = judge(table(A=(ours, [90.0, 90.1])), relation=relation)
    assert result["status"] == status


def test_the_detail_gives_the_interval_of_the_difference(table):
    sure = judge(table(A=([92.0, 92.1], [90.0, 90.1])))
    assert sure["detail"] == (
        "top-1 accuracy: ours 92.05 %, base 90.05 %; difference +2.00 ± 0.30 points "
        "(95 % over seeds, 2 seeds)."
    )


def test_a_constant_has_no_spread_and_a_single_run_that_of_the_other_side():
    several, one = Side(92.0, 0.5, 4), Side(90.0, math.nan, 1)
    t = scipy.stats.t.ppf(0.975, 3)
    assert half_width(several, Side(90.0, 0.0, 1)) == pytest.approx(t * 0.5 / 2)
    assert half_width(several, one) == pytest.approx(t * 0.5 * math.sqrt(1 + 1 / 4))
    assert half_width(one, several) == half_width(several, one)
    assert half_width(one, one) is None


def test_claims_on_the_same_numbers_have_the_same_evidence_and_say_if_a_stand_in_gave_them(
    build, table
):
    cells = [build.cell(row, column) for row in "AB" for column in ("ours", "base")]
    cells[2] = build.cell("B", "ours", comparable=False)
    artifacts = {"table1": build.table(*cells)}
    tables = table(A=([92.0], [90.0]), B=([92.0], [90.0]))
    first, other = judge(tables, artifacts), judge(tables, artifacts, id="again")
    assert first["evidence"] == other["evidence"]
    turned = {"left": CLAIM["right"], "right": CLAIM["left"], "relation": "below"}
    assert first["evidence"] == judge(tables, artifacts, **turned)["evidence"]
    there = {side: {**CLAIM[side], "row": "B"} for side in ("left", "right")}
    on_b = judge(tables, artifacts, **there)
    assert (first["stand_in"], on_b["stand_in"]) == (False, True)


def test_evidence_is_the_recipe_the_images_and_the_quantity_or_what_an_untrained_one_is_called(
    build, table
):
    cells = [build.cell(row, column) for row in "AB" for column in ("ours", "base")]
    artifacts = {"table1": build.table(*cells)}
    there = {side: {**CLAIM[side], "row": "B"} for side in ("left", "right")}

    def evidence(changes, rows, **claim):
        tables = table(**rows)
        frame = tables["table1"].assign(measurement="digest", **changes)
        return judge({"table1": frame}, artifacts, **claim)["evidence"]

    same = {"A": ([92.0], [90.0]), "B": ([92.0], [90.0])}
    assert evidence({}, same) == evidence({}, same, **there)  # one recipe, shown in two rows
    assert evidence({}, same) != evidence({"dataset": "others"}, same)
    assert evidence({}, same) != evidence({"metric": "another"}, same)
    assert evidence({}, same) != evidence({}, {**same, "A": ([92.5], [90.0])})
    untrained = {"recipe_hash": None}
    assert evidence(untrained, same) != evidence(untrained, same, **there)


def test_every_row_must_hold_and_the_one_that_decides_is_shown(table):
    every = {
        "left": {**CLAIM["left"], "row": "*"},
        "right": {**CLAIM["right"], "row": "*"},
    }
    held = judge(table(A=([92.0], [90.0]), B=([91.0], [90.0])), **every)
    assert (held["status"], held["left"]) == ("held", 91.0)
    assert held["detail"].startswith(
        "Of 2 rows, B decides: top-1 accuracy: ours 91.0 %, base 90.0 %"
    )
    failed = judge(table(A=([92.0], [90.0]), B=([89.0], [90.0])), **every)
    assert (failed["status"], failed["left"]) == ("contrary", 89.0)


def test_every_row_is_every_row_that_both_sides_have(table):
    tables = table(A=([92.0], [90.0]), B=([91.0], [None]))
    every = {"left": {**CLAIM["left"], "row": "*"}}
    result = judge(tables, **every, right={**CLAIM["right"], "row": "*"})
    assert result["status"] == "held"
    assert result["detail"].endswith("Not run: B.")
    assert judge(tables, **every)["left"] == 91.0


def test_a_row_that_only_one_artifact_has_is_left_out(table):
    tables = table(A=([92.0], [90.0]), B=([80.0], [90.0]))
    tables["table2"] = table(A=([92.0], [90.0]))["table1"]
    every = {
        "left": {**CLAIM["left"], "row": "*"},
        "right": {**CLAIM["right"], "row": "*", "artifact": "table2"},
    }
    result = judge(tables, **every)
    assert result["status"] == "held"
    assert "Of 1 rows, A decides: " in result["detail"]
    assert "table1 · ours 92.0 %, table2 · base 90.0 %; difference +2.00 points" in result["detail"]


def test_the_detail_names_what_tells_the_two_sides_apart(build):
    cells = [build.cell(row, column) for row in ("A", "12") for column in ("ours", "base")]
    measured = build.measured({cell.key: 90.0 + index for index, cell in enumerate(cells)})
    tables = {"table1": compare(build.table(*cells), measured)}

    def told(left, right):
        sides = {
            name: {"artifact": "table1", "row": row, "column": column}
            for name, (row, column) in {"left": left, "right": right}.items()
        }
        result = judge(tables, **sides)
        return result["left_name"], result["right_name"]

    assert told(("A", "ours"), ("A", "base")) == ("ours", "base")
    assert told(("A", "ours"), ("12", "ours")) == ("A", "row 12")
    assert told(("A", "ours"), ("12", "base")) == ("A · ours", "row 12 · base")
    against = judge(tables, right=90.5)
    assert (against["left_name"], against["right_name"]) == ("A · ours", "")
    assert "A · ours 90.0 %, compared with 90.5; difference -0.500 points" in against["detail"]


def test_a_claim_on_a_cell_that_was_not_measured_is_not_run(table):
    result = judge(table(A=([92.0], [None])))
    assert (result["status"], result["detail"]) == ("not run", "Not run: A.")
    assert pd.isna(result["left"])
    assert judge({})["status"] == "not run"


def paired(build, ours, base, **fields):
    """The table of row A from scores (seeds, images) of two cells."""
    cells = [build.cell("A", column) for column in ("ours", "base")]
    seeds = [
        {
            key: value
            for cell, scores in zip(cells, pair, strict=True)
            for key, value in (
                (cell.key, 100 * sum(scores) / len(scores)),
                (f"{cell.key} by image", pack(scores)),
            )
        }
        for pair in zip(ours, base, strict=True)
    ]
    return {"table1": compare(build.table(*cells), build.measured(*seeds))}


def test_the_interval_of_a_pair_is_over_seeds_and_over_images(build):
    random = np.random.RandomState(0)
    ours, base = random.rand(2, 3, 50) < np.array([0.9, 0.6])[:, None, None]
    left, right = (Side(0.0, 1.0, 3, scores=scores.astype(np.int8)) for scores in (ours, base))
    seeds = [100 * (a.mean() - b.mean()) for a, b in zip(ours, base, strict=True)]
    images = [100 * (a.mean() - b.mean()) for a, b in zip(ours.T, base.T, strict=True)]
    parts = [np.var(of_side, ddof=1) / len(of_side) for of_side in (seeds, images)]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 49)
    expected = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts))
    assert half_width(left, right) == pytest.approx(expected)
    result = judge(paired(build, ours, base))
    assert f"± {expected:.2g} points (95 % over seeds and images, 3 seeds)" in result["detail"]
    assert result["status"] == "held"


def test_a_single_run_is_judged_by_its_images(build):
    many, few = [[1] * 60 + [0] * 40], [[1] * 58 + [0] * 42]
    assert judge(paired(build, many, few))["status"] == "undecided"
    clear = judge(paired(build, many, [[1] * 20 + [0] * 80]))
    assert clear["status"] == "held"
    assert "(95 % over images, 1 seed)" in clear["detail"]
    assert judge(paired(build, many, few), right=50)["status"] == "held"
    assert judge(paired(build, many, many))["status"] == "undecided"


@pytest.mark.parametrize("kind", ["exact", "construction", "timing", "empirical"])
def test_without_an_interval_only_what_cannot_vary_is_decided(table, kind):
    tables = table(A=([92.0], [90.0]))
    tables["table1"]["device"] = "cuda: NVIDIA A100"
    result = judge(tables, kind=kind)
    assert result["status"] == ("held" if kind in ("exact", "construction") else "undecided")


@pytest.mark.parametrize(
    ("device", "status"), [("cpu: AMD EPYC, 1 thread", "not tested"), ("cuda: NVIDIA A100", "held")]
)
def test_times_of_a_cpu_test_no_claim(table, device, status):
    tables = table(A=([92.0, 92.1], [90.0, 90.1]))
    tables["table1"]["device"] = device
    assert judge(tables, kind="timing")["status"] == status
    assert judge(tables, kind="empirical")["status"] == "held"


def test_of_many_empirical_claims_those_that_chance_decides_are_undecided(table):
    """Twenty effects that are not there, of which one is beyond its interval."""
    rows = {f"R{number}": ([90.0, 90.2], [90.0, 90.1]) for number in range(19)}
    tables = table(lucky=([90.9, 91.1], [90.0, 90.1]), **rows)
    claims = [
        Claim.model_validate(
            {
                **CLAIM,
                "id": row,
                "kind": "empirical",
                "left": {**CLAIM["left"], "row": row},
                "right": {**CLAIM["right"], "row": row},
            }
        )
        for row in ("lucky", *rows)
    ]
    alone = evaluate(claims[:1], tables, {}).iloc[0]
    assert (alone["status"], alone["q"]) == ("held", alone["p"])
    among_many = evaluate(claims, tables, {}).set_index("id").loc["lucky"]
    assert (among_many["p"], among_many["status"]) == (alone["p"], "undecided")
    assert among_many["q"] > 0.05
    assert "q = " in among_many["detail"]


def test_q_values_are_those_of_scipy():
    p = pd.Series(np.random.RandomState(0).rand(30) ** 3)
    expected = scipy.stats.false_discovery_control(p)
    assert adjusted(p)[p.index].to_numpy() == pytest.approx(expected)


def test_a_p_value_below_five_percent_is_a_difference_beyond_its_interval():
    known = uncertainty(Side(92.0, 0.5, 4), Side(90.0, 0.8, 3))
    assert known.p_value(known.half_width) == pytest.approx(0.05)
    left, right = np.array([91.5, 92.0, 92.9]), np.array([90.0, 90.1, 91.2, 89.9])
    sides = (
        Side(accuracies.mean(), accuracies.std(ddof=1), len(accuracies))
        for accuracies in (left, right)
    )
    expected = scipy.stats.ttest_ind(left, right, equal_var=False).pvalue
    assert uncertainty(*sides).p_value(left.mean() - right.mean()) == pytest.approx(expected)


def test_only_scores_of_the_same_images_are_paired():
    scores = np.zeros((2, 30), np.int8)
    left = Side(92.0, 0.5, 2, scores, "digits")
    for other in (
        Side(90.0, 0.5, 2, scores, "scenes"),
        Side(90.0, 0.5, 2, scores[:, :20], "digits"),
        Side(90.0, 0.5, 2, None, "digits"),
    ):
        assert half_width(left, other) == pytest.approx(scipy.stats.t.ppf(0.975, 2) * 0.5)
    assert half_width(left, Side(90.0, 0.5, 2, scores, "digits")) == 0


def test_scores_survive_the_csv_and_damaged_ones_are_refused(build, tmp_path):
    tables = paired(build, [[1, 0, 1, 1], [1, 1, 1, 0]], [[0, 0, 1, 0], [1, 0, 0, 0]])
    path = tmp_path / "table1.csv"
    tables["table1"].to_csv(path, index=False)
    assert judge({"table1": read_cells(path)})["detail"] == judge(tables)["detail"]
    assert unpack(" ".join([pack([1, 0, -1])] * 2)).tolist() == [[1, 0, -1]] * 2
    for damaged in ("1,0", pack([1, 0])[:-4], f"{pack([1, 0])} {pack([1])}"):
        with pytest.raises(VitrailError, match="scores by image are damaged"):
            unpack(damaged)


def drawn_by_seed(tables):
    return {"table1": tables["table1"].assign(drawn_by_seed="yes")}


def test_where_each_seed_draws_its_images_cells_are_compared_seed_by_seed(table):
    ours, base = [92.0, 84.0, 88.5], [90.5, 82.0, 86.5]  # worlds differ more than the models
    tables = table(A=(ours, base))
    assert judge(tables, kind="empirical")["status"] == "undecided"
    result = judge(drawn_by_seed(tables), kind="empirical")
    assert result["status"] == "held"
    expected = scipy.stats.ttest_rel(ours, base)
    assert result["p"] == pytest.approx(expected.pvalue)
    half = np.ptp(expected.confidence_interval(0.95)) / 2
    assert f"± {half:.2g} points (95 % over seeds, " in result["detail"]


def test_one_seed_that_draws_its_images_decides_nothing(build):
    tables = paired(build, [[1] * 90 + [0] * 10], [[1] * 20 + [0] * 80])
    assert judge(tables, kind="empirical")["status"] == "held"
    result = judge(drawn_by_seed(tables), kind="empirical")
    assert result["status"] == "undecided"
    assert "±" not in result["detail"]
    assert judge(drawn_by_seed(tables), kind="empirical", right=50)["status"] == "undecided"


def test_seed_by_seed_a_constant_is_the_same_and_other_numbers_of_seeds_are_not_paired():
    left = Side(91.0, 1.0, 3, by_seed=(90.0, 91.0, 92.0))
    assert half_width(left, Side(90.0, 0.0, 1)) == pytest.approx(
        scipy.stats.t.ppf(0.975, 2) / math.sqrt(3)
    )
    fewer = Side(90.0, 1.0, 2, by_seed=(89.0, 91.0), recipe_hash="abcd1234")
    assert half_width(left, fewer) == half_width(left._replace(by_seed=()), fewer)


RESULT = TuningResult(
    searched="a",
    dataset="digits",
    rates={1e-3: 80.0},
    once=80.0,
    twice=80.0,
    baselines={},
    chance=10.0,
    images=100,
)


def test_a_closed_gate_leaves_an_empirical_claim_untested_and_no_other(table):
    tables = drawn_by_seed(table(A=([92.0, 92.1, 92.2], [90.0, 90.2, 90.1])))
    trained, short = {"abcd1234": RESULT}, {"abcd1234": RESULT.model_copy(update={"twice": 85})}

    def status(results, kind="empirical"):
        claim = Claim.model_validate({**CLAIM, "kind": kind})
        return evaluate([claim], tables, {}, results).iloc[0]

    assert status(None)["status"] == status(trained)["status"] == "held"
    assert status(short)["status"] == "not tested"
    assert "training is short: a gains 5.0 points" in status(short)["detail"]
    assert status({})["status"] == "not tested"
    assert status(short, kind="construction")["status"] == "held"
    few = {"kind": "empirical", "untested": "its windows are too small"}
    claim = Claim.model_validate({**CLAIM, **few})
    untested = evaluate([claim], tables, {}, trained).iloc[0]
    assert untested["status"] == "not tested"
    assert untested["detail"].endswith("Not tested: its windows are too small.")


def test_no_gate_is_closed_by_a_model_whose_number_is_the_same_for_any_weights(table):
    """Such as the consistency of an equivariant model: training it for longer changes nothing."""
    tables = drawn_by_seed(table(A=([100.0, 100.0, 100.0], [90.0, 90.2, 90.1])))
    cells = tables["table1"]
    cells.loc[cells["column"] == "base", "recipe_hash"] = "base"
    short = RESULT.model_copy(update={"twice": 85})
    empirical = Claim.model_validate({**CLAIM, "kind": "empirical"})
    fixing = {**CLAIM, "id": "all", "kind": "construction", "relation": "equal", "right": 100}

    def status(ours, base, *others):
        claims = [empirical, *(Claim.model_validate(other) for other in others)]
        results = {"abcd1234": ours, "base": base}
        return evaluate(claims, tables, {}, results).iloc[0]["status"]

    assert status(short, RESULT) == "not tested"
    assert status(short, RESULT, fixing) == "held"
    assert status(RESULT, short, fixing) == "not tested"
    assert status(short, RESULT, {**fixing, "kind": "empirical"}) == "not tested"
    assert status(short, RESULT, {**fixing, "relation": "at least"}) == "not tested"


def test_the_detail_shows_the_held_out_difference_at_each_rate_of_two_searched_models(table):
    tables = drawn_by_seed(table(A=([92.0, 92.1, 92.2], [90.0, 90.2, 90.1])))
    cells = tables["table1"]
    cells.loc[cells["column"] == "base", "recipe_hash"] = "base"
    rates = ({1e-3: 80.0, 1e-2: 78.0}, {1e-3: 79.5, 1e-2: 79.0})
    ours, base = (RESULT.model_copy(update={"rates": own}) for own in rates)
    claim = Claim.model_validate({**CLAIM, "kind": "empirical"})

    def detail(searched, dataset="digits"):
        theirs = base.model_copy(update={"searched": searched, "dataset": dataset})
        results = {"abcd1234": ours, "base": theirs}
        return evaluate([claim], tables, {}, results).iloc[0]["detail"]

    assert "a less b at equal rates, on held-out images: +0.5 at 0.001, -1.0" in detail("b")
    assert "equal rates" not in detail("a")  # one search, whose rate both take
    assert "equal rates" not in detail("b", dataset="others")  # whose scores are not comparable


def test_what_is_not_tested_is_not_among_the_comparisons_that_chance_decides(table):
    tables = drawn_by_seed(
        table(
            A=([92.0, 92.1, 92.2], [90.0, 90.2, 90.1]), B=([91.0, 92.1, 92.2], [90.0, 91.2, 91.1])
        )
    )
    tables["table1"].loc[tables["table1"]["row"] == "B", "recipe_hash"] = "unsearched"
    operand = {side: {**CLAIM[side], "row": "B"} for side in ("left", "right")}
    claims = [{**CLAIM, "kind": "empirical"}, {**CLAIM, "kind": "empirical", "id": "b", **operand}]
    judged = evaluate(
        [Claim.model_validate(claim) for claim in claims], tables, {}, {"abcd1234": RESULT}
    )
    assert judged["status"].tolist() == ["held", "not tested"]
    assert judged.loc[0, "q"] == judged.loc[0, "p"]  # the only comparison
    assert math.isnan(judged.loc[1, "q"])


@pytest.mark.parametrize(
    ("registered", "started", "expected"),
    [
        (None, {}, ""),
        ({}, {"abcd1234": "2026-02-01"}, "exploratory"),
        ({"better": "2026-01-01"}, {"abcd1234": "2026-02-01"}, "confirmatory"),
        ({"better": "2026-03-01"}, {"abcd1234": "2026-02-01"}, "exploratory"),
        ({"better": "2026-01-01"}, {}, "exploratory"),  # nothing tells when it was trained
    ],
)
def test_a_claim_is_confirmatory_if_it_was_registered_before_its_trainings_began(
    table, registered, started, expected
):
    claim = Claim.model_validate({**CLAIM, "kind": "empirical"})
    judged = evaluate([claim], table(A=([92.0], [90.0])), {}, None, registered, started)
    assert judged.loc[0, "registration"] == expected
    exact = evaluate([Claim.model_validate(CLAIM)], table(A=([92.0], [90.0])), {}, None, {}, {})
    assert exact.loc[0, "registration"] == ""


@pytest.mark.parametrize(
    ("lost", "relation", "status"),
    [
        ([[0, 0], [3, 4], [9, 8], [20, 30]], "above", "held"),  # 1.0 under both seeds
        ([[0, 0], [3, 4], [9, 8], [20, 30]], "below", "contrary"),
        ([[0, 30], [3, 8], [9, 4], [20, 0]], "above", "undecided"),  # 1 and -1
    ],
)
def test_a_rank_correlation_is_taken_under_each_seed_over_what_the_star_stands_for(
    build, lost, relation, status
):
    texts = ["low", "lower", "high", "highest"]
    values = {f"{text}, with": ([rank, rank], [90, 90]) for rank, text in enumerate(texts)}
    values |= {
        f"{text}, without": ([0, 0], [90 - loss for loss in losses])
        for text, losses in zip(texts, lost, strict=True)
    }
    cells = [build.cell(row, column) for row in values for column in ("bias", "top1")]
    seeds = zip(*(numbers for pair in values.values() for numbers in pair), strict=True)
    keys = [cell.key for cell in cells]
    measured = build.measured(*(dict(zip(keys, numbers, strict=True)) for numbers in seeds))
    operand = {"artifact": "table1", "row": "*, with", "column": "bias"}
    result = judge(
        {"table1": compare(build.table(*cells), measured)},
        kind="empirical",
        left=operand,
        correlates_with=[
            {**operand, "column": "top1"},
            {**operand, "row": "*, without", "column": "top1"},
        ],
        relation=relation,
        right=0,
    )
    expected = [scipy.stats.spearmanr(range(4), seed).statistic for seed in zip(*lost, strict=True)]
    assert result["left"] == pytest.approx(np.mean(expected))
    assert (result["status"], result["seeds"]) == (status, 2)
    share = {1: "4.2 %", -1: "100.0 %"}[round(min(expected))]  # 1 of 24, and all
    assert (f"{share} of all orders of 4 points" in result["detail"]) == (relation == "above")


@pytest.mark.parametrize("points", [3, 4, 5])
def test_orders_with_a_rank_correlation_are_counted(points):
    orders = itertools.permutations(range(points))
    found = [scipy.stats.spearmanr(range(points), order).statistic for order in orders]
    for least in (-1.0, -0.2, 0.0, 0.35, 0.5, 0.9, 1.0):
        expected = np.mean(np.array(found) >= least - 1e-9)
        assert share_of_orders(points, least) == pytest.approx(expected)


def test_a_rank_correlation_of_two_is_not_run(table):
    tables = table(A=([92.0, 92.1], [90.0, 90.1]), B=([92.0, 92.1], [90.0, 90.1]))
    operand = {"artifact": "table1", "row": "*", "column": "ours"}
    other = {**operand, "column": "base"}
    result = judge(tables, left=operand, correlates_with=[operand, other], right=0)
    assert result["status"] == "not run"
