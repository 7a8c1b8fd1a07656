import json
import shutil

import pytest
import yaml

from replication.plan.schema import read_yaml


def test_a_cell_is_shown_with_run_measure_printed_value_and_place(vitrail, catalog):
    run = catalog().paper("tiny").run("plain")
    out = vitrail("show", "tiny_table1", "--scale", "smoke").out
    cells = [line for line in out.splitlines() if line.startswith("Plain ") and "Top-1" in line]
    assert f"plain-{run.recipe.hash}" in cells[0]
    assert "accuracy: top1" in cells[0]
    assert "74.8 ± 0.1" in cells[0]
    assert "Table 1, p. 1" in cells[0]
    assert str(run.folder) in out
    assert "Not made here yet: snakemake tiny_table1 --config scale=smoke" in out


def test_a_recipe_is_printed_as_yaml_that_reads_back(vitrail, catalog):
    out = vitrail("show", "tiny", "--recipe", "mixup", "--scale", "full").out
    recipe = catalog("full").paper("tiny").run("mixup").recipe
    assert yaml.safe_load(out) == recipe.model_dump(mode="json")


def test_a_shared_run_a_source_and_an_untrained_recipe_are_told(vitrail, catalog, fine_tuning):
    plain, tuned = (catalog().paper("tiny").run(name) for name in ("plain", "tuned"))
    lines = vitrail("show", "tiny_table2", "--scale", "smoke").out.splitlines()
    cells = {tuple(line.split()[:2]): line.split() for line in lines}
    assert plain.folder.name in cells["Again", "Top-1"]
    assert f"({tuned.folder.name})" in cells["Tuned", "Size"]
    assert cells["tuned", tuned.recipe.hash][-1] == plain.folder.name
    assert cells["plain", plain.recipe.hash][-1] == str(plain.folder)


@pytest.mark.parametrize("name", ["again", "plain", "tiny/again", "{folder}"])
def test_recipes_that_share_a_run_are_found_by_name_and_folder(vitrail, catalog, fine_tuning, name):
    run = catalog("full").paper("tiny").run("again")
    done = vitrail("show", "--recipe", name.format(folder=run.folder.name), "--scale", "full")
    assert yaml.safe_load(done.out) == run.recipe.model_dump(mode="json")
    called = name.rpartition("/")[2].format(folder="plain")
    assert f"recipe {called} at scale full: {run.folder}" in done.out


def test_a_printed_answer_is_yes_or_no(vitrail, checkout):
    paper = checkout / "configs" / "papers" / "tiny"
    artifacts = read_yaml(paper / "artifacts.yaml")
    artifacts["artifacts"]["table1"]["columns"][1] |= {"unit": "yes/no", "digits": 0}
    (paper / "artifacts.yaml").write_text(yaml.safe_dump(artifacts, sort_keys=False))
    reference = paper / "reference" / "table1.csv"
    reference.write_text(reference.read_text().replace("Mixup,Ratio,0.5", "Mixup,Ratio,1"))
    lines = vitrail("show", "tiny_table1", "--scale", "smoke").out.splitlines()
    assert [line for line in lines if line.startswith("Mixup") and " yes " in line]


def test_an_unknown_recipe_is_answered_with_the_closest(vitrail):
    done = vitrail("show", "tiny", "--recipe", "mixpu")
    assert done.code == 2
    assert "did you mean 'mixup'?" in done.err


@pytest.mark.parametrize("name", ["mixup", "tiny/mixup", "{folder}", "tiny/{folder}"])
def test_a_recipe_needs_no_target(vitrail, catalog, name):
    run = catalog("full").paper("tiny").run("mixup")
    name = name.format(folder=run.folder.name)
    out = vitrail("show", "--recipe", name, "--scale", "full").out
    assert yaml.safe_load(out) == run.recipe.model_dump(mode="json")


def test_a_recipe_of_several_papers_needs_the_paper(vitrail, checkout):
    papers = checkout / "configs" / "papers"
    shutil.copytree(papers / "tiny", papers / "other")
    done = vitrail("show", "--recipe", "mixup")
    assert done.code == 2
    assert "several papers have a recipe 'mixup': name other/mixup or tiny/mixup" in done.err
    assert "# other, recipe mixup" in vitrail("show", "--recipe", "other/mixup").out


def test_why_names_beside_each_value_what_set_it(vitrail, catalog, checkout):
    out = vitrail("show", "--recipe", "mixup", "--why", "--scale", "smoke").out
    recipe = catalog().paper("tiny").run("mixup").recipe
    assert yaml.safe_load(out) == recipe.model_dump(mode="json")
    said = dict(line.split("  # ") for line in out.splitlines()[1:] if "  # " in line)
    said = {value.strip(): place for value, place in said.items()}
    paper = "configs/papers/tiny"
    for value, place in {
        "mixup: 0.8": f"{paper}/recipes.yaml",
        "depth: 1": f"{paper}/recipes.yaml",
        "epochs: 1": f"{paper}/scales/smoke.yaml",
        "dataset: digits": "configs/scales/laptop.yaml",
    }.items():
        file, _, number = said[value].rpartition(":")
        assert file == place
        line = (checkout / file).read_text().splitlines()[int(number) - 1]
        assert line.strip() in (value, "imagenet: digits")
    assert said["version: 1"] == "configs/datasets.yaml: the version of digits"
    assert said["cutmix: 0.0"] == "default"


def test_why_needs_a_recipe(vitrail):
    done = vitrail("show", "tiny", "--why")
    assert done.code == 2
    assert "--why explains a recipe; add --recipe NAME" in done.err


def test_an_unknown_recipe_of_a_paper_is_answered_with_the_closest(vitrail):
    done = vitrail("show", "--recipe", "tiny/mixpu")
    assert done.code == 2
    assert "did you mean 'tiny/mixup'?" in done.err


def test_show_without_target_and_recipe_says_what_to_give(vitrail):
    done = vitrail("show")
    assert done.code == 2
    assert "show needs a target" in done.err


def test_what_is_measured_stands_beside_what_is_printed(vitrail, write_results):
    write_results({("Plain", "Top-1"): {"measured": 75.25, "std": 0.5, "verdict": "outside"}})
    lines = vitrail("show", "tiny_table1", "--scale", "smoke").out.splitlines()
    cell = next(line for line in lines if line.startswith("Plain ") and "Top-1" in line)
    assert "75.2 ± 0.5‡" in cell
    assert cell.index("75.2 ± 0.5‡") < cell.index("74.8 ± 0.1")


def test_json_has_the_numbers(vitrail, write_results):
    write_results({("Plain", "Top-1"): {"measured": 75.25, "std": 0.5, "verdict": "outside"}})
    (table,) = json.loads(vitrail("show", "tiny_table1", "--scale", "smoke", "--json").out)
    assert table["target"] == "tiny_table1"
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    plain = cells["Plain", "Top-1"]
    assert (plain["measured"], plain["std"], plain["printed"]) == (75.25, 0.5, 74.8)
    assert cells["Mixup", "Top-1"]["measured"] is None
