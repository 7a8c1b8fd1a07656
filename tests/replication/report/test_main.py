"""Artifacts of a checkout are rendered from their nodes, and gathered in a report."""

import csv
import subprocess
import sys

import pytest

import vitrail
from replication.config.schema import as_yaml, read_yaml
from replication.measures.packed_scores import pack
from replication.plan.catalog import load_catalog
from replication.records.nodes import read_node
from replication.records.records import complete, read_record
from replication.report.html_report import as_markdown
from replication.report.results import results_of
from replication.report.tables import read_measured, render
from vitrail.errors import VitrailError
from vitrail.files import sha256
from vitrail.provenance import duration

DEVICE, WEIGHTS = "cpu: a processor, 1 thread", "0" * 64
STATEMENT = "A wider network reads digits better. (Abstract) `wider-reads-better`"


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
    """Leave the records of every training and measurement, `numbers` by recipe and key."""
    for run in catalog.runs.values():
        train(catalog, run)
    for path, measurement in catalog.measurements.items():
        node = catalog.node(path)
        values = numbers[measurement.on.name]
        complete(
            node,
            {
                "values": values,
                "code": node.code,
                **({"weights": WEIGHTS} if measurement.run else {}),
                "provenance": {"device": DEVICE, "commit": "0123456789ab", "wall_seconds": 30},
            },
        )


def train(catalog, run, **facts):
    """Leave the record of a run's training, which says `facts`."""
    outcome = {"sha256": WEIGHTS, "facts": {"device": DEVICE, **facts}}
    complete(catalog.training_node(run), outcome)


def results(catalog):
    """The results of a scale, of which some may be missing."""
    return results_of(catalog.said, catalog.artifacts, catalog.results)


def draw(catalog, name):
    """Render an artifact of the template paper from the records that there are."""
    artifact = catalog.paper("template").artifacts[name]
    return render(artifact, catalog.rendering(artifact).parent, read_measured(artifact))


def right(images):
    """The accuracy of a model that is right on the first `images` of 100."""
    return {"top1": float(images), "top1 by image": pack([1] * images + [0] * (100 - images))}


NUMBERS = {
    "narrow": {**right(60), "parameters": 1634},
    "wide": {**right(91), "parameters": 13002},
}


def run(*arguments, cwd):
    command = [sys.executable, "-m", "vitrail", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def planned(catalog):
    """The file of the node that renders the table, its measurements taken."""
    measure(catalog, NUMBERS)
    return catalog.rendering_node(catalog.paper("template").artifacts["table1"]).write()


def test_a_table_is_rendered_to_csv_and_markdown(catalog, planned, small_checkout):
    done = run("run", planned, cwd=small_checkout)
    assert done.returncode == 0, done.stderr
    csv_file, markdown = catalog.files(catalog.paper("template").artifacts["table1"])
    rows = list(csv.DictReader(csv_file.open()))
    assert [(row["row"], row["column"], row["measured"]) for row in rows] == [
        ("Narrow", "Accuracy", "60.0"),
        ("Narrow", "Parameters", "1634.0"),
        ("Wide", "Accuracy", "91.0"),
        ("Wide", "Parameters", "13002.0"),
    ]
    assert "*13002*" in markdown.read_text()


@pytest.mark.slow
def test_a_rendering_names_what_it_read_and_what_it_wrote(catalog, planned, small_checkout):
    assert run("run", planned, cwd=small_checkout).returncode == 0
    node = read_node(planned)
    record = read_record(node.output)
    assert record.node == node
    assert record.outcome == {
        "inputs": {str(path): sha256(path) for path in node.artifact.records},
        "outputs": {file.name: sha256(file) for file in node.files},
    }


def test_a_table_is_rendered_from_its_node_whatever_the_papers_say_now(
    catalog, planned, small_checkout
):
    recipes = small_checkout / "configs" / "papers" / "template" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("width: 64", "width: 32"))
    recipes.with_name("artifacts.yaml").write_text("changed")
    assert run("run", planned, cwd=small_checkout).returncode == 0
    csv_file, *_ = catalog.files(catalog.paper("template").artifacts["table1"])
    assert [row["measured"] for row in csv.DictReader(csv_file.open())][2:] == ["91.0", "13002.0"]


def test_rendering_a_table_loads_neither_torch_nor_matplotlib(catalog, planned, small_checkout):
    code = (
        "import sys, vitrail.__main__\n"
        f"sys.argv = ['vitrail', 'run', {str(planned)!r}]\n"
        "try:\n    vitrail.__main__.main()\n"
        "finally:\n    assert not {'torch', 'matplotlib'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=small_checkout, check=False)
    assert done.returncode == 0
    table = catalog.paper("template").artifacts["table1"]
    assert all(path.is_file() for path in catalog.files(table))


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
        "draw": "vitrail.drawing_of_the_test:fig1",
    }
    path.write_text(as_yaml(spec))
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
    monkeypatch.setattr(vitrail, "__path__", [*vitrail.__path__, str(tmp_path)])
    measure(figure, NUMBERS)
    csv_file, svg, png = draw(figure, "fig1")
    assert ">91 accuracy</text>" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert csv_file.read_text().splitlines()[1].startswith("template,fig1,Wide,Accuracy,,,91.0")


def test_a_figure_without_its_measurement_says_what_to_run(figure):
    with pytest.raises(VitrailError, match="run snakemake template_fig1"):
        draw(figure, "fig1")


def test_results_that_cannot_be_written_are_one_line_and_status_two(
    catalog, planned, small_checkout
):
    blocked = read_node(planned).output.parent
    blocked.write_text("a file, not a folder")
    done = run("run", planned, cwd=small_checkout)
    assert done.returncode == 2
    assert done.stderr.startswith(f"vitrail: cannot write {blocked}")
    assert done.stderr.count("\n") == 1


def test_the_report_links_every_file_and_judges_every_claim(catalog):
    measure(catalog, NUMBERS)
    draw(catalog, "table1")
    page = as_markdown(results(catalog))
    assert "[csv](template/table1.csv) [md](template/table1.md)" in page
    assert "2 exact" in page
    assert f"| **held** (empirical) | {STATEMENT} | " in page
    assert f"- compute, without searches: 2 min on {DEVICE}\n" in page
    assert "- commit: 01234567\n" in page
    for link in catalog.files(catalog.paper("template").artifacts["table1"]):
        assert link.is_file()


def test_the_templates_claim_fails_where_the_narrow_network_reads_better(catalog):
    measure(catalog, {**NUMBERS, "wide": {**NUMBERS["wide"], **right(40)}})
    draw(catalog, "table1")
    page = as_markdown(results(catalog))
    assert f"made by `{catalog.snakemake('template_table1')}`" in page
    assert f"| **contrary** (empirical) | {STATEMENT} | " in page


def test_the_report_of_nothing_says_what_to_build(catalog):
    page = as_markdown(results(catalog))
    assert f"Not built: `{catalog.snakemake('template_table1')}`" in page
    folded = page.partition("<details>")[2].partition("</details>")[0]
    assert f"| {STATEMENT} | " in folded
    assert page.count("A wider network reads digits better.") == 2  # the other is the headline


def test_the_cost_counts_nodes_that_did_not_note_their_time(catalog):
    assert results(catalog).circumstances == {"runs and measurements": "0"}
    measure(catalog, NUMBERS)
    found, taken = results(catalog).circumstances, len(catalog.measurements)
    assert found["compute, without searches"] == f"{duration(30 * taken)} on {DEVICE}"
    counted = f"{len(catalog.runs) + taken}, of which {len(catalog.runs)} did not note their time"
    assert found["runs and measurements"] == counted


def test_the_cost_is_the_time_of_every_device(catalog):
    first, second = catalog.runs.values()
    train(catalog, first, device="NVIDIA H200", wall_seconds=10.0, processes=8)
    train(catalog, second, device="NVIDIA H200", wall_seconds=10.0)
    assert (
        results(catalog).circumstances["compute, without searches"] == f"{80 + 10} s on NVIDIA H200"
    )


@pytest.mark.parametrize("content", ["", '{"node": ', "[]", "{}"])
def test_a_damaged_record_is_named_with_what_to_delete(catalog, content):
    run = next(iter(catalog.runs.values()))
    path = run.record
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(VitrailError, match=f"{path} .*--forcerun"):
        as_markdown(results(catalog))


@pytest.mark.slow
def test_the_report_is_written_from_the_records_of_all_artifacts(catalog, small_checkout):
    measure(catalog, NUMBERS)
    planned = catalog.report_node.write()
    done = run("run", planned, cwd=small_checkout)
    assert done.returncode == 2
    (rendering,) = catalog.renderings
    assert done.stderr.startswith(f"vitrail: {rendering} does not exist")
    assert run("run", catalog.node(rendering).write(), cwd=small_checkout).returncode == 0
    done = run("run", planned, cwd=small_checkout)
    assert done.returncode == 0, done.stderr
    markdown, *others = catalog.reports
    assert markdown.read_text() == as_markdown(results(catalog))
    outputs = read_record(catalog.report).outcome["outputs"]
    assert outputs == {file.name: sha256(file) for file in (markdown, *others)}
