"""YAML is read as YAML 1.2, whose only booleans are true and false."""

from vitrine.plan.schema import read_yaml


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
