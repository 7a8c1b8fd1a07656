"""A number of an audit is placed among the published families by counting them."""

from tests.conftest import ROOT, catalog_of
from vitrail.cross import placing
from vitrail.cross.placing import COLUMNS, Place, place


def test_a_value_is_placed_in_its_own_column(tmp_path, monkeypatch):
    published = tmp_path / "published.csv"
    monkeypatch.setattr(placing, "PUBLISHED", published)
    assert place("C-Cons.", 50) is None
    lines = ["scale,row,column,value"]
    lines += [f"study,{row},Shifted / circular,{value}" for value, row in enumerate("abcd")]
    lines += ["study,a,P-SHAP,0.5", "study,b,P-SHAP,0.1"]
    published.write_text("\n".join(lines))
    models = "scale study: small models on images of 16 pixels, so this is no grade"
    assert place("C-Cons.", 2.5) == Place(3, 4, models)
    assert place("C-Cons.", 1.0) == Place(1, 4, models)
    assert place("P-SHAP", 0.05) == Place(0, 2, models)


def test_every_answer_has_a_column_of_the_table():
    (artifact,) = catalog_of("study").paper("cross").artifacts.values()
    assert {*COLUMNS.values()} <= {column.full_label for column in artifact.columns}


def test_every_scale_of_the_rows_has_the_table():
    from tools.docs import SCALES_OF_ROWS

    for scale in SCALES_OF_ROWS:
        assert "table" in catalog_of(scale).paper("cross").artifacts


def test_where_no_row_has_a_number_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "PUBLISHED", tmp_path / "published.csv")
    placing.PUBLISHED.write_text("scale,row,column,value\nstudy,a,P-SHAP,0.5\n")
    assert place("turns", 50) is None


def test_the_librarys_rows_are_those_published():
    from tools.docs import ROWS, published_rows

    path, rows = ROOT / ROWS, published_rows(ROOT)
    assert (path.read_text() if path.is_file() else None) == rows, "run python -m tools.docs"
