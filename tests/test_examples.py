"""Each example runs as it is, is short, and prints the effect that it tells of."""

import ast
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PUBLISHED = ROOT / "results" / "published" / "laptop"


def numbers(text, pattern):
    return [float(number) for number in re.findall(pattern, text)]


def shift(said):
    adaptive, plain = (
        numbers(said, rf"(?m)^{name} .* change by (\S+)") for name in ("A-Swin-T", "Swin-T")
    )
    assert adaptive == [0, 0, 0]
    assert min(plain) > 1e-3


def octic(said):
    d8, h8 = (numbers(line, r"[emr] (\d\S*?)(?:,|$)")[1:] for line in said.splitlines()[:2])
    assert len(d8) == len(h8) == 7
    assert max(d8) < 1e-12
    assert min(h8) > 1e-3
    assert "takes 5.33 times" in said  # 64 / 12


def position(said):
    corner, colour = numbers(said, r"P-SHAP (\S+)")
    assert corner > 0.3
    assert colour < 0.05
    assert min(numbers(said, r"(\d+) % right")) > 90


def variance(said):
    noise, smooth = (
        numbers(said, rf"(?m)^{name}, .* = (\S+)") for name in ("white noise", "a smooth table")
    )
    assert "0.7295" in said  # Table 2
    assert noise == pytest.approx([0.73, 1, 1], abs=0.04)
    assert smooth[1] > 1.3 > 1.1 > smooth[0]
    assert smooth[2] == 1


def only_plain_logits_change(said, plain):
    """The name of the plain model begins with `plain`, that of the adaptive one with "A-"."""
    adaptive, changes = (numbers(said, rf"(?m)^{name}.* change by (\S+)") for name in ("A-", plain))
    assert adaptive == [0, 0, 0]
    assert len(changes) == 3
    assert min(changes) > 1e-2


def a_swin_in_one_file(said):
    only_plain_logits_change(said, "Swin")


def a_cvt_in_one_file(said):
    only_plain_logits_change(said, "CvT")


def a_mvitv2_in_one_file(said):
    only_plain_logits_change(said, "MViTv2")


def adaptive_unpooling_in_one_file(said):
    for name, changes, pixels in (
        ("with", (0, 1e-12), (100, 100)),
        ("without", (1e-3, 1), (0, 90)),
    ):
        found = re.findall(rf"(?m)^{name} offsets.* by (\S+), (\d+) %", said)
        assert len(found) == 3
        for change, same in found:
            assert changes[0] <= float(change) <= changes[1]
            assert pixels[0] <= float(same) <= pixels[1]


def shift_appendix(said):
    errors = numbers(said, r"(?m): error (\S+) at most")
    assert len(errors) == 4
    assert max(errors[::2]) <= 1e-15
    assert min(errors[1::2]) > 0.1


PAPERS = {check.__name__: check for check in (shift, octic, position, variance)}
METHODS = (
    a_swin_in_one_file,
    a_cvt_in_one_file,
    a_mvitv2_in_one_file,
    adaptive_unpooling_in_one_file,
)
CHECKS = {**PAPERS, **{check.__name__: check for check in (shift_appendix, *METHODS)}}
EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.py")}


def test_there_is_an_example_of_each_paper_that_is_published():
    assert EXAMPLES.keys() == CHECKS.keys()
    assert {path.parent.name for path in PUBLISHED.glob("*/nodes.jsonl.gz")} == PAPERS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("example", CHECKS)
def test_an_example_prints_what_it_says(example):
    longest = 60 if example in PAPERS else 200
    assert len(EXAMPLES[example].read_text().splitlines()) < longest
    command = [sys.executable, str(EXAMPLES[example])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    CHECKS[example](done.stdout)
    page = (ROOT / "docs" / "examples.md").read_text()
    block = rf"/examples/{example}\.py\n```\n\nIt prints:\n\n```text\n(.*?)```"
    (shown,) = re.findall(block, page, re.DOTALL)
    CHECKS[example](shown)
    without_numbers = [re.sub(r"\d[\d.e+-]*", "N", text) for text in (shown, done.stdout)]
    assert without_numbers[0] == without_numbers[1]


def test_functions_that_several_files_of_one_method_hold_are_the_same_text():
    """A-Swin's file alone says which of equal grids wins behind its first windows."""
    texts = {}
    for check in METHODS:
        source = EXAMPLES[check.__name__].read_text()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                text = ast.get_source_segment(source, node)
                texts.setdefault(node.name, {})[check.__name__] = text
    held_by_all = {name for name, copies in texts.items() if len(copies) == len(METHODS)}
    assert held_by_all == {"shift", "every", "tie_break_scores", "strongest", "strongest_grid"}
    for name, copies in texts.items():
        if name.startswith("strongest"):
            assert "in_order" in copies.pop("a_swin_in_one_file")
        assert len(set(copies.values())) == 1, name
