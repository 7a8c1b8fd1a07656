"""The catalogue links a paper's folder into runs, measurements, artifacts and targets."""

import shutil
import subprocess
import sys

import pytest
import yaml

from vitrine.catalog import load_catalog, rerun_trigger
from vitrine.errors import VitrineError
from vitrine.schema import merge, read_yaml


@pytest.fixture
def edit(small_checkout):
    """Change a file of the template paper."""

    def change(name, delta):
        path = small_checkout / "configs" / "papers" / "template" / name
        path.write_text(yaml.safe_dump(merge(read_yaml(path), delta), sort_keys=False))

    return change


WRONG_ROW = {"label": "Narrow", "width": "narrow", "digits": "four"}


def at_laptop(delta):
    return {"scales": {"laptop": delta}}


def table1(delta):
    return {"artifacts": {"table1": delta}}


def template(checkout, **overrides):
    return load_catalog(checkout, **overrides).paper("template")


def test_the_catalogue_loads_without_torch(root):
    code = "import sys; import vitrine.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "full"])
def test_every_artifact_of_every_paper_resolves(root, scale):
    catalog = load_catalog(root, scale=scale)
    artifacts = list(catalog.artifacts)
    assert artifacts
    assert all(artifact.measurements for artifact in artifacts)
    assert len(catalog.measurements) == len({m.path for m in catalog.measurements.values()})


def test_two_artifacts_that_need_one_run_share_it(small_checkout):
    table = template(small_checkout).artifacts["table1"]
    assert len(table.measurements) == 4
    assert len(table.runs) == 2


def test_the_folder_of_a_run_follows_its_recipe(small_checkout, edit):
    before = {name: template(small_checkout).run(name).folder for name in ("narrow", "wide")}
    edit("recipes.yaml", {"axes": {"width": {"wide": {"optimizer": {"lr": 0.5}}}}})
    after = {name: template(small_checkout).run(name).folder for name in ("narrow", "wide")}
    assert before["narrow"] == after["narrow"]
    assert before["wide"] != after["wide"]


def test_a_stand_in_is_never_comparable(small_checkout, edit):
    assert all(cell.comparable for cell in template(small_checkout).artifacts["table1"].cells)
    edit(
        "recipes.yaml", {"scales": {"laptop": {"models": {"template_mlp": {"args": {"width": 4}}}}}}
    )
    assert not any(cell.comparable for cell in template(small_checkout).artifacts["table1"].cells)


def test_other_arguments_are_not_comparable(small_checkout, edit):
    edit(
        "artifacts.yaml",
        {"scales": {"laptop": {"measures": {"accuracy": {"args": {"image_size": 9}}}}}},
    )
    cells = template(small_checkout).artifacts["table1"].cells
    assert {cell.column for cell in cells if cell.comparable} == {"Parameters"}


def test_a_dataset_stands_in_for_another_by_name_alone(small_checkout, edit):
    edit("recipes.yaml", {"base": {"data": {"dataset": "imagenet"}}})
    paper = template(small_checkout)
    run = paper.run("narrow")
    assert (run.recipe.data.dataset, run.info.name) == ("digits", "digits")
    assert not paper.as_printed("narrow")
    assert template(small_checkout, scale="full").run("narrow").recipe.data.dataset == "imagenet"


def test_deltas_are_laid_in_order_with_the_most_particular_last(small_checkout, edit):
    edit(
        "recipes.yaml",
        {
            "base": {"schedule": {"epochs": 300}},
            "scales": {
                "laptop": {
                    "recipe": {"schedule": {"epochs": 10}, "label_smoothing": 0.3},
                    "recipes": {"wi*": {"schedule": {"epochs": 20}}},
                }
            },
        },
    )
    paper = template(small_checkout)
    assert paper.run("narrow").recipe.schedule.epochs == 10
    assert paper.run("wide").recipe.schedule.epochs == 20
    assert paper.run("wide").recipe.label_smoothing == 0.3
    assert template(small_checkout, scale="full").run("wide").recipe.schedule.epochs == 300


def test_seeds_are_shared_out_among_jobs(small_checkout, edit):
    edit("recipes.yaml", {"scales": {"laptop": {"seeds": 5, "seeds_per_job": 2}}})
    run = template(small_checkout).run("wide")
    assert run.jobs == ((0, 1), (2, 3), (4,))
    assert run.receipts[0].name == "trained-0-1.json"


def test_a_measurement_is_named_by_what_it_measures(small_checkout, edit):
    before = template(small_checkout).measurement("accuracy", "wide")
    edit("artifacts.yaml", {"measures": {"accuracy": {"args": {"batch_size": 7}}}})
    after = template(small_checkout).measurement("accuracy", "wide")
    assert before.path.parent == after.path.parent
    assert before.path != after.path


def test_the_lead_papers_artifacts_also_go_by_short_names(small_checkout):
    targets = load_catalog(small_checkout, lead_paper="template").targets
    assert targets["table1"].files == targets["template_table1"].files
    assert "table1" not in load_catalog(small_checkout).targets


def test_collections_hold_every_artifact(small_checkout):
    targets = load_catalog(small_checkout).targets
    files = targets["template_table1"].files
    assert [file.suffix for file in files] == [".csv", ".md", ".tex"]
    assert files == targets["template"].files == targets["tables"].files
    assert set(files) < set(targets["all"].files)
    assert targets["figures"].files == ()


@pytest.mark.parametrize(
    ("file", "delta", "sentence"),
    [
        ("artifacts.yaml", table1({"cell": {"recipe": "wid"}}), "did you mean 'wide'"),
        ("artifacts.yaml", table1({"kaption": ""}), "did you mean 'caption'"),
        ("artifacts.yaml", {"measures": {"accuracy": {"on": None}}}, "takes no recipe"),
        ("artifacts.yaml", at_laptop({"artifacts": ["table2"]}), "did you mean 'table1'"),
        ("artifacts.yaml", at_laptop({"measures": {"acuracy": {}}}), "did you mean 'accuracy'"),
        ("artifacts.yaml", table1({"cell": {"digits": "four"}}), "cell.digits' is 'four'"),
        ("artifacts.yaml", table1({"rows": [WRONG_ROW]}), "'digits' is 'four'"),
        ("artifacts.yaml", table1({"cell": {"recipe": "{width"}}), "is no template"),
        ("artifacts.yaml", {"scales": {"lapotp": {}}}, "did you mean 'laptop'"),
        ("artifacts.yaml", {"measures": {"accuracy": {"seeds": 9}}}, "wants 9 seeds"),
        ("artifacts.yaml", {"measures": {"accuracy": {"datasets": ["x"]}}}, "no dataset 'x'"),
        ("recipes.yaml", {"scales": {"lapotp": {}}}, "did you mean 'laptop'"),
        ("recipes.yaml", at_laptop({"recipe": {"data": 28}}), "'data: 28' replaces several keys"),
        ("recipes.yaml", at_laptop({"recipes": {"wi?e": {}, "wade": {}}}), "did you mean 'wide'"),
        ("recipes.yaml", at_laptop({"models": {"template_mpl": {}}}), "mean 'template_mlp'"),
        ("recipes.yaml", {"base": {"data": {"dataset": "digit"}}}, "did you mean 'digits'"),
        ("recipes.yaml", {"base": {"optimizer": {"lr": "fast"}}}, "'optimizer.lr' is 'fast'"),
        ("paper.yaml", {"titel": "x"}, "did you mean 'title'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_papers_folder_is_one_sentence(small_checkout, edit, file, delta, sentence):
    edit(file, delta)
    with pytest.raises(VitrineError) as error:
        list(load_catalog(small_checkout).artifacts)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_name_is_a_table_in_every_paper_or_in_none(small_checkout, edit):
    papers = small_checkout / "configs" / "papers"
    shutil.copytree(papers / "template", papers / "other")
    edit("artifacts.yaml", table1({"draw": "vitrine.nowhere:draw"}))
    with pytest.raises(VitrineError, match="'table1' is a table in 'other' and a figure in"):
        load_catalog(small_checkout)


def test_a_cell_that_shows_another_measurement_is_rendered_again(small_checkout, edit):
    before = rerun_trigger(template(small_checkout).artifacts["table1"])
    rows = [{"label": "Narrow", "width": "wide"}, {"label": "Wide", "width": "narrow"}]
    edit("artifacts.yaml", table1({"rows": rows}))
    assert rerun_trigger(template(small_checkout).artifacts["table1"]) != before


def test_a_job_asks_for_no_gpu_that_it_does_not_use(small_checkout, edit):
    edit("recipes.yaml", {"axes": {"width": {"wide": {"schedule": {"epochs": 0}}}}})
    edit("artifacts.yaml", {"measures": {"parameters": {"device": "cpu"}}})
    catalog = load_catalog(small_checkout, scale="full")
    paper = catalog.paper("template")
    assert catalog.resources(paper.run("narrow")).gpus == 8
    assert catalog.resources(paper.run("wide")).gpus == 0
    assert catalog.resources(paper.measurement("accuracy", "wide")).gpus == 1
    assert catalog.resources(paper.measurement("parameters", "wide")).gpus == 0


def test_a_printed_value_without_a_cell_is_refused(small_checkout):
    reference = small_checkout / "configs/papers/template/reference/table1.csv"
    reference.write_text(reference.read_text() + 'Tall,Accuracy,1,,"Table 1"\n')
    with pytest.raises(VitrineError, match=r"\('Tall', 'Accuracy'\) is not in artifacts.yaml"):
        list(load_catalog(small_checkout).artifacts)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda c: c.target("template_tabel1"), "did you mean 'template_table1'"),
        (lambda c: c.paper("templat"), "did you mean 'template'"),
        (lambda c: c.artifact("template", "table9"), "did you mean 'table1'"),
        (lambda c: c.paper("template").run("wid"), "did you mean 'wide'"),
        (lambda c: c.paper("template").measurement("accurasy", None), "did you mean 'accuracy'"),
    ],
)
def test_unknown_names_get_a_suggestion(small_checkout, ask, sentence):
    with pytest.raises(VitrineError, match=sentence):
        ask(load_catalog(small_checkout))


def test_outside_a_checkout_one_is_told_where_to_go(tmp_path):
    with pytest.raises(VitrineError, match="run this from the project's root"):
        load_catalog(tmp_path)
