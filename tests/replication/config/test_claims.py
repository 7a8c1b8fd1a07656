"""A paper's claims are read at planning, and name cells that exist."""

import pytest

from replication.config.claims import Operand, read_claims
from replication.config.paper import ArtifactSpec
from replication.plan.catalog import load_catalog
from vitrail.errors import VitrailError

TABLE = {
    "title": "Accuracy",
    "caption": "Ours is better.",
    "source": "Table 1",
    "rows": [{"label": "A-Swin-T"}, {"label": "A-CvT-13"}],
    "columns": [{"label": "of {0, ..., 8}"}, {"label": "Top-1", "group": "CIFAR10"}],
}
TABLES = {name: ArtifactSpec.model_validate(TABLE) for name in ("table1", "table2")}
CLAIM = """
- id: better
  statement: Ours is better.
  source: Sec. 4
  left: {artifact: table1, row: A-Swin-T, column: CIFAR10 / Top-1}
  relation: above
  right: {artifact: table2, row: A-Swin-T, column: CIFAR10 / Top-1}
"""


@pytest.fixture
def read(tmp_path):
    """Read claims from a file with a text."""

    def read(text):
        path = tmp_path / "claims.yaml"
        path.write_text(text)
        return read_claims(path, TABLES)

    return read


def test_a_paper_may_have_no_claims(read, tmp_path):
    assert read_claims(tmp_path / "none.yaml", TABLES) == ()
    assert read("") == ()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("above", "abov", ["claims.yaml:6", "'relation' is 'abov'", "did you mean 'above'"]),
        ("relation", "relatoin", ["'better'", "relatoin", "did you mean 'relation'"]),
        ("id: better", "id: better\n  id: worse", ["claims.yaml:3", "'id' stands twice"]),
        ("left: {artifact: table1", "left: {artifact: tabel1", ["left.", "mean 'table1'"]),
        ("right: {artifact: table2", "right: {artifact: tabel2", ["right.", "mean 'table2'"]),
        ("table2, row: A-Swin-T", "table2, row: A-Swin", ["right.", "mean 'A-Swin-T'"]),
        ("row: A-Swin-T", 'row: "*", colunm: x', ["left.colunm", "did you mean 'column'"]),
        ("CIFAR10 / Top-1", "Top-1", ["left.", "known: CIFAR10 / Top-1"]),
        ("\n- id", "\n- id: x\n- id", ["'x'", "is missing"]),
        ("- id", "- [id]\n- id", ["claims.yaml", "claims.0"]),
    ],
)
def test_a_mistake_is_one_sentence(read, before, after, told):
    assert before in CLAIM
    with pytest.raises(VitrailError) as error:
        read(CLAIM.replace(before, after, 1))
    assert [part for part in told if part not in str(error.value)] == []
    assert "\n" not in str(error.value)


EACH = """
- id: "better-{n}-{m}"
  each: [&tables [{n: "1"}, {n: "2"}], [{m: A-Swin-T}, {m: A-CvT-13}]]
  statement: Ours is better.
  source: Sec. 4
  left: {artifact: "table{n}", row: "{m}", column: CIFAR10 / Top-1}
  relation: above
  right: 0
- id: "swin-better-{n}"
  each: [*tables]
  statement: A-Swin-T is better.
  source: Sec. 4
  left: {artifact: "table{n}", row: A-Swin-T, column: CIFAR10 / Top-1}
  relation: above
  right: 0
"""


def test_an_entry_is_a_claim_for_each_combination_of_choices(read):
    claims = {claim.id: claim.left.row for claim in read(EACH)}
    assert claims == {
        f"better-{table}-{model}": model for table in "12" for model in ("A-Swin-T", "A-CvT-13")
    } | {f"swin-better-{table}": "A-Swin-T" for table in "12"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[*tables]", "[*tabels]", ["claims.yaml", "alias", "line 10"]),
        ("[*tables]", "[tables]", ["claims.yaml:10", "each.0"]),
        ('[{n: "1"}', "[{n: 1}", ["claims.yaml:3", "each.0.0.n"]),
    ],
)
def test_a_wrong_list_of_choices_is_told_with_its_place(read, before, after, told):
    assert before in EACH
    with pytest.raises(VitrailError) as error:
        read(EACH.replace(before, after, 1))
    assert [part for part in told if part not in str(error.value)] == []


def test_two_claims_of_one_id_are_refused(read):
    with pytest.raises(VitrailError, match="two claims are called 'better'"):
        read(CLAIM * 2)


@pytest.mark.parametrize(
    ("pattern", "row", "text"),
    [
        ("*", "A-CvT-13", "A-CvT-13"),
        ("SVHN, APE", "SVHN, APE", ""),
        ("SVHN, APE", "SVHN", None),
        ("*, APE", "SVHN, APE", "SVHN"),
        ("*, APE", "SVHN, no PE", None),
        ("ab*ba", "aba", None),  # one letter cannot stand for both
    ],
)
def test_a_star_stands_for_any_text(pattern, row, text):
    operand = Operand(artifact="fig3a", row=pattern, column="P-SHAP")
    assert operand.text(("fig3a", row, "P-SHAP")) == text
    assert operand.text(("fig3a", row, "Accuracy")) is None
    if text is not None:
        assert operand.key(text) == ("fig3a", row, "P-SHAP")


def test_a_pattern_that_no_row_fits_is_refused(read):
    with pytest.raises(VitrailError, match=r"left\.row of table1 'B-\*'"):
        read(CLAIM.replace("row: A-Swin-T", 'row: "B-*"', 1))


def test_a_row_may_be_every_row_and_a_side_a_number(read):
    (claim,) = read(CLAIM.replace("A-Swin-T", '"*"'))
    assert claim.left.key("A-CvT-13") == ("table1", "A-CvT-13", "CIFAR10 / Top-1")
    head, _, _ = CLAIM.partition("right:")
    assert [claim.right for claim in read(f"{head}right: 3")] == [3]


ENTRY = """
- id: "{m}-{n}"
  each:
    - [{m: swin, row: A-Swin-T}, {m: cvt, row: A-CvT-13}]
    - [{n: "1"}, {n: "2"}]
  statement: "{row} is better in Table {n}."
  source: Sec. 4
  left: {artifact: "table{n}", row: "{row}", column: "of {{0, ..., 8}}"}
  relation: above
  right: 3
"""


def test_an_entry_with_lists_is_a_claim_for_each_combination(read):
    claims = read(ENTRY)
    assert [claim.id for claim in claims] == ["swin-1", "swin-2", "cvt-1", "cvt-2"]
    assert claims[2].statement == "A-CvT-13 is better in Table 1."
    assert claims[3].left == Operand(artifact="table2", row="A-CvT-13", column="of {0, ..., 8}")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("{row} is", "{raw} is", r"'\{m\}-\{n\}': .* names 'raw'; did you mean 'row'"),
        ('[{n: "1"}, {n: "2"}]', "3", r"claims\.yaml.*each"),
        ('{n: "2"}', '{n: "3"}', r"'swin-3': left.artifact 'table3' is unknown"),
    ],
)
def test_a_mistake_in_an_entry_with_lists_is_one_sentence(read, before, after, told):
    with pytest.raises(VitrailError, match=told):
        read(ENTRY.replace(before, after))


def test_a_wrong_word_is_refused_when_the_catalogue_is_read(small_checkout):
    path = small_checkout / "configs" / "papers" / "template" / "claims.yaml"
    text = path.read_text()
    (claim,) = load_catalog(small_checkout).paper("template").claims
    assert claim.left == Operand(artifact="table1", row="Wide", column="Accuracy")
    path.write_text(text.replace("relation: above", "relation: equals"))
    with pytest.raises(VitrailError, match=r"claims\.yaml.* 'equals'.*did you mean 'equal'"):
        load_catalog(small_checkout)
