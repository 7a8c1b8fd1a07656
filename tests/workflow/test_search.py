"""A search of learning rates, run for real on a copy of the checkout with a fifth paper in it."""

import csv

import pytest

from replication.plan.catalog import load_catalog

SEARCHES = """\
searches:
  - rates: [1.0e-9, 1.0e-2, 3.0e-2]
    of: {wide: "wi*"}
"""


@pytest.fixture(scope="module")
def checkout(make_checkout):
    copy = make_checkout()
    scales = copy.path / "configs" / "papers" / "template" / "scales"
    (scales / "laptop.yaml").write_text(SEARCHES)
    return copy


@pytest.mark.slow
def test_trials_are_jobs_of_a_cluster(checkout):
    planned = checkout.planned("template_search", "--profile", "slurm", "--config", "scale=laptop")
    assert (planned["train"], planned["evaluate"], planned["benchmark"]) == (6, 6, 2)


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped_and_recipes_take_the_best_rate_of_its_table(checkout):
    """A first run makes some trials; then all are there, twice the steps too, in one command."""
    rate = "wide-tuning-0.01"
    catalog = load_catalog(checkout.path, scale="laptop")
    records = [
        str(score.measurement.path)
        for trial, score in catalog.paper("template").trials.items()
        if (trial.recipe, trial.rate) == ("wide", 1e-2)
    ]
    assert checkout.snakemake(*{*records}).returncode == 0
    (folder,) = (checkout.path / "runs" / "template").glob(f"{rate}-*")
    before = [file.stat().st_mtime_ns for file in sorted(folder.glob("seed*/weights.safetensors"))]

    done = checkout.vitrail("search", "template", "--", "--cores", "2")
    assert done.returncode == 0, done.stderr
    after = [file.stat().st_mtime_ns for file in sorted(folder.glob("seed*/weights.safetensors"))]
    assert after == before
    with (checkout.path / "results" / "laptop" / "template" / "search.csv").open() as file:
        cells = list(csv.DictReader(file))
    once = {
        row["row"]: float(row["measured"])
        for row in cells
        if row["row"].startswith("wide") and row["column"] == "Score"
    }
    (twice,) = (row["row"] for row in cells if row["column"].endswith("twice the steps"))
    paper = load_catalog(checkout.path, scale="laptop").paper("template")
    best = paper.recipe("wide").optimizer.lr
    assert max(once, key=once.get) == twice == f"wide, rate {best:g}"
    assert paper.tuning_result("wide").once == pytest.approx(max(once.values()), rel=1e-5)
    assert paper.tuning_result("wide").baseline[0] == "1-NN"
    assert checkout.vitrail("search", "template").stdout.startswith("0 of ")
