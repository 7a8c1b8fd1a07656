"""The commands render artifacts of a checkout and gather them in a report."""

import csv
import json
import subprocess
import sys

import pytest
import yaml

from replication.evidence.report import Cost, cost_of, report, results_of
from replication.evidence.tables import render
from replication.plan.catalog import load_catalog
from replication.plan.schema import read_yaml
from vitrail.errors import VitrailError

DEVICE = "cpu: a processor, 1 thread"


@pytest.fixture
def catalog(small_checkout):
    """The template paper at laptop scale, its runs and results inside the checkout."""
    return load_catalog(
        small_checkout,
        scale="laptop",
        runs_root=str(small_checkout / "runs"),
        results_root=str(small_checkout / "results"),
    )


def measure(catalog, numbers):
    """Write what every measurement and run would have left, `numbers` by recipe and key."""
    for path, measurement in catalog.measurements.items():
        values = numbers[measurement.on.name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(
                {
                    "seeds": list(measurement.seeds),
                    "name": measurement.name,
                    "dataset": "digits",
                    "recipe_hash": measurement.on.recipe.hash,
                    "values": {str(seed): values for seed in measurement.seeds},
                    "provenance": {"device": DEVICE, "commit": "0123456789ab", "wall_seconds": 30},
                }
            )
        )
    for run in catalog.runs.values():
        for seed in run.seeds:
            path = run.seed_folder(seed) / "provenance.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"device": DEVICE}))


NUMBERS = {
    "narrow": {"top1": 60.0, "parameters": 1634},
    "wide": {"top1": 91.0, "parameters": 13002},
}


def run(*arguments, cwd):
    command = [sys.executable, "-m", "vitrail", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_table_is_rendered_to_its_three_files(catalog, small_checkout):
    measure(catalog, NUMBERS)
    places = ["--runs", catalog.runs_root, "--results", small_checkout / "results"]
    done = run("render", "template", "table1", "--scale", "laptop", *places, cwd=small_checkout)
    assert done.returncode == 0, done.stderr
    csv_file, markdown, latex = catalog.files(catalog.artifact("template", "table1"))
    rows = list(csv.DictReader(csv_file.open()))
    assert [(row["row"], row["column"], row["measured"]) for row in rows] == [
        ("Narrow", "Accuracy", "60.0"),
        ("Narrow", "Parameters", "1634.0"),
        ("Wide", "Accuracy", "91.0"),
        ("Wide", "Parameters", "13002.0"),
    ]
    assert "*13002*" in markdown.read_text()
    assert r"\textit{13002}" in latex.read_text()


def test_rendering_a_table_loads_neither_torch_nor_matplotlib(catalog, small_checkout):
    measure(catalog, NUMBERS)
    code = (
        "import sys, vitrail.__main__\n"
        "sys.argv = ['vitrail', 'render', 'template', 'table1', '--scale', 'laptop']\n"
        "try:\n    vitrail.__main__.main()\n"
        "finally:\n    assert not {'torch', 'matplotlib'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=small_checkout, check=False)
    assert done.returncode == 0
    assert all(path.is_file() for path in catalog.files(catalog.artifact("template", "table1")))


@pytest.fixture
def figure(small_checkout, catalog):
    """Turn the template's table into a figure, drawn by a module of the test."""
    path = small_checkout / "configs" / "papers" / "template" / "artifacts.yaml"
    spec = read_yaml(path)
    spec["artifacts"]["fig1"] = {
        "title": "Width",
        "caption": "A wider network.",
        "source": "Figure 1, p. 3",
        "rows": [{"label": "Wide", "width": "wide"}],
        "columns": [{"label": "Accuracy"}],
        "cell": {"measure": "accuracy", "recipe": "{width}", "key": "top1"},
        "draw": "drawing_of_the_test:fig1",
    }
    path.write_text(yaml.safe_dump(spec))
    places = {"runs_root": str(catalog.runs_root), "results_root": str(catalog.results.parent)}
    return load_catalog(small_checkout, scale="laptop", **places)


def test_a_figure_is_drawn_from_its_cells_and_measurements(figure, tmp_path, monkeypatch):
    (tmp_path / "drawing_of_the_test.py").write_text(
        "from vitrail import style\n"
        "def fig1(cells, measurements):\n"
        "    fig, axes = style.figure()\n"
        "    axes.set_title(f\"{cells['measured'][0]:g} {measurements[0]['name']}\")\n"
        "    return fig\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    measure(figure, NUMBERS)
    artifact = figure.artifact("template", "fig1")
    render(figure, artifact)
    csv_file, svg, png = figure.files(artifact)
    assert ">91 accuracy</text>" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert csv_file.read_text().splitlines()[1].startswith("template,fig1,Wide,Accuracy,,,91.0")


def test_a_figure_without_its_measurement_says_what_to_run(figure):
    with pytest.raises(VitrailError, match="run snakemake template_fig1"):
        render(figure, figure.artifact("template", "fig1"))


def test_results_that_cannot_be_written_are_one_line_and_status_two(catalog, small_checkout):
    blocked = small_checkout / "blocked"
    blocked.write_text("a file, not a folder")
    places = ["--runs", catalog.runs_root, "--results", blocked]
    done = run("render", "template", "table1", "--scale", "laptop", *places, cwd=small_checkout)
    assert done.returncode == 2
    assert done.stderr.startswith(f"vitrail: cannot write {blocked}")
    assert done.stderr.count("\n") == 1


def test_the_report_links_every_file_and_judges_every_claim(catalog):
    measure(catalog, NUMBERS)
    render(catalog, catalog.artifact("template", "table1"))
    page = report(results_of(catalog))
    assert "[csv](template/table1.csv) [md](template/table1.md) [tex](template/table1.tex)" in page
    assert "2 exact" in page
    assert "| **held** | A wider network reads digits better. (Abstract) | 91 against 60" in page
    assert f"- compute: 2 min on {DEVICE}\n" in page
    assert "- commit: 01234567\n" in page
    for link in catalog.files(catalog.artifact("template", "table1")):
        assert link.is_file()


def test_the_templates_claim_fails_where_the_narrow_network_reads_better(catalog):
    measure(catalog, {**NUMBERS, "wide": {**NUMBERS["wide"], "top1": 40.0}})
    render(catalog, catalog.artifact("template", "table1"))
    page = report(results_of(catalog))
    assert "| **contrary** | A wider network reads digits better. (Abstract) | 40 against" in page


def test_the_report_of_nothing_says_what_to_build(catalog):
    page = report(results_of(catalog))
    assert "Not built: `snakemake template_table1`" in page


def test_the_cost_counts_jobs_that_did_not_note_their_time(catalog):
    assert cost_of(catalog) == Cost()
    measure(catalog, NUMBERS)
    cost = cost_of(catalog)
    runs = sum(len(run.seeds) for run in catalog.runs.values())
    assert dict(cost.seconds) == {DEVICE: 30.0 * len(catalog.measurements)}
    assert (cost.jobs, cost.silent) == (runs + len(catalog.measurements), runs)


def test_the_cost_is_the_time_of_every_device(catalog):
    run = next(iter(catalog.runs.values()))
    for seed, processes in ((0, 8), (1, 1)):
        path = run.seed_folder(seed) / "provenance.json"
        path.parent.mkdir(parents=True)
        facts = {"device": "NVIDIA H200", "wall_seconds": 10.0, "processes": processes}
        path.write_text(json.dumps(facts))
    assert dict(cost_of(catalog).seconds) == {"NVIDIA H200": 90.0}


@pytest.mark.parametrize("content", ["", '{"device": "cpu', "[]", "{}"])
def test_a_damaged_provenance_is_named_with_what_to_delete(catalog, content):
    run = next(iter(catalog.runs.values()))
    path = run.seed_folder(0) / "provenance.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(VitrailError, match=f"cannot read {path} .*delete {run.folder} and train"):
        report(results_of(catalog))
