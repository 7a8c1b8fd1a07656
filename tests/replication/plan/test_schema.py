"""YAML is read as YAML 1.2, whose only booleans are true and false."""

import pytest

from replication.plan.schema import match, merge, place_of, read_placed, read_yaml
from vitrail.errors import VitrailError


def test_on_and_no_are_words_and_true_and_false_are_booleans(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("{on: run, answer: no, yes: off, exact: true, other: False, truth: trueish}")
    assert read_yaml(path) == {
        "on": "run",
        "answer": "no",
        "yes": "off",
        "exact": True,
        "other": False,
        "truth": "trueish",
    }


def test_every_key_is_placed_also_those_of_anchors_and_of_what_is_merged(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("a: &a\n  x: 1\n  y: 2\nb:\n  <<: *a\n  y: 3\nc: *a\n")
    read = read_placed(path)
    assert read == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}
    merged = merge(read["b"], read["c"], {"z": 4})
    assert [place_of(read, key) for key in "abc"] == [f"{path}:{line}" for line in (1, 4, 7)]
    assert [place_of(read["b"], key) for key in "xy"] == [f"{path}:{line}" for line in (2, 6)]
    assert merged == {"x": 1, "y": 2, "z": 4}
    assert [place_of(merged, key) for key in "xyz"] == [f"{path}:2", f"{path}:3", None]


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text('a: 1\n"*": {b: 1}\nc: 2\n"*": {d: 1}\n')
    with pytest.raises(VitrailError, match=r"file\.yaml:4: '\*' stands twice; keep one"):
        read_placed(path)


@pytest.mark.parametrize(
    ("name", "patterns", "answer"),
    [
        ("vit-l", "vit-*", True),
        ("vit-l", "h8-*, vit-[lh]", True),
        ("vit-l", "vit", False),
        ("auto-ape-cls", "*[!o]-ape-cls", False),
    ],
)
def test_a_name_matches_any_of_some_patterns(name, patterns, answer):
    assert match(name, patterns) is answer
