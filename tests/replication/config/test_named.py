"""What a name in artifacts.yaml stands for, and how a wrong one is told."""

import pytest

from replication.config.named import with_names_resolved, with_values_laid
from replication.config.paper import ArtifactsFile
from replication.config.schema import as_yaml, place_of, read_mapping
from vitrail.errors import VitrailError

TABLE = {"title": "t", "caption": "c", "source": "Table 1, p. 1"}


@pytest.fixture
def resolve(tmp_path):
    """Resolve the text of an artifacts.yaml."""

    def resolve(text):
        path = tmp_path / "artifacts.yaml"
        path.write_text(text)
        return with_names_resolved(read_mapping(path))

    return resolve


def test_a_mapping_is_laid_over_the_value_that_it_names(resolve):
    resolved = resolve(
        "values:\n"
        "  top1: {key: top1, unit: '%'}\n"
        "artifacts:\n"
        "  table1:\n"
        "    columns: [{label: Accuracy, value: top1, unit: points}]\n"
        "    cell: {value: top1, digits: 2}\n"
    )
    table = resolved["artifacts"]["table1"]
    assert table["columns"] == [{"label": "Accuracy", "key": "top1", "unit": "points"}]
    assert table["cell"] == {"key": "top1", "unit": "%", "digits": 2}


def test_mappings_merge_key_by_key_and_lists_are_replaced(resolve):
    resolved = resolve(
        "values:\n"
        "  small: {models: {a: {depth: 1, sizes: [1, 2]}}}\n"
        "measures:\n"
        "  speed: {args: {value: small, models: {a: {sizes: [3]}, b: {depth: 2}}}}\n"
    )
    args = resolved["measures"]["speed"]["args"]
    assert args == {"models": {"a": {"depth": 1, "sizes": [3]}, "b": {"depth": 2}}}


def test_of_several_values_the_later_is_laid_over_the_earlier(resolve):
    resolved = resolve(
        "values: {first: {x: 1, y: 1}, second: {y: 2}}\n"
        "measures: {a: {value: [first, second]}, b: {value: [second, first]}}\n"
    )
    assert resolved["measures"] == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 1}}


def test_a_value_may_use_those_above_it(resolve):
    resolved = resolve(
        "values: {low: {x: 1, y: 1}, high: {value: low, y: 2}}\nmeasures: {a: {value: high}}\n"
    )
    assert resolved["measures"]["a"] == {"x": 1, "y": 2}


def test_each_key_keeps_the_line_where_it_is_written(resolve):
    resolved = resolve(
        "values:\n  low:\n    x: 1\n    y: 1\nmeasures:\n  a:\n    value: low\n    y: 2\n"
    )
    places = [place_of(resolved["measures"]["a"], key).rpartition(":")[2] for key in "xy"]
    assert places == ["3", "8"]


def test_rows_and_columns_have_the_items_of_the_lists_that_they_name(resolve):
    resolved = resolve(
        "labels: {both: [{label: A}, {label: B}]}\n"
        "artifacts:\n"
        "  whole: {rows: both, columns: [{label: X}]}\n"
        "  part: {rows: [both, {label: C}], columns: [{label: Y}, both]}\n"
    )
    labels = {
        name: [[item["label"] for item in table[side]] for side in ("rows", "columns")]
        for name, table in resolved["artifacts"].items()
    }
    assert labels == {"whole": [["A", "B"], ["X"]], "part": [["A", "B", "C"], ["Y", "A", "B"]]}


def test_a_label_in_a_list_may_use_a_value(resolve):
    resolved = resolve(
        "values: {top1: {key: top1}}\n"
        "labels: {all: [{label: A, value: top1}]}\n"
        "artifacts: {table1: {columns: all}}\n"
    )
    assert resolved["artifacts"]["table1"]["columns"] == [{"label": "A", "key": "top1"}]


def test_text_in_the_lists_of_arguments_is_no_name(resolve):
    resolved = resolve(
        "labels: {zero: [{label: A}]}\nartifacts: {t: {rows: zero}}\n"
        "measures: {a: {args: {modes: [zero], rows: [zero]}}}\n"
    )
    assert resolved["measures"]["a"]["args"] == {"modes": ["zero"], "rows": ["zero"]}


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (
            "values: {top1: {}}\nmeasures:\n  a: {value: top}\n",
            3,
            "value 'top' is unknown; did you",
        ),
        ("values:\n  a: {value: b}\n  b: {}\n", 2, "value 'b' is unknown"),
        ("values:\n  a: {value: a}\n", 2, "value 'a' is unknown"),
        ("measures:\n  a: {args: {value: 0.5}}\n", 2, "value '0.5' is unknown"),
        ("labels: {all: []}\nartifacts:\n  t:\n    rows: al\n", 4, "list 'al' is unknown; did you"),
        ("labels: {x1: []}\nartifacts:\n  t:\n    columns: [x1, x2]\n", 4, "list 'x2' is unknown"),
        ("values: {a: 1}\nmeasures:\n  m: {value: a}\n", 3, "'value: a' is no mapping"),
        ("values:\n  a: {}\n", 2, "'a' of values is used nowhere"),
        ("labels:\n  a: []\n", 2, "'a' of labels is used nowhere"),
        (
            "values:\n  a: {x: {y: 1}}\nmeasures:\n  m: {value: a, x: 1}\n",
            4,
            "'x: 1' replaces several",
        ),
    ],
)
def test_a_wrong_name_is_told_with_its_line(resolve, text, line, sentence):
    with pytest.raises(VitrailError) as error:
        resolve(text)
    assert f"artifacts.yaml:{line}: {sentence}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("values: []", "'values' is \\[\\]"),
        ("labels: {all: null}\nartifacts: {t: {rows: all}}", "'labels.all' is None"),
        ("artifacts: {t: null}", "'artifacts.t' is None"),
        ("artifacts: null", "'artifacts' is None"),
        ("artifacts: [t]", "'artifacts' is \\['t'\\]"),
        ("artifacts: {t: {title: t, caption: c, source: s, rows: 1}}", "'artifacts.t.rows' is 1"),
    ],
)
def test_a_part_of_a_wrong_type_is_told(tmp_path, text, sentence):
    path = tmp_path / "artifacts.yaml"
    path.write_text(f"{text}\nmeasures: {{}}\n" + ("" if "artifacts" in text else "artifacts: {}"))
    with pytest.raises(VitrailError, match=sentence):
        ArtifactsFile.read(path)


def test_a_mistake_within_a_value_is_told_where_the_value_is_written(tmp_path):
    path = tmp_path / "artifacts.yaml"
    table = {**TABLE, "cell": {"value": "top1"}}
    path.write_text(
        "values:\n  top1:\n    kye: top1\n"
        + as_yaml({"measures": {}, "artifacts": {"table1": table}})
    )
    with pytest.raises(VitrailError, match=r"artifacts.yaml:3: unknown key .*did you mean 'key'"):
        ArtifactsFile.read(path)


SCALE = """
values:
  loader: {dataset: {pipeline: [a, b]}}
  small: {args: {depth: 1}}
recipes:
  "*": {options: {val: {value: loader}, test: {value: loader, workers: 2}}}
measures:
  speed: {args: {models: {a: {value: small}, b: {value: small, args: {width: 2}}}}}
"""


def test_a_file_of_a_scale_lays_mappings_over_values_and_knows_their_lines(tmp_path):
    path = tmp_path / "laptop.yaml"
    path.write_text(SCALE)
    scale = with_values_laid(read_mapping(path))
    loader = {"dataset": {"pipeline": ["a", "b"]}}
    options = scale["recipes"]["*"]["options"]
    assert options == {"val": loader, "test": {**loader, "workers": 2}}
    models = scale["measures"]["speed"]["args"]["models"]
    assert models == {"a": {"args": {"depth": 1}}, "b": {"args": {"depth": 1, "width": 2}}}
    assert place_of(options["val"], "dataset") == f"{path}:3"
    assert place_of(options["test"], "workers") == f"{path}:6"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("value: small}", "value: smal}", "laptop.yaml:8: value 'smal' is unknown"),
        ("  small:", "  none: {}\n  small:", "laptop.yaml:4: 'none' of values is used nowhere"),
    ],
)
def test_a_wrong_name_in_a_file_of_a_scale_is_told_with_its_line(tmp_path, old, new, told):
    path = tmp_path / "laptop.yaml"
    path.write_text(SCALE.replace(old, new, 1))
    with pytest.raises(VitrailError) as error:
        with_values_laid(read_mapping(path))
    assert told in str(error.value)
