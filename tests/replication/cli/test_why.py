import dataclasses
import json
import shutil

import pytest

from replication.claims.comparison import read_cells
from replication.config.schema import as_yaml, read_yaml
from replication.config.tuning import add_found
from replication.plan.catalog import load_catalog
from replication.records.records import read_record
from replication.report.cell_provenance import find_cell
from replication.report.ledger import RECORDS, as_lines, published_folder, read_published
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

CELL = ["why", "tiny_table1", "Plain", "Top-1"]
SMALL = ["--scale", "small"]


@pytest.fixture
def asked(vitrail):
    """What ``vitrail why`` tells, as data."""

    def ask(*arguments, scale="small"):
        done = vitrail("why", *arguments, "--scale", scale, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return ask


def test_a_column_may_be_named_as_the_table_heads_it_with_its_unit():
    catalog, label = catalog_of("laptop"), "Top-1 Acc."
    cells = [
        find_cell(catalog, "octic_table2", "ViT-L/16", column) for column in (label, f"{label} (%)")
    ]
    assert cells[0].cell == cells[1].cell
    with pytest.raises(VitrailError, match="unknown"):
        find_cell(catalog, "octic_table2", "ViT-L/16", f"{label} (MB)")


def grouped(checkout, columns):
    """Give Table 1 columns of these groups and labels, the first of them the measured one."""
    paper = checkout / "configs" / "papers" / "tiny"
    for file in ("reference/table1.csv", "claims.yaml"):
        (paper / file).unlink()
    artifacts = read_yaml(paper / "artifacts.yaml")
    first = artifacts["artifacts"]["table1"]["columns"][0]
    artifacts["artifacts"]["table1"]["columns"] = [
        {**first, "group": group, "label": label} for group, label in columns
    ]
    (paper / "artifacts.yaml").write_text(as_yaml(artifacts))


def test_a_cell_has_its_measurement_and_trainings_as_their_records_say(asked, make):
    catalog = make({"plain": [75.0, 76.0, 77.0], "mixup": [70.0, 71.0, 72.0]})
    path = catalog.paper("tiny").measurement("accuracy", "plain").path
    record = read_record(path)
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert told["printed"] == {"value": 74.8, "std": 0.1, "source": "Table 1, p. 1"}
    measured = told["measured"]
    assert (measured["measured"], measured["n_seeds"]) == (76.0, 3)
    assert measured["std"] == pytest.approx(1.0)
    assert measured["verdict"] == "not_comparable"
    runs = catalog.paper("tiny").runs("plain")
    seeds = [run.seed for run in runs]
    assert len(seeds) == 3
    assert [own["seed"] for own in told["measurements"]] == seeds
    measurement = told["measurements"][0]
    assert measurement["function"] == "replication.measures.accuracy:accuracy"
    assert measurement["key"] == "top1"
    assert (measurement["record"], measurement["sha256"]) == (str(path), record.sha256)
    assert measurement["code"] == record.outcome["code"]
    assert (measurement["commit"], measurement["seconds"]) == ("a" * 40, 1.0)
    assert [training["record"] for training in told["trainings"]] == [
        str(run.record) for run in runs
    ]
    code = catalog.training_node(runs[0]).code
    assert {training["code"] for training in told["trainings"]} == {code}
    assert [training["seed"] for training in told["trainings"]] == seeds
    assert told["faults"] == []


def test_a_claim_has_both_sides_the_interval_of_their_difference_and_the_margin(
    asked, vitrail, make, checkout
):
    path = checkout / "configs" / "papers" / "tiny" / "claims.yaml"
    (claim,) = read_yaml(path)
    path.write_text(as_yaml([{**claim, "margin": 0.25}]))
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    (told,) = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["claims"]
    assert (told["left"], told["right"]) == pytest.approx((75.1, 70.1))
    assert (told["relation"], told["margin"]) == ("above", 0.25)
    assert told["half_width"] > 0
    shown = " ".join(vitrail(*CELL, "--scale", "laptop").out.split())
    assert told["detail"] in shown
    assert "above 0.25" in shown


def test_a_claim_that_is_not_run_says_what_is_missing(asked, vitrail, make):
    make({"plain": [75.0, 76.0, 77.0]})
    (told,) = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["claims"]
    assert (told["status"], told["left"], told["half_width"]) == ("not run", None, None)
    assert told["detail"] in " ".join(vitrail(*CELL, "--scale", "laptop").out.split())


def test_the_claims_of_a_cell_are_those_that_read_it(asked, make):
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    (claim,) = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["claims"]
    assert (claim["id"], claim["status"]) == ("plain-is-better", "held")
    assert asked("tiny_table1", "Plain", "Ratio", scale="laptop")["claims"] == []


@pytest.mark.parametrize("row", ["Plain", "Mixup"])
def test_a_claim_on_every_row_is_of_each_row(asked, checkout, row):
    path = checkout / "configs" / "papers" / "tiny" / "claims.yaml"
    (claim,) = read_yaml(path)
    claim["left"]["row"] = claim["right"]["row"] = "*"
    claim["right"]["column"] = "Ratio"
    path.write_text(as_yaml([dict(claim)]))
    for column in ("Top-1", "Ratio"):
        (used,) = asked("tiny_table1", row, column)["claims"]
        assert used["id"] == claim["id"]


def test_a_claim_on_every_row_leaves_out_the_rows_of_one_side(asked, checkout):
    """Table 2 has no row of Table 1."""
    path = checkout / "configs" / "papers" / "tiny" / "claims.yaml"
    (claim,) = read_yaml(path)
    claim["left"]["row"] = claim["right"]["row"] = "*"
    claim["right"]["artifact"] = "table2"
    path.write_text(as_yaml([dict(claim)]))
    assert asked("tiny_table1", "Plain", "Top-1")["claims"] == []


def test_the_recipe_has_the_file_and_line_of_each_value(asked, checkout, catalog):
    recipe = asked("tiny_table1", "Mixup", "Top-1")["recipe"]
    assert recipe["name"] == "mixup"
    assert recipe["folder"] == str(catalog().paper("tiny").run("mixup").home)
    found = {value["field"]: value for value in recipe["values"]}
    assert "augmentation.cutmix" not in found  # its default
    paper = "configs/papers/tiny"
    for field, value, file in (
        ("augmentation.mixup", 0.8, f"{paper}/recipes.yaml"),
        ("schedule.epochs", 1, f"{paper}/scales/small.yaml"),
    ):
        place, _, number = found[field]["place"].rpartition(":")
        assert (found[field]["value"], place) == (value, file)
        line = (checkout / file).read_text().splitlines()[int(number) - 1]
        assert line.strip() == f"{field.rpartition('.')[2]}: {value}"


def test_a_measure_of_the_papers_own_recipe_has_its_values_and_lines(asked, checkout):
    """The scale has one epoch, the paper three."""
    path = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    artifacts = read_yaml(path)
    artifacts["measures"]["facts"]["on"] = "paper"
    artifacts["artifacts"]["table1"]["columns"][1]["recipe"] = "{mix}"
    path.write_text(as_yaml(artifacts))
    told = asked("tiny_table1", "Plain", "Ratio")
    found = {value["field"]: value for value in told["recipe"]["values"]}["schedule.epochs"]
    assert found["value"] == 3
    assert found["place"].startswith("configs/papers/tiny/recipes.yaml:")
    assert told["trainings"] == []


def test_it_fits_on_a_screen_of_100_columns(vitrail, make):
    make({"plain": [75.0, 76.0, 77.0]})
    done = vitrail(*CELL, "--scale", "laptop")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line for line in lines if len(line) > 100] == []
    assert len(lines) < 60


def test_a_row_may_be_named_with_the_dash_that_tables_have_before_it(asked):
    named = asked("tiny_table1", "- Plain", "Top-1")
    assert named["row"] == asked("tiny_table1", "Plain", "Top-1")["row"]


def test_a_cell_that_is_not_measured_says_what_makes_it(vitrail, asked):
    told = asked("tiny_table1", "Plain", "Top-1")
    assert told["measured"] is None
    assert told["measurements"][0]["sha256"] is None
    assert [training["sha256"] for training in told["trainings"]] == [None]
    for scale, hint in (("small", False), ("full", True)):
        out = " ".join(vitrail(*CELL, "--scale", scale).out.split())
        assert f"snakemake tiny_table1 --config scale={scale}" in out
        assert ("--profile slurm" in out) == hint


def test_a_cell_that_is_not_measured_here_has_its_published_origin(asked, publish, checkout):
    """The record's digest is the one that the published table names."""
    catalog = publish()
    cells = read_cells(published_folder(catalog) / "tiny" / "table1.csv")
    (digest,) = cells[(cells["row"] == "Plain") & (cells["column"] == "Top-1")]["measurement"]
    here = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert (here["origin"], here["measured"]) == ("here", here["published"])
    shutil.rmtree(checkout / "results/laptop")  # measured here, and not rendered
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert (told["origin"], told["claims"]) == ("here", here["claims"])
    shutil.rmtree(checkout / "runs")
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert (told["origin"], told["measured"]) == ("published", None)
    assert told["published"] == here["published"]
    assert told["records"] == str(published_folder(catalog) / "tiny" / RECORDS)
    assert " ".join(own["sha256"] for own in told["measurements"]) == digest
    for part in ("measurements", "trainings", "claims"):
        assert told[part] == here[part]


def test_a_damaged_publication_is_told_and_hides_nothing_of_here(vitrail, publish):
    catalog = publish()
    path = published_folder(catalog) / "tiny" / RECORDS
    path.write_bytes(path.read_bytes() + b"{")
    done = vitrail(*CELL, "--scale", "laptop")
    assert done.code == 0
    assert "measured     81.0" in done.out
    assert f"cannot read {path} (" in " ".join(done.out.split())


def test_what_was_published_is_told_where_it_is_planned_otherwise_by_now(asked, publish, checkout):
    """The measure has other arguments by now, and so another record."""
    publish()
    before = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["measurements"]
    path = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    artifacts = read_yaml(path)
    artifacts["measures"]["accuracy"]["args"] = {"images": 7}
    path.write_text(as_yaml(artifacts))
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert (told["measured"], told["origin"]) == (None, "published")
    assert told["published"]["measured"] == 81.0
    assert [own["record"] for own in told["measurements"]] == [own["record"] for own in before]


def test_of_a_published_number_older_code_is_told(vitrail, publish, checkout):
    catalog = publish()
    path = published_folder(catalog) / "tiny" / RECORDS
    records = read_published(path.parents[1])
    own = catalog.paper("tiny").measurement("accuracy", "plain").path
    older = {**records[own].outcome, "code": "0" * 16}
    records[own] = dataclasses.replace(records[own], outcome=older)
    path.write_bytes(as_lines(records.values()))
    shutil.rmtree(checkout / "runs")
    shown = vitrail(*CELL, "--scale", "laptop").out
    assert "0" * 16 in shown
    assert f"code here    {catalog.node(own).code}" in shown


CLAIM = "tiny/plain-is-better"


def test_a_claim_is_explained_by_its_id_with_the_cells_that_it_compares(asked, vitrail, make):
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    told = asked("plain-is-better", scale="laptop")
    assert told == asked(CLAIM, scale="laptop")
    (judged,) = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["claims"]
    assert told["claim"] == judged
    places = [(cell["target"], cell["row"], cell["column"]) for cell in told["cells"]]
    assert places == [("tiny_table1", "Plain", "Top-1"), ("tiny_table1", "Mixup", "Top-1")]
    shown = " ".join(vitrail("why", CLAIM, "--scale", "laptop").out.split())
    for text in (judged["detail"], *(cell["measured"] for cell in told["cells"])):
        assert text in shown


def test_a_claim_that_is_not_run_here_is_the_published_one(asked, vitrail, publish, checkout):
    catalog = publish()
    here = asked(CLAIM, scale="laptop")
    for name in ("runs", "results/laptop"):
        shutil.rmtree(checkout / name)
    told = asked(CLAIM, scale="laptop")
    assert (told["claim"], told["cells"]) == (here["claim"], here["cells"])
    assert told["results"] == str(published_folder(catalog))
    shutil.rmtree(published_folder(catalog))
    assert asked(CLAIM, scale="laptop")["claim"]["status"] == "not run"
    told = vitrail("why", CLAIM, "--scale", "laptop").out
    assert "snakemake tiny_table1 --config scale=laptop" in " ".join(told.split())


def test_a_claim_or_number_of_another_recipe_than_planned_now_says_so(
    asked, vitrail, publish, checkout
):
    catalog = publish()
    for name in ("runs", "results/laptop"):
        shutil.rmtree(checkout / name)
    assert asked(CLAIM, scale="laptop")["changed"] == []
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace(" epochs: 3", " epochs: 4"))
    then = catalog.paper("tiny").run("mixup").home.name
    now = load_catalog(scale="laptop").paper("tiny").run("mixup").home.name
    assert then != now
    (change,) = (told for told in asked(CLAIM, scale="laptop")["changed"] if "mixup" in told)
    assert change == asked("tiny_table1", "Mixup", "Top-1", scale="laptop")["changed"]
    assert change.index(then) < change.index(now)
    shown = vitrail("why", CLAIM, "--scale", "laptop").out
    assert then in shown
    assert now in shown


def test_a_claim_has_its_published_verdicts_at_other_scales(asked, checkout):
    """A scale at which it is not listed has not run it."""
    published = checkout / "results" / "published"
    for scale, line in (("laptop", "tiny,plain-is-better,held"), ("full", "tiny,other,held")):
        (published / scale).mkdir(parents=True)
        (published / scale / "claims.csv").write_text(f"paper,id,status\n{line}\n")
    assert asked(CLAIM)["elsewhere"] == {"laptop": "held"}


def test_a_claim_that_a_scale_leaves_untested_has_the_reason_and_its_file(vitrail, make, checkout):
    path = checkout / "configs" / "papers" / "tiny" / "scales" / "laptop.yaml"
    scale, reason = read_yaml(path), "these digits are too easy"
    path.write_text(as_yaml({**scale, "untested": {"plain-*": reason}}))
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    shown = " ".join(vitrail("why", CLAIM, "--scale", "laptop").out.split())
    assert f"Not tested: {reason}" in shown
    assert "`untested` in configs/papers/tiny/scales/laptop.yaml" in shown
    assert "vitrail search" not in shown


def test_a_claim_whose_gate_is_closed_has_what_opens_it(vitrail, make, checkout):
    """A scale that searches learning rates tests only claims on models that were searched."""
    path = checkout / "configs" / "papers" / "tiny" / "scales" / "laptop.yaml"
    searches = [{"of": {"mixup": "mixup"}, "rates": [1e-4, 1e-3, 1e-2]}]
    path.write_text(as_yaml({**read_yaml(path), "searches": searches}))
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    shown = " ".join(vitrail("why", CLAIM, "--scale", "laptop").out.split())
    assert "Not tested: a model has no search" in shown
    assert "docs/results.md" in shown


def test_a_claim_tells_its_registration_and_what_its_searches_found(vitrail, make, checkout):
    path = checkout / "configs" / "papers" / "tiny" / "scales" / "laptop.yaml"
    rates = [1e-4, 1e-3, 1e-2]
    searches = [{"of": {"plain": "plain", "mixup": "mixup"}, "rates": rates, "seeds": 1}]
    path.write_text(as_yaml({**read_yaml(path), "searches": searches}))

    def paper():
        return load_catalog(checkout, scale="laptop").paper("tiny")

    for name in ("plain", "mixup"):
        recipe, info = paper().searched(name)
        trials = paper().searches.trials(name, recipe, info)
        scores = zip(rates, (60.0, 70.0, 65.0), strict=True)
        found = {trials[rate][0]: score for rate, score in scores}
        add_found(paper().searched_path, "laptop", found)
        (longer,) = paper().searches.longer_trials(name, recipe, info)
        add_found(paper().searched_path, "laptop", {longer: 70.5})
    vitrail("register", "tiny", "--scale", "laptop")
    make({"plain": [75.0, 75.1, 75.2], "mixup": [70.0, 70.1, 70.2]})
    shown = " ".join(vitrail("why", CLAIM, "--scale", "laptop").out.split())
    time = paper().registered["plain-is-better"]
    assert f"registered {time}" in shown
    told = "60.0 % at 0.0001, 70.0 % at 0.001, 65.0 % at 0.01; from twice the steps at 0.001 +0.5"
    for name in ("plain", "mixup"):
        assert f"{name}, on held-out training images: {told}" in shown


def test_an_id_that_several_papers_have_needs_the_paper(vitrail, asked, checkout):
    papers = checkout / "configs" / "papers"
    shutil.copytree(papers / "tiny", papers / "small")
    done = vitrail("why", "plain-is-better", *SMALL)
    assert done.code == 2
    assert "small/plain-is-better" in done.err
    assert CLAIM in done.err
    assert asked(CLAIM)["paper"] == "tiny"


@pytest.mark.parametrize("claim", ["plain-is-bettre", "tiny/plain-is-bettre"])
def test_an_unknown_claim_is_answered_with_the_closest(vitrail, claim):
    done = vitrail("why", claim, *SMALL)
    assert (done.code, f"'{claim[:-2]}er'?" in done.err) == (2, True)


@pytest.mark.parametrize("arguments", [[], ["Plain"]])
def test_without_a_row_or_a_column_it_says_where_they_are_listed(vitrail, arguments):
    done = vitrail("why", "tiny_table1", *arguments, *SMALL)
    assert (done.code, "`vitrail show tiny_table1 --scale small` lists" in done.err) == (2, True)


def test_a_training_is_named_before_its_measurement_is_taken(asked, make):
    catalog = make({"plain": [75.0, 76.0, 77.0]})
    first, *others = catalog.paper("tiny").measurements("accuracy", "plain")
    first.path.unlink()
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert (told["measured"]["measured"], told["measured"]["n_seeds"]) == (76.5, 2)
    for measurement in others:
        measurement.path.unlink()
    told = asked("tiny_table1", "Plain", "Top-1", scale="laptop")
    assert told["measured"] is None
    assert all(training["sha256"] for training in told["trainings"])


def test_a_fine_tuning_rests_on_the_trainings_that_it_starts_from(asked, catalog, fine_tuning):
    told = asked("tiny_table2", "Tuned", "Top-1")
    runs = [catalog().paper("tiny").run(name) for name in ("plain", "tuned")]
    records = [str(run.record) for run in runs]
    assert [training["record"] for training in told["trainings"]] == records


def test_what_is_wrong_behind_a_number_is_said_with_its_remedy(asked, make):
    catalog = make({"plain": [75.0, 76.0, 77.0]})
    catalog.paper("tiny").run("plain").weights.write_text("other weights")
    (fault, *_) = asked("tiny_table1", "Plain", "Top-1", scale="laptop")["faults"]
    assert "snakemake tiny_table1 --forcerun" in fault


def test_a_label_needs_its_group_only_where_another_group_has_it(vitrail, checkout, asked):
    grouped(checkout, [("A", "Top-1"), ("B", "Top-1"), ("B", "Top-5")])
    assert asked("tiny_table1", "Plain", "Top-5")["column"] == "B / Top-5"
    assert asked("tiny_table1", "Plain", "A / Top-1")["column"] == "A / Top-1"
    done = vitrail("why", "tiny_table1", "Plain", "Top-1", *SMALL)
    assert done.code == 2
    assert "'A / Top-1' or 'B / Top-1'" in done.err


@pytest.mark.parametrize(
    ("cell", "closest"),
    [
        (("tiny_tabel1", "Plain", "Top-1"), "tiny_table1"),
        (("tiny_table1", "Plian", "Top-1"), "Plain"),
        (("tiny_table1", "Plain", "Top1"), "Top-1"),
        (("tiny_table1", "plain", "Top-1"), "Plain"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(vitrail, cell, closest):
    done = vitrail("why", *cell, *SMALL)
    assert done.code == 2
    assert f"did you mean '{closest}'?" in done.err


def test_a_target_of_several_artifacts_has_no_cell(vitrail):
    done = vitrail("why", "tiny", "Plain", "Top-1", *SMALL)
    assert done.code == 2
    assert "tiny_table1" in done.err
    assert "tiny_table2" in done.err


@pytest.mark.parametrize("row", ["- bilinear", "bilinear"])
def test_the_dash_of_a_row_of_ours_may_be_left_out(row):
    named = find_cell(
        catalog_of("small"), "variance_table1", row, "Tiny-ImageNet / within an image"
    )
    assert named.cell.row == "- bilinear"
