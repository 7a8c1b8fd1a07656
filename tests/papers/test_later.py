"""What docs/later.md says of the published tables of other methods than the papers'."""

import csv
import re

import numpy as np
from scipy.stats import ttest_rel

from tests.conftest import ROOT

PUBLISHED = ROOT / "results" / "published" / "later"


def test_the_numbers_on_the_page_are_those_published():
    section = (ROOT / "docs" / "later.md").read_text().partition("## What came out")[2]
    values = []
    for path in PUBLISHED.glob("*/*.csv"):
        if path.name != "training_logs.csv":
            with path.open(newline="") as file:
                values += [
                    float(row["measured"]) for row in csv.DictReader(file) if row["measured"]
                ]
    told = re.findall(r"(?<![\w.+])(?<!± )-?\d+\.\d+", section)  # but differences
    assert len(told) > 15
    for number in told:
        digits = len(number.partition(".")[2])
        assert any(f"{value:.{digits}f}" == number for value in values), number


def test_the_differences_between_octics_choices_are_those_of_the_seeds():
    page = (ROOT / "docs" / "later.md").read_text()
    with (PUBLISHED / "octic" / "choices.csv").open(newline="") as file:
        by_seed = [np.array(row["by_seed"].split(), float) for row in csv.DictReader(file)]
    assert len(by_seed) == 6
    for published, other in zip(by_seed[::2], by_seed[1::2], strict=True):
        low, high = ttest_rel(other, published).confidence_interval(0.95)
        assert f"{(low + high) / 2:+.1f} ± {(high - low) / 2:.1f}" in page
