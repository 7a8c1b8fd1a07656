"""Scale later makes tables of other methods than the papers', under seeds of its own."""

import csv
import re

import numpy as np
import pytest
from scipy.stats import ttest_rel

from tests.conftest import ROOT, catalog_of

PUBLISHED = ROOT / "results" / "published" / "later"


def test_no_other_scale_draws_its_seeds():
    drawn = {}
    for scale in ("laptop", "study", "later"):
        runs = catalog_of(scale).runs.values()
        drawn[scale] = {seed for run in runs for seed in run.seeds}
    assert not drawn["later"] & (drawn["laptop"] | drawn["study"])


def test_its_recipes_are_those_of_the_study():
    """So that what both scales train is an independent repetition."""
    study = {(run.paper, run.name): run.recipe for run in catalog_of("study").runs.values()}
    later = {(run.paper, run.name): run.recipe for run in catalog_of("later").runs.values()}
    both = study.keys() & later.keys()
    assert len(both) > 10
    assert all(study[name] == later[name] for name in both)


@pytest.mark.parametrize("scale", ["study", "later"])
def test_a_table_is_made_by_one_of_the_two_scales_but_for_fractions(scale):
    other = {"study": "later", "later": "study"}[scale]
    mine, theirs = ({a.target for a in catalog_of(name).artifacts} for name in (scale, other))
    assert mine & theirs == {"shift_fractional"}


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
