"""Numbers that documents quote: computed from cells, and never stale."""

import pandas as pd
import pytest

from replication.claims.comparison import COLUMNS
from replication.config.settings import load_settings
from replication.publishing.quoted_numbers import (
    QUOTE,
    changed_documents,
    documents,
    quotable,
    refreshed,
)
from tests.conftest import ROOT
from vitrail.errors import VitrailError

PUBLISHED = ROOT / "results" / "published"


@pytest.fixture
def results(tmp_path):
    swin = {"measured": 82.345, "std": 0.5, "n_seeds": 3, "paper_value": 90.15}
    swin["verdict"] = "outside"
    cells = [
        {"row": "Swin", "column": "C / Acc.", **swin},
        {"row": "A-Swin", "column": "C / Acc.", "measured": 1091.5, "std": 0.25, "n_seeds": 3},
        {"row": "Swin", "column": "empty", "n_seeds": 0, "verdict": "not_run"},
        {"row": "A-Swin", "column": "empty", "n_seeds": 0, "verdict": "not_run"},
    ]
    (tmp_path / "shift").mkdir()
    pd.DataFrame(cells, columns=COLUMNS).to_csv(tmp_path / "shift" / "table1.csv", index=False)
    swin = {"paper": "shift", "id": "swin", "kind": "empirical", "status": "held", "seeds": 3}
    swin |= {"left": 82.25, "right": 80.0, "half_width": 1.5, "printed_effect": 3.5}
    claims = [
        swin | {"evidence": "a"},
        swin | {"id": "same-numbers", "status": "undecided", "evidence": "a"},
        swin | {"id": "other", "evidence": None, "left": float("nan"), "status": "not run"},
        swin | {"id": "third", "evidence": "e"},
        swin | {"id": "exact", "kind": "exact", "evidence": "c"},
        swin | {"paper": "octic", "evidence": "d"},
    ]
    pd.DataFrame(claims).to_csv(tmp_path / "claims.csv", index=False)
    return tmp_path


SWIN, A_SWIN = 'shift_table1["Swin", "C / Acc."]', 'shift_table1["A-Swin", "C / Acc."]'

CLAIM = 'claim.{}["shift/swin"]'
STATUS = CLAIM.format("status")
HELD = 'claims["shift", "empirical", "held"]'  # one more is on numbers of an undecided one
OUTSIDE, NOT_RUN = 'shift_table1.count["outside"]', 'shift_table1.count["not_run"]'


@pytest.mark.parametrize(
    ("written", "now"),
    [
        (f"7.0 %<!-- {SWIN} --> of", f"82.3 %<!-- {SWIN} --> of"),
        (f"9<!-- {SWIN} -->", f"82<!-- {SWIN} -->"),
        (f"1,000.00<!-- {A_SWIN} -->", f"1,091.50<!-- {A_SWIN} -->"),
        (f"+7.0<!-- max({SWIN}, {A_SWIN}) -->", f"+1091.5<!-- max({SWIN}, {A_SWIN}) -->"),
        (f"7<!-- {SWIN} - {A_SWIN} -->", f"-1009<!-- {SWIN} - {A_SWIN} -->"),
        (f"9<!-- {OUTSIDE} -->", f"1<!-- {OUTSIDE} -->"),
        (f"9<!-- {OUTSIDE} + {NOT_RUN} -->", f"3<!-- {OUTSIDE} + {NOT_RUN} -->"),
        (f"+9.0<!-- {CLAIM.format('effect')} -->", f"+2.2<!-- {CLAIM.format('effect')} -->"),
        (f"9.0<!-- {CLAIM.format('half_width')} -->", f"1.5<!-- {CLAIM.format('half_width')} -->"),
        (f"9 %<!-- {CLAIM.format('left')} -->", f"82 %<!-- {CLAIM.format('left')} -->"),
        (f"contrary<!-- {STATUS} -->", f"held<!-- {STATUS} -->"),
        (f"not tested<!-- {STATUS} -->", f"held<!-- {STATUS} -->"),
        (f"9<!-- {HELD} -->", f"1<!-- {HELD} -->"),
        (f"9<!-- -{SWIN} -->", f"-82<!-- -{SWIN} -->"),
        (f"9<!-- 100 * ({SWIN} / 80 - 1) -->", f"3<!-- 100 * ({SWIN} / 80 - 1) -->"),
        ("5<!-- a remark --> and 6 <!-- todo -->", "5<!-- a remark --> and 6 <!-- todo -->"),
    ],
)
def test_a_quoted_number_becomes_that_of_its_cells(results, written, now):
    assert refreshed(written, quotable(results), "README.md") == now


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ('shift_table1["Swim", "C / Acc."]', "row 'Swim' is unknown; did you mean 'Swin'"),
        ('shift_table1["Swin", "empty"]', "not measured"),
        ('max(1, shift_table1["Swin", "empty"])', "not measured"),
        ('min(1, claim.left["shift/other"])', "not measured"),
        ('shift_table1["Swin"]', "the row and the column"),
        ('max(1, shift_table1.__init__.__globals__["re"])', "cannot be computed"),
        ("max(1, claim.left.clear() or 1)", "cannot be computed"),
        ('shift_table1.count["outsid"]', "no attribute 'outsid'"),
        ("max(open)", "'open' is undefined"),
        ("exec(1)", "'exec' is undefined"),
        ('shift_table1["Swin", "C / Acc."] / 0', "division by zero"),
        ('shift_table9["Swin", "C / Acc."]', "'shift_table9' is undefined"),
        ("shift_table1[row, column]", "cannot be computed"),
        ('shift_table1["Swin", "C / Acc."', "expected ','"),
        ('claim.left["shift/swim"]', "no claim 'shift/swim'"),
        ('claim.lift["shift/swin"]', "no attribute 'lift'"),
        ('claim.left["shift/other"]', "not measured"),
        ('claim.status["shift/swin"] * 1', "could not convert"),
        ('claims["shift", "empirical", "hold"]', "no element"),
        ('claims["shift", "empiric", "held"]', "no element"),
    ],
)
def test_a_comment_that_names_no_number_is_refused_with_its_document(results, comment, said):
    with pytest.raises(VitrailError, match=r"^deviations\.md: the comment") as error:
        refreshed(f"1.0<!-- {comment} -->", quotable(results), "deviations.md")
    assert said in str(error.value)


@pytest.mark.parametrize("word", ["Held", "holds", "**held**", "withheld"])
def test_a_verdict_is_quoted_behind_a_verdict_alone(results, word):
    with pytest.raises(VitrailError, match=r"^README\.md: the comment .* behind a verdict"):
        refreshed(f"{word}<!-- {STATUS} -->", quotable(results), "README.md")


def test_documents_are_changed_only_where_a_number_changed(results, tmp_path):
    (tmp_path / "README.md").write_text(f"82<!-- {SWIN} -->")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text(f"81<!-- {SWIN} -->")
    document = tmp_path / "docs" / "one.md"
    assert changed_documents(tmp_path, results) == {document: f"82<!-- {SWIN} -->"}


def test_a_comment_of_another_scale_is_read_at_that_scale_alone(results):
    text = f"9<!-- {SWIN} --> and 9<!-- later-too: {SWIN} -->"
    assert refreshed(text, quotable(results), "README.md") == f"82{text[1:]}"
    again = refreshed(text, quotable(results), "README.md", {"later-too"})
    assert again == text.replace("and 9", "and 82")


@pytest.mark.parametrize("path", [*documents(ROOT)], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_our_documents_quote_is_what_is_published(path):
    text = path.read_text()
    for scale in {quote["scale"] for quote in QUOTE.finditer(text)}:
        folder = PUBLISHED / (scale or load_settings(ROOT).scale)
        assert refreshed(text, quotable(folder), str(path), {scale}) == text
