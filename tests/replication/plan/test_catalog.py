"""The catalogue links a paper's folder into runs, measurements, artifacts and targets."""

import shutil
import subprocess
import sys

import pytest

from replication.cli.explain_claim import find_claim
from replication.config.schema import as_yaml, merge, read_yaml
from replication.config.settings import known_scales
from replication.jobs.run_weights import training_of
from replication.plan import catalog as module
from replication.plan.catalog import load_catalog
from replication.plan.code_digest import Code
from replication.plan.module_digest import SOURCES, file_of
from replication.records.records import code_due, complete, trained_by
from replication.records.specs import Run
from tests.conftest import catalog_of
from tests.repository import begin, git
from vitrail import provenance
from vitrail.errors import VitrailError


@pytest.fixture
def edit(small_checkout):
    """Change a file of the template paper, or add one."""

    def change(name, delta):
        path = small_checkout / "configs" / "papers" / "template" / name
        path.parent.mkdir(exist_ok=True)
        before = read_yaml(path) if path.is_file() else {}
        path.write_text(as_yaml(merge(before, delta)))

    return change


WRONG_ROWS = [
    {"label": "Narrow", "width": "narrow", "digits": "four"},
    {"label": "Wide", "width": "wide"},
]


LAPTOP, FULL = "scales/laptop.yaml", "scales/full.yaml"


def table1(delta):
    return {"artifacts": {"table1": delta}}


def widths(**choices):
    """More recipes of the template paper, as deltas of their own."""
    return {"axes": {"width": choices}}


def runs(**patterns):
    return {"runs": patterns}


WIDE = {"model": {"args": {"width": 64}}}
FROM_WIDE = {"model": {"args": {"width": 64}, "weights_from": "wide"}}


def template(checkout, **overrides):
    return load_catalog(checkout, **overrides).paper("template")


def test_the_catalogue_loads_without_torch():
    code = "import sys; import replication.plan.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("scale", ["laptop", "small", "workstation", "full"])
def test_every_artifact_of_every_paper_resolves(root, scale):
    catalog = catalog_of(scale)
    artifacts = list(catalog.artifacts)
    assert artifacts
    assert all(artifact.measurements for artifact in artifacts)
    assert len(catalog.measurements) == len({m.path for m in catalog.measurements.values()})


def test_a_claim_that_a_scale_cannot_test_says_why_at_this_scale_alone(small_checkout, edit):
    edit("scales/small.yaml", {"untested": {"wider-*": "these nets are too small"}})

    def reasons(scale):
        claims = load_catalog(small_checkout, scale=scale).paper("template").claims
        return {claim.id: claim.untested for claim in claims}

    assert reasons("small") == {"wider-reads-better": "these nets are too small"}
    assert reasons("full") == {"wider-reads-better": ""}


def test_a_target_that_only_other_scales_make_is_told_with_these_scales(small_checkout):
    catalog = load_catalog(small_checkout, scale="small")
    for name in ("template", "template_table1"):
        assert name not in catalog.targets
        with pytest.raises(VitrailError, match="'small' does not make") as refused:
            catalog.target(name)
        assert {"full", "laptop"} <= {*str(refused.value).rpartition(": ")[2].split(", ")}
    with pytest.raises(VitrailError, match="'small' does not make"):
        find_claim(catalog, "template_table1")  # as vitrail why without a row


def test_a_target_with_its_parts_exchanged_is_answered_with_the_right_one(small_checkout):
    with pytest.raises(VitrailError, match="did you mean 'template_table1'"):
        load_catalog(small_checkout, scale="full").target("table1_template")


def test_what_a_target_is_made_of_is_made_by_rules_and_has_a_node(small_checkout):
    """Also a table's own record, by which one may ask for it."""
    catalog = load_catalog(small_checkout, scale="laptop")
    artifact = catalog.paper("template").artifacts["table1"]
    asked = [catalog.rendering(artifact), catalog.report]
    while asked:
        path = asked.pop()
        assert catalog.makes(path), path
        if path in catalog.records:
            asked += catalog.node(path).inputs
    assert set(catalog.runs) | set(catalog.measurements) < catalog.records
    assert not catalog.makes(catalog.results / "template" / "table9.json")


def test_two_artifacts_that_need_one_run_share_it(small_checkout):
    catalog = load_catalog(small_checkout)
    table = catalog.paper("template").artifacts["table1"]
    assert len(table.measurements) == len(catalog.measurements_of(table)) == 4
    assert len(catalog.runs_of(table)) == 2


def test_the_folder_of_a_run_follows_its_recipe(small_checkout, edit):
    before = {name: template(small_checkout).run(name).folder for name in ("narrow", "wide")}
    edit("recipes.yaml", {"axes": {"width": {"wide": {"optimizer": {"lr": 0.5}}}}})
    after = {name: template(small_checkout).run(name).folder for name in ("narrow", "wide")}
    assert before["narrow"] == after["narrow"]
    assert before["wide"] != after["wide"]


def test_a_stand_in_is_never_comparable(small_checkout, edit):
    assert all(cell.comparable for cell in template(small_checkout).artifacts["table1"].cells)
    edit(LAPTOP, {"recipes": {"*": {"model": {"args": {"width": 4}}}}})
    assert not any(cell.comparable for cell in template(small_checkout).artifacts["table1"].cells)


def test_a_fact_of_the_papers_own_recipe_is_the_same_and_comparable_at_every_scale(
    small_checkout, edit
):
    edit("artifacts.yaml", {"measures": {"parameters": {"on": "paper"}}})
    before = template(small_checkout).artifacts["table1"].cells
    edit(LAPTOP, {"recipes": {"*": {"model": {"args": {"width": 4}}}}})
    after = template(small_checkout).artifacts["table1"].cells
    assert {cell.column for cell in after if cell.comparable} == {"Parameters"}
    kept = [cell.records for cell in before if cell.column == "Parameters"]
    assert kept == [cell.records for cell in after if cell.column == "Parameters"]
    assert template(small_checkout).run("wide").recipe.model.args == {"width": 4}


def test_other_arguments_are_not_comparable(small_checkout, edit):
    edit(LAPTOP, {"measures": {"acc*": {"args": {"image_size": 9}}}})
    cells = template(small_checkout).artifacts["table1"].cells
    assert {cell.column for cell in cells if cell.comparable} == {"Parameters"}


def test_a_dataset_stands_in_for_another_by_name_alone(small_checkout, edit):
    edit("recipes.yaml", {"base": {"data": {"dataset": "cifar10-position"}}})
    paper = template(small_checkout)
    run = paper.run("narrow")
    assert (run.recipe.data.dataset, run.dataset.name) == ("pieces-in-corners", "pieces-in-corners")
    assert not paper.as_printed("narrow")
    full = template(small_checkout, scale="full")
    assert full.run("narrow").recipe.data.dataset == "cifar10-position"


LACKS_PHOTOGRAPHS = {"datasets": {"flowers102": None}}


def test_what_is_measured_on_images_that_a_scale_lacks_is_not_run_there(small_checkout, edit):
    edit("artifacts.yaml", {"measures": {"parameters": {"datasets": ["flowers102"]}}})
    edit(LAPTOP, LACKS_PHOTOGRAPHS)
    paper, full = template(small_checkout), template(small_checkout, scale="full")
    table, whole = paper.artifacts["table1"], full.artifacts["table1"]
    empty = {cell.column for cell in table.cells if not cell.records}
    assert empty == {"Parameters"}
    assert not any(measured.datasets for measured in paper.measurements_of(table))
    assert all(cell.records for cell in whole.cells)
    told = table.note.removeprefix(whole.note)
    assert "laptop" in told
    assert "Flowers-102" in told
    assert "full" in told.partition(";")[2]
    assert "Not measured" not in whole.note


def test_scales_of_stand_ins_and_miniatures_are_not_told_as_those_of_the_images(
    small_checkout, edit
):
    edit("artifacts.yaml", {"measures": {"parameters": {"datasets": ["flowers102"]}}})
    for scale in known_scales(small_checkout):
        edit(f"scales/{scale}.yaml", LACKS_PHOTOGRAPHS)
    edit("scales/workstation.yaml", {"datasets": {"flowers102": "digits"}})
    assert template(small_checkout).scales_with("flowers102", "table1") == []
    edit("scales/full.yaml", {"datasets": {"flowers102": "flowers102-miniature"}})
    edit("scales/small.yaml", {"artifacts": []})
    assert template(small_checkout).scales_with("flowers102", "table1") == []
    assert template(small_checkout).artifacts["table1"].note.endswith("Flowers-102.")


def test_a_recipe_of_images_that_a_scale_lacks_is_not_run_there(small_checkout, edit):
    edit("recipes.yaml", widths(wide={"data": {"dataset": "flowers102"}}))
    edit(LAPTOP, LACKS_PHOTOGRAPHS)
    catalog = load_catalog(small_checkout)
    table = catalog.paper("template").artifacts["table1"]
    assert {cell.row for cell in table.cells if not cell.records} == {"Wide"}
    assert {run.name for run in catalog.runs_of(table)} == {"narrow"}


def test_an_artifact_of_nothing_but_images_that_a_scale_lacks_does_not_exist_there(
    small_checkout, edit
):
    edit("recipes.yaml", {"base": {"data": {"dataset": "flowers102"}}})
    edit(LAPTOP, LACKS_PHOTOGRAPHS)
    catalog = load_catalog(small_checkout)
    assert catalog.paper("template").artifacts == {}
    with pytest.raises(VitrailError, match=r"'laptop' does not make 'template_table1'.*full"):
        catalog.target("template_table1")


def test_a_paper_may_have_a_stand_in_of_its_own_for_images_that_the_scale_lacks(
    small_checkout, edit
):
    edit("recipes.yaml", {"base": {"data": {"dataset": "flowers102"}}})
    edit(LAPTOP, {"datasets": {"flowers102": "digits"}})
    scale = small_checkout / "configs" / "scales" / "laptop.yaml"
    scale.write_text("description: small\ndevice: cpu\ndatasets: {flowers102: null}\n")
    assert template(small_checkout).run("wide").dataset.name == "digits"


def test_deltas_are_laid_in_order_with_the_most_particular_last(small_checkout, edit):
    patterns = {
        "*": {"schedule": {"epochs": 10}, "label_smoothing": 0.3},
        "tall, wi*": {"schedule": {"epochs": 20}},
    }
    edit("recipes.yaml", {"base": {"schedule": {"epochs": 300}}} | widths(tall={}))
    edit(LAPTOP, {"recipes": patterns})
    paper = template(small_checkout)
    assert paper.run("narrow").recipe.schedule.epochs == 10
    assert paper.run("wide").recipe.schedule.epochs == 20
    assert paper.run("tall").recipe.schedule.epochs == 20
    assert paper.run("wide").recipe.label_smoothing == 0.3
    assert template(small_checkout, scale="full").run("wide").recipe.schedule.epochs == 300


def test_a_recipe_has_a_run_and_a_measurement_for_each_seed(small_checkout, edit):
    edit(LAPTOP, runs(wide={"seeds": 3}))
    paper = template(small_checkout)
    wide = paper.runs("wide")
    seeds = [paper.scale.first_seed + number for number in range(3)]
    assert [run.seed for run in wide] == seeds
    assert [run.record.name for run in wide] == [f"trained-seed{seed}.json" for seed in seeds]
    assert len({run.home for run in wide}) == 1
    measured = paper.measurements("accuracy", "wide")
    assert tuple(measurement.run for measurement in measured) == wide
    assert all(f"-seed{own.seed}-" in own.path.name for own in measured)
    (records,) = {
        cell.records
        for cell in paper.artifacts["table1"].cells
        if cell.key == "top1" and cell.row == "Wide"
    }
    assert records == tuple(measurement.path for measurement in measured)


def test_a_fine_tuning_is_named_after_its_source_and_changes_with_it(small_checkout, edit):
    edit("recipes.yaml", widths(tuned=FROM_WIDE))
    before = template(small_checkout)
    tuned, wide = before.run("tuned"), before.run("wide")
    assert tuned.source == wide
    assert tuned.recipe.model.weights_from == wide.home.name
    assert (wide.source, wide.recipe.model.weights_from) == (None, None)
    edit("recipes.yaml", widths(wide={"optimizer": {"lr": 0.5}}))
    after = template(small_checkout).run("tuned")
    assert after.recipe.optimizer == tuned.recipe.optimizer
    assert after.recipe.hash != tuned.recipe.hash


def test_what_an_artifact_trains_are_its_runs_behind_their_sources(small_checkout, edit):
    further = {"model": {"args": {"width": 64}, "weights_from": "tuned"}}
    edit("recipes.yaml", widths(further=further, tuned=FROM_WIDE))
    edit("artifacts.yaml", table1({"cell": {"recipe": "further"}}))
    (small_checkout / "configs/papers/template/reference/table1.csv").unlink()
    catalog = load_catalog(small_checkout)
    runs = catalog.runs_of(catalog.paper("template").artifacts["table1"])
    assert [run.name for run in runs] == ["wide", "tuned", "further"]
    assert list(catalog.runs.values()) == list(runs)


def test_a_fine_tuning_starts_from_the_run_of_its_own_seed(small_checkout, edit):
    edit("recipes.yaml", widths(tuned=FROM_WIDE))
    edit(LAPTOP, runs(wide={"seeds": 5}, tuned={"seeds": 3}))
    paper = template(small_checkout)
    sources = tuple(run.source for run in paper.runs("tuned"))
    assert sources == paper.runs("wide")[:3]


def test_recipes_that_come_out_equal_share_the_first_ones_run(small_checkout, edit):
    same = {"model": {"args": {"width": 8}}}
    edit("recipes.yaml", widths(thin=same))
    edit(FULL, {"recipes": {"thin": {"label_smoothing": 0.1}}})
    paper = template(small_checkout)
    assert paper.run("thin") is paper.run("narrow")
    assert paper.run("thin").name == "narrow"
    assert paper.run("narrow") != paper.run("wide")
    assert paper.measurement("accuracy", "thin") == paper.measurement("accuracy", "narrow")
    full = template(small_checkout, scale="full")
    assert full.run("thin") != full.run("narrow")


def test_fine_tunings_of_a_shared_run_are_equal_too(small_checkout, edit):
    choices = {
        "late": {"model": {"args": {"width": 64}, "weights_from": "same"}},
        "tuned": FROM_WIDE,
        "same": WIDE,
        "twice": {"model": {"args": {"width": 64}, "weights_from": "tuned"}},
    }
    edit("recipes.yaml", widths(**choices))
    paper = template(small_checkout)
    assert paper.run("same") is paper.run("wide")
    assert paper.run("tuned") is paper.run("late")
    assert paper.run("late").source is paper.run("wide")
    assert paper.run("twice") is not paper.run("tuned")


def test_equal_recipes_of_unequal_seeds_have_runs_of_their_own(small_checkout, edit):
    edit("recipes.yaml", widths(thin={"model": {"args": {"width": 8}}}))
    edit(LAPTOP, runs(thin={"seeds": 2}))
    paper = template(small_checkout)
    assert paper.run("thin").recipe == paper.run("narrow").recipe
    assert [run.name for run in paper.runs("thin")] == ["thin", "thin"]
    first, second = (run.seed for run in paper.runs("thin"))
    assert second == first + 1
    assert paper.run("thin").home != paper.run("narrow").home


def test_of_two_recipes_that_share_a_run_only_the_printed_one_is_comparable(small_checkout, edit):
    """A scale changes "tall" into "wide": the run is the paper's for one and not for the other."""
    edit("recipes.yaml", widths(tall={"model": {"args": {"width": 80}}}))
    edit(LAPTOP, {"recipes": {"tall": {"model": {"args": {"width": 64}}}}})
    rows = [{"label": "Narrow", "width": "tall"}, {"label": "Wide", "width": "wide"}]
    edit("artifacts.yaml", table1({"rows": rows}))
    catalog = load_catalog(small_checkout)
    table = catalog.paper("template").artifacts["table1"]
    assert len(catalog.runs_of(table)) == 1
    assert {cell.row for cell in table.cells if cell.comparable} == {"Wide"}


def test_a_training_on_the_cpu_has_the_threads_that_its_scale_gives_it(small_checkout, edit):
    edit(LAPTOP, runs(**{"*": {"resources": {"train": {"threads": 4, "nodes": 2}}}}))
    catalog = load_catalog(small_checkout, scale="laptop")
    asked = catalog.resources(catalog.paper("template").run("wide"))
    assert (asked.threads, asked.nodes, asked.gpus) == (4, 2, 0)


def test_devices_that_cannot_share_a_training_are_told_before_it_begins(small_checkout, edit):
    one, two = ({"resources": {"train": {"gpus": gpus}}} for gpus in (1, 2))
    edit("recipes.yaml", widths(wide={"batch": {"size": 64, "micro": 64}}))
    edit(FULL, runs(**{"*": one, "wide": two}))
    catalog = load_catalog(small_checkout, scale="full")
    with pytest.raises(VitrailError) as refused:
        catalog.require_devices(catalog.artifacts)
    for word in ("'wide'", "'full'", "gpus: 2"):
        assert word in str(refused.value)
    edit("recipes.yaml", widths(wide={"batch": {"size": 64, "micro": 32}}))
    catalog = load_catalog(small_checkout, scale="full")
    catalog.require_devices(catalog.artifacts)


def test_a_fine_tuning_of_a_stand_in_is_a_stand_in(small_checkout, edit):
    edit("recipes.yaml", widths(tuned=FROM_WIDE))
    assert template(small_checkout).as_printed("tuned")
    edit(LAPTOP, {"recipes": {"wide": {"label_smoothing": 0.1}}})
    paper = template(small_checkout)
    assert not paper.as_printed("tuned")
    assert paper.as_printed("narrow")


def test_a_pattern_of_recipes_has_seeds_and_resources_of_its_own(small_checkout, edit):
    train = {"gpus": 2, "threads": 20, "mem_mb": 90000}
    patterns = {
        "*": {"seeds": 2},
        "wi*": {"seeds": 5, "resources": {"train": train}},
    }
    edit(FULL, runs(**patterns))
    catalog = load_catalog(small_checkout, scale="full")
    paper = catalog.paper("template")
    narrow, wide = paper.run("narrow"), paper.run("wide")
    assert (len(paper.runs("narrow")), len(paper.runs("wide"))) == (2, 5)
    runtime = catalog.scale.resources_of("train").runtime
    assert catalog.resources(wide).model_dump() == {**train, "nodes": 1, "runtime": runtime}
    own = catalog.scale.resources_of("train").model_copy(update={"gpus": 1})  # as the paper has it
    assert catalog.resources(narrow) == own
    measurement = paper.measurement("accuracy", "wide")
    assert catalog.resources(measurement) == catalog.scale.resources_of("evaluate")


def test_how_a_training_is_watched_changes_neither_its_run_nor_its_identity(small_checkout, edit):
    def planned():
        catalog = load_catalog(small_checkout)
        return catalog.training_node(catalog.paper("template").run("wide"))

    before = planned()
    edit(LAPTOP, runs(wide={"validate_every": 5}))
    after = planned()
    assert [node.options.validate_every for node in (before, after)] == [None, 5]
    assert training_of(after).options == after.options
    assert (after.identity, after.output) == (before.identity, before.output)


def test_a_training_is_due_by_its_code_only_where_that_is_asked_for(small_checkout):
    places = {"runs_root": str(small_checkout / "runs")}
    run = template(small_checkout, **places).run("wide")

    def planned(**options):
        return load_catalog(small_checkout, **places, **options).training_node(run)

    node = planned()
    older = node.model_copy(update={"code": "fedcba9876543210"})
    assert older.identity == node.identity
    assert (code_due(node), trained_by(run)) == (node.code, None)
    run.folder.mkdir(parents=True)
    run.weights.write_text("weights")
    facts = {"code": "0123456789abcdef+fedcba9876543210"}
    complete(older, {"sha256": "", "facts": facts})
    assert trained_by(run) == facts["code"]
    assert code_due(node) == older.code  # so nothing is due, whatever code the run began with
    again = planned(retrain="changed")
    assert (code_due(again), again.retrain, node.retrain) == (node.code, True, False)
    record = run.record.read_text()
    run.record.write_text(record[:-9])  # the remedy for a damaged record can be planned
    assert code_due(node) == node.code
    run.record.write_text(record)
    run.weights.unlink()  # as of a restored record
    assert code_due(node) == older.code


def test_a_measure_of_a_recipe_needs_no_training(small_checkout, edit):
    edit("artifacts.yaml", table1({"cell": {"measure": "parameters"}, "columns": [
        {"label": "Parameters", "key": "parameters"}, {"label": "Accuracy", "key": "parameters"}
    ]}))  # fmt: skip
    catalog = load_catalog(small_checkout, scale="full")
    paper = catalog.paper("template")
    measurement = paper.measurement("parameters", "wide")
    assert (measurement.run, measurement.on) == (None, paper.run("wide"))
    assert len(paper.measurements("parameters", "wide")) == 1
    assert catalog.resources(measurement) == catalog.scale.resources_of("benchmark")
    assert measurement.path.parent == catalog.runs_root / "template" / "measurements"
    assert measurement.path != paper.measurement("parameters", "narrow").path
    assert catalog.runs_of(paper.artifacts["table1"]) == ()
    assert catalog.runs == {}


def test_a_number_of_other_hardware_is_not_comparable(small_checkout, edit):
    columns = [
        {"label": "Accuracy", "measure": "accuracy", "key": "top1"},
        {"label": "Parameters", "measure": "parameters", "key": "parameters", "comparable": False},
    ]
    edit("artifacts.yaml", table1({"columns": columns}))
    cells = template(small_checkout).artifacts["table1"].cells
    assert {cell.column for cell in cells if cell.comparable} == {"Accuracy"}


def test_a_measurement_is_named_by_what_it_measures(small_checkout, edit):
    before = template(small_checkout).measurement("accuracy", "wide")
    edit("artifacts.yaml", {"measures": {"accuracy": {"args": {"batch_size": 7}}}})
    after = template(small_checkout).measurement("accuracy", "wide")
    assert before.path.parent == after.path.parent
    assert before.path != after.path


def test_the_lead_papers_artifacts_also_go_by_short_names(small_checkout):
    papers = small_checkout / "configs" / "papers"
    shutil.copytree(papers / "template", papers / "other")
    for lead in ("template", "other"):
        targets = load_catalog(small_checkout, lead_paper=lead).targets
        assert targets["table1"].files == targets[f"{lead}_table1"].files


def test_collections_hold_every_artifact(small_checkout):
    targets = load_catalog(small_checkout).targets
    files = targets["template_table1"].files
    assert [file.suffix for file in files] == [".csv", ".md"]
    assert files == targets["template"].files == targets["tables"].files
    assert set(files) < set(targets["all"].files)
    assert targets["figures"].files == ()


def test_a_target_is_in_its_page_or_in_the_folder_of_all_its_files(small_checkout):
    catalog = load_catalog(small_checkout, scale="laptop")
    place = {name: catalog.place_of(catalog.targets[name]) for name in ("template_table1", "all")}
    assert place == {
        "template_table1": "results/laptop/template/table1.md",
        "all": "results/laptop/, all on one page in results/laptop/report.html",
    }


@pytest.mark.parametrize(
    ("file", "delta", "sentence"),
    [
        ("artifacts.yaml", table1({"cell": {"recipe": "wid"}}), "did you mean 'wide'"),
        ("artifacts.yaml", table1({"kaption": ""}), "did you mean 'caption'"),
        ("artifacts.yaml", {"measures": {"accuracy": {"on": None}}}, "takes no recipe"),
        (LAPTOP, {"artifacts": ["table2"]}, "laptop.yaml: artifact 'table2' is unknown; did you"),
        (LAPTOP, {"measures": {"acuracy": {}}}, "did you mean 'accuracy'"),
        (LAPTOP, {"untested": {"wider-reads-beter": "x"}}, "did you mean 'wider-reads-better'"),
        ("artifacts.yaml", table1({"cell": {"digits": "four"}}), "cell.digits' is 'four'"),
        ("artifacts.yaml", table1({"rows": WRONG_ROWS}), "'digits' is 'four'"),
        ("artifacts.yaml", table1({"cell": {"recipe": "{width"}}), "is no template"),
        ("scales/lapotp.yaml", {}, "did you mean 'laptop'"),
        ("artifacts.yaml", {"measures": {"accuracy": {"seeds": 9}}}, "wants 9 seeds"),
        ("artifacts.yaml", {"measures": {"accuracy": {"datasets": ["x"]}}}, "'x' is unknown"),
        (LAPTOP, {"recipes": {"*": {"data": 28}}}, "laptop.yaml:3: 'data: 28' replaces several"),
        (LAPTOP, {"recipes": {"wi?e, wade": {}}}, "recipe 'wade' is unknown; did you mean 'wide'"),
        (LAPTOP, {"recipes": {"*": {"batch": {"size": 0}}}}, "laptop.yaml:4): 'batch.size' is 0"),
        (LAPTOP, {"recipe": {}}, "laptop.yaml:1: unknown key 'recipe'; did you mean 'recipes'"),
        (LAPTOP, runs(**{"w*": {}, "wade": {}}), "did you mean 'wide'"),
        (LAPTOP, runs(wide={"seed": 3}), "did you mean 'seeds'"),
        ("recipes.yaml", widths(wide={"extends": "narow"}), "'wide' extends 'narow', which is unk"),
        ("recipes.yaml", widths(wide={"extends": "tall"}, tall={"extends": "wide"}),
         "'wide' extends itself (wide <- tall <- wide); correct one extends"),
        ("recipes.yaml", widths(wide={"model": {"weights_from": "narow"}}), "mean 'narrow'"),
        ("recipes.yaml", widths(wide={"model": {"weights_from": "wide"}}), "(wide <- wide)"),
        ("recipes.yaml", widths(
            narrow={"model": {"weights_from": "wide"}}, wide={"model": {"weights_from": "narrow"}}
        ), "recipe 'narrow' starts from its own weights (narrow <- wide <- narrow)"),
        ("recipes.yaml", widths(wide={"model": {"pretrained": True, "weights_from": "narrow"}}),
         "two origins of weights: keep one"),
        ("artifacts.yaml", {"measures": {"accuracy": {"on": "runs"}}}, "accuracy.on' is 'runs'"),
        ("recipes.yaml", {"base": {"data": {"dataset": "digit"}}}, "did you mean 'digits'"),
        ("recipes.yaml", {"base": {"optimizer": {"lr": "fast"}}}, "'optimizer.lr' is 'fast'"),
        ("paper.yaml", {"titel": "x"}, "did you mean 'title'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_papers_folder_is_one_sentence(small_checkout, edit, file, delta, sentence):
    edit(file, delta)
    with pytest.raises(VitrailError) as error:
        list(load_catalog(small_checkout).artifacts)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "labelled", "group"),
    [
        ("columns", {"measure": "parameters", "key": "parameters"}, "CIFAR10"),
        ("columns", {"measure": "parameters", "key": "parameters"}, None),
        ("rows", {"width": "wide"}, "Networks"),
    ],
)
def test_two_rows_or_columns_of_one_label_and_group_are_refused(
    small_checkout, edit, kind, labelled, group
):
    """Cells are looked up by labels: each of the two would show the last one's number."""
    spec = read_yaml(small_checkout / "configs/papers/template/artifacts.yaml")
    spec = spec["artifacts"]["table1"]
    twin = {**labelled, "label": spec[kind][0]["label"]}
    first = {**spec[kind][0], "group": group}
    apart = [first, {**twin, "group": "another"}, *spec[kind][1:]]
    (small_checkout / "configs/papers/template/reference/table1.csv").unlink()
    (small_checkout / "configs/papers/template/claims.yaml").unlink()
    edit("artifacts.yaml", table1({kind: apart}))
    assert len(list(load_catalog(small_checkout).artifacts)) == 1
    edit("artifacts.yaml", table1({kind: [first, {**twin, "group": group}, *spec[kind][1:]]}))
    with pytest.raises(VitrailError) as error:
        load_catalog(small_checkout)
    for told in (f"template/artifacts.yaml, table1: two {kind}", twin["label"], group or "two"):
        assert told in str(error.value)


def test_a_fine_tuning_has_no_more_seeds_than_its_source(small_checkout, edit):
    edit("recipes.yaml", widths(tuned=FROM_WIDE))
    edit(LAPTOP, runs(tuned={"seeds": 4}))
    with pytest.raises(VitrailError, match="recipe 'tuned' has 4 seeds at scale 'laptop'"):
        template(small_checkout).run("tuned")


def test_a_name_is_a_table_in_every_paper_or_in_none(small_checkout, edit):
    papers = small_checkout / "configs" / "papers"
    shutil.copytree(papers / "template", papers / "other")
    edit("artifacts.yaml", table1({"draw": "vitrail.nowhere:draw"}))
    with pytest.raises(VitrailError, match="'table1' is a figure in 'template' and a table in"):
        load_catalog(small_checkout)


def test_a_cell_that_shows_another_measurement_is_rendered_again(small_checkout, edit):
    def identity():
        catalog = load_catalog(small_checkout)
        return catalog.rendering_node(catalog.paper("template").artifacts["table1"]).identity

    before = identity()
    rows = [{"label": "Narrow", "width": "wide"}, {"label": "Wide", "width": "narrow"}]
    edit("artifacts.yaml", table1({"rows": rows}))
    assert identity() != before


def test_every_record_of_a_scale_has_its_node_and_no_other_file_has_one(small_checkout):
    catalog = load_catalog(small_checkout)
    records = [*catalog.runs, *catalog.measurements, *catalog.renderings, catalog.report]
    kinds = [catalog.node(record).kind for record in records]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counts == {"training": 2, "measurement": 4, "rendering": 1, "report": 1}
    assert all(catalog.node(record).output == record for record in records)
    for other in (records[0].with_name("trained-seed7.json"), catalog.receipt_of("digits")):
        with pytest.raises(VitrailError, match="belongs to no recipe and no artifact"):
            catalog.node(other)


PARTITIONS, ACCURACY = (
    "slurm/partitions.yaml",
    "src/replication/measures/accuracy.py",
)
NAMES = {"narrow", "wide", "accuracy", "parameters", "table1", "report"}


@pytest.fixture
def committed(small_checkout, monkeypatch):
    """The checkout in git, with a module of its own and a cluster's partitions."""
    for name in (PARTITIONS, ACCURACY):
        (small_checkout / name).parent.mkdir(parents=True)
        (small_checkout / name).write_text("committed\n")
    begin(small_checkout)
    sources = small_checkout / "src"
    monkeypatch.setattr(provenance, "PACKAGE", sources / "vitrail")
    monkeypatch.setattr(
        module, "file_of", lambda name: sources / file_of(name).relative_to(SOURCES)
    )
    return small_checkout


def name_of(node):
    named = {"training": "run", "measurement": "measurement", "rendering": "artifact"}
    return getattr(node, named[node.kind]).name if node.kind in named else node.kind


@pytest.mark.parametrize(
    ("file", "dirty"),
    [
        (PARTITIONS, set()),
        (ACCURACY, {"accuracy"}),
        (".git/index", NAMES),  # git then cannot tell what has changed
    ],
)
def test_the_commit_of_a_node_is_dirty_where_a_file_behind_it_may_have_changed(
    committed, file, dirty
):
    head = git(committed, "rev-parse", "HEAD")
    (committed / file).write_text("edited\n")
    catalog = load_catalog(committed)
    nodes = map(catalog.node, (*catalog.records, catalog.report))
    commits = {(name_of(node), node.commit) for node in nodes}
    assert commits == {(name, head + "-dirty" * (name in dirty)) for name in NAMES}


def test_the_inputs_of_a_node_are_the_records_that_it_reads(small_checkout, edit):
    edit("recipes.yaml", widths(tuned=FROM_WIDE))
    edit(LAPTOP, runs(**{"*": {"seeds": 2}}))
    catalog = load_catalog(small_checkout)
    paper = catalog.paper("template")
    tuned, digits = paper.runs("tuned")[1], catalog.receipt_of("digits")
    training = catalog.training_node(tuned)
    assert set(training.inputs) == {paper.runs("wide")[1].record, digits}
    measurement = catalog.measurement_node(paper.measurements("accuracy", "tuned")[1])
    assert set(measurement.inputs) == {tuned.record, digits}
    table = catalog.paper("template").artifacts["table1"]
    rendering = catalog.rendering_node(table)
    assert set(rendering.inputs) == {own.path for own in catalog.measurements_of(table)}
    assert len(rendering.inputs) == 6  # accuracies under two seeds, and counted parameters
    assert catalog.report_node.inputs == (rendering.output,)


def test_a_job_asks_for_no_gpu_that_it_does_not_use(small_checkout, edit):
    edit("recipes.yaml", {"axes": {"width": {"wide": {"schedule": {"epochs": 0}}}}})
    edit("artifacts.yaml", {"measures": {"parameters": {"device": "cpu"}}})
    catalog = load_catalog(small_checkout, scale="full")
    paper = catalog.paper("template")
    assert catalog.resources(paper.run("narrow")).gpus == 1
    assert catalog.resources(paper.run("wide")).gpus == 0
    trained, copied = (catalog.resources(paper.run(name)) for name in ("narrow", "wide"))
    assert copied.mem_mb < trained.mem_mb
    assert copied.runtime < trained.runtime
    evaluated, counted = (
        catalog.resources(paper.measurement(name, "wide")) for name in ("accuracy", "parameters")
    )
    assert (evaluated.gpus, counted.gpus) == (1, 0)
    assert counted.mem_mb < evaluated.mem_mb


def test_a_printed_value_without_a_cell_is_refused(small_checkout):
    reference = small_checkout / "configs/papers/template/reference/table1.csv"
    reference.write_text(reference.read_text() + 'Tall,Accuracy,1,,"Table 1"\n')
    with pytest.raises(VitrailError, match=r"\('Tall', 'Accuracy'\) is not in artifacts.yaml"):
        list(load_catalog(small_checkout).artifacts)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda c: c.target("template_tabel1"), "did you mean 'template_table1'"),
        (lambda c: c.paper("templat"), "did you mean 'template'"),
        (lambda c: c.paper("template").run("wid"), "did you mean 'wide'"),
        (lambda c: c.paper("template").measurement("accurasy", None), "did you mean 'accuracy'"),
    ],
)
def test_unknown_names_get_a_suggestion(small_checkout, ask, sentence):
    with pytest.raises(VitrailError, match=sentence):
        ask(load_catalog(small_checkout))


def test_outside_a_checkout_one_is_told_where_to_go(tmp_path):
    with pytest.raises(VitrailError, match="run this from the project's root"):
        load_catalog(tmp_path)


def test_a_dataset_is_verified_anew_where_its_digest_changes(root):
    catalog = load_catalog(root)
    info, before = catalog.datasets["cifar10"], catalog.made_of("cifar10")
    catalog.datasets["cifar10"] = info.model_copy(update={"digest": "0" * 64})
    assert catalog.made_of("cifar10") != before


def test_a_dataset_is_fetched_anew_where_its_files_or_their_code_change(root, monkeypatch):
    catalog = load_catalog(root)
    info = catalog.datasets["cifar10"]
    file = info.files[0].model_copy(update={"sha256": "0" * 64, "md5": None})
    before = catalog.made_of("cifar10"), catalog.made_of("loveda")
    catalog.datasets["cifar10"] = info.model_copy(update={"files": [file]})
    assert catalog.made_of("cifar10") != before[0]
    monkeypatch.setattr(module, "preparation_code", lambda _: Code(("other code",)))
    assert catalog.made_of("loveda") != before[1]


def test_a_paper_is_made_at_the_scales_that_it_has_a_file_of(small_checkout):
    made = {
        scale: bool(template(small_checkout, scale=scale).artifacts)
        for scale in known_scales(small_checkout)
    }
    assert made == {"full": True, "laptop": True, "small": False, "workstation": False}


def resources(catalog):
    asked = (*catalog.runs.values(), *catalog.measurements.values())
    return [(one, catalog.resources(one)) for one in asked]


def test_on_a_cpu_no_job_of_full_scale_asks_for_a_gpu(root):
    asked = resources(load_catalog(root, scale="full", device="cpu"))
    assert {(each.nodes, each.gpus) for _, each in asked} == {(1, 0)}


def test_on_a_gpu_what_trains_and_measures_at_laptop_scale_asks_for_one(root):
    for one, each in resources(load_catalog(root, scale="laptop", device="cuda")):
        copied = isinstance(one, Run) and not one.recipe.steps(one.dataset.train_images)
        on_cpu = copied or getattr(one, "device", "cuda") == "cpu"
        assert each.gpus == (0 if on_cpu else 1)


def test_a_collection_has_the_artifacts_that_name_it(root):
    """Benchmarks and proofs need neither training nor data, at full size."""
    catalog = catalog_of("full")
    targets = catalog.targets
    assert {"octic_table1", "shift_table3"} < {a.target for a in targets["benchmarks"].artifacts}
    assert {a.target for a in targets["proofs"].artifacts} == {"octic_proofs", "shift_proofs"}
    for name in ("benchmarks", "proofs"):
        for artifact in targets[name].artifacts:
            assert artifact.collection == name
            assert not catalog.runs_of(artifact)
            assert not any(own.datasets for own in catalog.measurements_of(artifact))
