"""Each example runs as it is, is short, and prints the effect that it tells of."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT


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


CHECKS = {check.__name__: check for check in (shift, octic, position, variance)}
EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.py")}


def test_there_is_an_example_of_each_paper():
    assert EXAMPLES.keys() == CHECKS.keys()
    assert {path.name for path in (ROOT / "configs" / "papers").iterdir()} == CHECKS.keys()


@pytest.mark.parametrize("paper", CHECKS)
def test_an_example_prints_what_it_says(paper):
    assert len(EXAMPLES[paper].read_text().splitlines()) < 60
    command = [sys.executable, str(EXAMPLES[paper])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    CHECKS[paper](done.stdout)
