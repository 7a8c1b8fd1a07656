"""YAML keeps the line of each key, and has the booleans and integers of YAML 1.2."""

import pytest
import yaml
from pydantic import Field

from replication.config.schema import (
    Strict,
    as_yaml,
    load_entries,
    match,
    merge,
    parse,
    place_of,
    read_yaml,
)
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


@pytest.mark.parametrize(
    ("written", "value"),
    [("12", 12), ("+1", 1), ("-3", -3), ("0", 0), ("12:00:00", "12:00:00"), ("'08'", "08")],
)
def test_a_time_is_no_integer(tmp_path, written, value):
    path = tmp_path / "file.yaml"
    path.write_text(f"key: {written}\n")
    assert read_yaml(path) == {"key": value}
    path.write_text(as_yaml({"key": value}))
    assert read_yaml(path) == {"key": value}


def test_a_text_of_lines_is_written_in_lines():
    text = "x = dict(a='  1')\ny = 2"
    written = as_yaml({"file.py": text, "name": "x"})
    assert written == "file.py: |-\n  x = dict(a='  1')\n  y = 2\nname: x\n"
    assert yaml.safe_load(written)["file.py"] == text
    assert yaml.safe_dump(text) != as_yaml(text)  # what others write stays as it is


def test_every_key_is_placed_also_those_of_what_is_merged(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("a:\n  x: 1\n  y: 2\nb:\n  y: 3\n")
    read = read_yaml(path)
    merged = merge(read["a"], read["b"], {"z": 4})
    assert [place_of(read, key) for key in "ab"] == [f"{path}:{line}" for line in (1, 4)]
    assert merged == {"x": 1, "y": 3, "z": 4}
    assert [place_of(merged, key) for key in "xyz"] == [f"{path}:2", f"{path}:5", None]


def test_what_an_alias_repeats_has_the_lines_of_its_anchor_and_its_key_that_of_the_alias(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("""
shared:
  - &a {x: 1,
        y: 2}
  - &b {y: 3, <<: *a}
c: *a
d:
  <<: [*b, *a]
  x: 4
e: {<<: *b}
""")
    read = read_yaml(path)
    assert (read["c"], read["d"], read["e"]) == (
        {"x": 1, "y": 2},
        {"x": 4, "y": 3},
        {"x": 1, "y": 3},
    )
    lines = {
        key: int(place_of(values, name).rpartition(":")[2])
        for key, values, name in (
            ("c", read, "c"), ("c.x", read["c"], "x"), ("c.y", read["c"], "y"),
            ("d.x", read["d"], "x"), ("d.y", read["d"], "y"), ("e.x", read["e"], "x"),
        )
    }  # fmt: skip
    assert lines == {"c": 6, "c.x": 3, "c.y": 4, "d.x": 9, "d.y": 5, "e.x": 3}


def test_what_stands_in_several_places_is_written_without_anchors_and_read_again(tmp_path):
    path, shared = tmp_path / "file.yaml", [{"x": [1, 2]}]
    path.write_text(as_yaml({"a": shared, "b": {"c": shared}}))
    assert read_yaml(path) == {"a": shared, "b": {"c": shared}}


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text('a: 1\n"*": {b: 1}\nc: 2\n"*": {d: 1}\n')
    with pytest.raises(VitrailError, match=r"file\.yaml:4: '\*' stands twice; keep one"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &a {b: *a}", r"file\.yaml is not valid YAML: .*recursive"),
        ("a: &a [*a]", r"file\.yaml is not valid YAML: .*recursive"),
        ("a: *b", r"file\.yaml is not valid YAML: .*undefined alias"),
        ("a: &b 1\nc: &b 2", r"file\.yaml is not valid YAML: .*duplicate anchor"),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", r"file\.yaml:2: '<<' stands twice"),
        ("a: 1\n? [b]\n: 2", r"is not valid YAML: .*unhashable key.* line 2"),
        ("{{a: 1}: 2}", r"is not valid YAML: .*unhashable key.* line 1"),
        ("a: [", "is not valid YAML"),
        ("!!python/object/apply:os.mkdir [x]", "is not valid YAML: .*python/object/apply:os.mkdir"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(tmp_path, text, told):
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(VitrailError, match=told) as error:
        read_yaml(path)
    assert "\n" not in str(error.value)


def test_a_pattern_is_told_with_its_capital_letters():
    class Source(Strict):
        url: str = Field(pattern=r"^https?://\S+$")

    with pytest.raises(VitrailError) as refused:
        parse(Source, {"url": "example.org/W.pth"}, "file.yaml")
    assert r"should match pattern '^https?://\S+$'" in str(refused.value)


class Entry(Strict):
    name: str
    classes: int


def test_a_registry_has_each_entry_and_each_field_once(tmp_path):
    path = tmp_path / "things.yaml"
    path.write_text("a:\n  classes: 10\nb:\n  extends: a\nc: {extends: b, classes: 12}\n")
    entries = load_entries(Entry, path, "thing")
    assert {name: entry.classes for name, entry in entries.items()} == {"a": 10, "b": 10, "c": 12}
    for text, told in (
        ("a: {extends: d}\n", r"things\.yaml, thing 'a': 'a' extends 'd', which is unknown"),
        ("a: {extends: b}\nb: {extends: a}\n", r"extends itself"),
        ("a: {extends: [b]}\n", r"'a' extends '\['b'\]', which is unknown"),
        ("a:\n  classes: 10\n  classes: 11\n", r"things\.yaml:3: 'classes' stands twice"),
        ("a: {classes: 10}\na: {classes: 11}\n", r"things\.yaml:2: 'a' stands twice"),
    ):
        path.write_text(text)
        with pytest.raises(VitrailError, match=told):
            load_entries(Entry, path, "thing")


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
