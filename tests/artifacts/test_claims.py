"""Claims are tested on measured numbers: held, failed, or not testable."""

import pandas as pd
import pytest

from vitrine.artifacts.claims import (
    Claim,
    Place,
    evaluate,
    read_claims,
    refuse_unknown,
)
from vitrine.artifacts.comparison import compare
from vitrine.errors import VitrineError

CLAIM = {
    "id": "better",
    "statement": "Ours is better.",
    "source": "Sec. 4",
    "left": {"artifact": "table1", "row": "A", "column": "ours"},
    "relation": "above",
    "right": {"artifact": "table1", "row": "A", "column": "base"},
    "scales": ["laptop"],
}


@pytest.fixture
def table(build):
    """A table with the columns ours and base; a row is {label: (ours, base)}, values over seeds."""

    def make(**rows):
        cells = [build.cell(row, column) for row in rows for column in ("ours", "base")]
        seeds = zip(*(values for pair in rows.values() for values in pair), strict=True)
        keys = [cell.key for cell in cells]
        measured = build.measured(*(dict(zip(keys, values, strict=True)) for values in seeds))
        return {"table1": compare(build.table(*cells), measured, "laptop")}

    return make


def judge(tables, scale="laptop", **changes):
    return evaluate([Claim.model_validate({**CLAIM, **changes})], tables, scale).iloc[0]


@pytest.mark.parametrize(
    ("relation", "margin", "status"),
    [
        ("above", 0.0, "held"),
        ("above", 1.9, "held"),
        ("above", 2.0, "failed"),
        ("below", 0.0, "failed"),
        ("equal", 1.9, "failed"),
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
    ("ours", "status"), [(95.0, "held"), (90.0, "held"), (89.5, "held"), (89.4, "failed")]
)
def test_at_least_is_above_or_lower_by_up_to_the_margin(table, ours, status):
    tables = table(A=([ours], [90.0]))
    assert judge(tables, relation="at least", margin=0.5)["status"] == status


def test_a_number_may_stand_on_the_right(table):
    tables = table(A=([100.0, 100.0], [1.0, 1.0]))
    assert judge(tables, relation="equal", right=100)["status"] == "held"
    assert judge(tables, relation="equal", right=99.9)["status"] == "failed"


def test_the_detail_says_how_sure_the_seeds_make_it(table):
    sure = judge(table(A=([92.0, 92.1], [90.0, 90.1])))
    unsure = judge(table(A=([92.0, 96.0], [90.0, 91.0])))
    assert sure["detail"] == "92.05 against 90.05, a difference of +2 ± 0.3 (95 % over seeds)."
    assert unsure["status"] == "held"
    assert unsure["detail"].endswith("less than the spread over seeds.")


def test_every_row_must_hold_and_the_closest_is_shown(table):
    every = {
        "left": {**CLAIM["left"], "row": "*"},
        "right": {**CLAIM["right"], "row": "*"},
    }
    held = judge(table(A=([92.0], [90.0]), B=([91.0], [90.0])), **every)
    assert (held["status"], held["left"]) == ("held", 91.0)
    assert held["detail"].startswith("Closest of 2 rows, B: 91 against 90")
    failed = judge(table(A=([92.0], [90.0]), B=([89.0], [90.0])), **every)
    assert (failed["status"], failed["left"]) == ("failed", 89.0)


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
    assert result["detail"] == "Closest of 1 rows, A: 92 against 90, a difference of +2."


def test_a_cell_that_was_not_run_is_not_testable(table):
    result = judge(table(A=([92.0], [None])))
    assert result["status"] == "not testable"
    assert result["detail"] == "Not run: A."
    assert pd.isna(result["left"])


def test_a_scale_that_is_not_listed_is_not_testable_whatever_its_tables():
    result = judge({}, scale="smoke")
    assert result["status"] == "not testable"
    assert result["detail"] == "Testable at laptop, not at smoke."


def test_a_claim_on_an_unknown_artifact_is_refused(table):
    message = "claim 'better': no artifact of this scale is called 'tabel1'.*'table1'"
    with pytest.raises(VitrineError, match=message):
        judge(table(A=([1.0], [2.0])), left={**CLAIM["left"], "artifact": "tabel1"})


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"row": "AA"}, "table1 has no row 'AA'; did you mean 'A'"),
        ({"column": "our"}, "table1 has no column 'our'.*'ours'"),
        ({"row": "*", "column": "our"}, "table1 has no column 'our'.*'ours'"),
    ],
)
def test_a_claim_on_an_unknown_cell_is_refused_before_anything_is_built(
    build, side, place, message
):
    artifacts = {"table1": build.table(build.cell("A", "ours"), build.cell("A", "base"))}
    claim = Claim.model_validate({**CLAIM, side: {**CLAIM[side], **place}})
    with pytest.raises(VitrineError, match=f"claim 'better': {message}"):
        refuse_unknown([claim], artifacts, ["laptop"])


def test_cells_of_an_artifact_that_this_scale_has_not_are_left_alone():
    refuse_unknown([Claim.model_validate(CLAIM)], {}, ["laptop"])


def test_claims_are_read_strictly(tmp_path):
    path = tmp_path / "claims.yaml"
    assert read_claims(path) == ()
    text = """
- id: one
  statement: Ours is better.
  source: Sec. 4
  left: {artifact: table1, row: A, column: ours}
  relation: above
  right: 3
  scales: [laptop]
"""
    path.write_text(text)
    assert [claim.id for claim in read_claims(path)] == ["one"]
    path.write_text(text * 2)
    with pytest.raises(VitrineError, match=r"claims\.yaml: two claims are called 'one'"):
        read_claims(path)
    path.write_text(text + "  relatoin: above\n")
    with pytest.raises(VitrineError, match=r"'one': unknown key.*relatoin.*'relation'"):
        read_claims(path)


def test_an_entry_with_lists_is_a_claim_for_each_combination(tmp_path):
    path = tmp_path / "claims.yaml"
    text = """
- id: "{m}-{n}"
  each:
    - [{m: swin, row: A-Swin-T}, {m: cvt, row: A-CvT-13}]
    - [{n: "1"}, {n: "2"}]
  statement: "{row} is better in Table {n}."
  source: Sec. 4
  left: {artifact: "table{n}", row: "{row}", column: "of {{0, ..., 8}}"}
  relation: above
  right: 3
  scales: [laptop]
"""
    path.write_text(text)
    claims = read_claims(path)
    assert [claim.id for claim in claims] == ["swin-1", "swin-2", "cvt-1", "cvt-2"]
    assert claims[2].statement == "A-CvT-13 is better in Table 1."
    assert claims[3].left == Place(artifact="table2", row="A-CvT-13", column="of {0, ..., 8}")
    path.write_text(text.replace("{row} is", "{raw} is"))
    with pytest.raises(VitrineError, match=r"'\{m\}-\{n\}': .* names 'raw'.*'row'"):
        read_claims(path)
    path.write_text(text.replace('[{n: "1"}, {n: "2"}]', "3"))
    with pytest.raises(VitrineError, match=r"claims\.yaml.*each"):
        read_claims(path)


def test_a_claim_of_a_scale_that_there_is_not_is_refused():
    known = ["laptop", "full"]
    refuse_unknown([Claim.model_validate(CLAIM)], {}, known)
    with pytest.raises(VitrineError, match="scale 'labtop' is unknown; did you mean 'laptop'"):
        refuse_unknown([Claim.model_validate({**CLAIM, "scales": ["labtop"]})], {}, known)
