import itertools
import json
import re
import shutil

import pytest
import yaml

from replication.config.schema import as_yaml, read_yaml
from replication.report.ledger import published_folder


def test_a_cell_is_a_line_with_its_measured_and_printed_value_and_verdict(vitrail, write_results):
    write_results({("Plain", "Top-1"): {"measured": 75.25, "std": 0.5, "verdict": "outside"}})
    lines = vitrail("show", "tiny_table1", "--scale", "small").out.splitlines()
    (cell,) = [line.split() for line in lines if line.startswith("Plain  ") and "Top-1" in line]
    assert cell == [*["Plain", "Top-1"], *["75.2", "±", "0.5‡"], *["74.8", "±", "0.1"], "outside"]


def test_a_target_that_is_not_made_shows_what_is_printed_and_how_to_make_it(vitrail):
    out = vitrail("show", "tiny_table1", "--scale", "small").out
    assert "74.8 ± 0.1" in out
    assert "Not made here yet: snakemake tiny_table1 --config scale=small" in out


@pytest.mark.parametrize("altered", [False, True])
def test_a_table_that_does_not_follow_from_its_records_is_shown_with_the_remedy(
    vitrail, make, altered
):
    catalog = make({"plain": [75.0, 76.0, 77.0]})
    if altered:
        catalog.paper("tiny").run("plain").weights.write_text("other weights")
    out = vitrail("show", "tiny_table1", "--scale", "laptop").out
    assert ("snakemake tiny_table1 --forcerun" in out) == altered


def test_in_full_a_cell_has_its_measure_run_and_place_and_the_runs_their_folders(vitrail, catalog):
    run = catalog().paper("tiny").run("plain")
    lines = vitrail("show", "tiny_table1", "--scale", "small", "--long").out.splitlines()
    number = next(index for index, line in enumerate(lines) if line.startswith("Plain, Top-1: "))
    assert "printed 74.8 ± 0.1" in lines[number]
    assert f"accuracy: top1 of plain-{run.recipe.hash}; Table 1, p. 1" in lines[number + 1]
    assert [line for line in lines if line.split()[:1] == [str(run.home)]]


def test_a_group_of_columns_is_a_table_of_its_own(vitrail, checkout):
    paper = checkout / "configs" / "papers" / "tiny"
    for file in ("reference/table1.csv", "claims.yaml"):
        (paper / file).unlink()
    artifacts = read_yaml(paper / "artifacts.yaml")
    artifacts["artifacts"]["table1"]["columns"][0]["group"] = "Digits"
    (paper / "artifacts.yaml").write_text(as_yaml(artifacts))
    out = vitrail("show", "tiny_table1", "--scale", "small").out
    grouped, others = out.split("\nMix ")[1:]
    assert out.index("Digits\n") < out.index("\nMix ")
    assert (grouped.count("Top-1"), grouped.count("Ratio")) == (3, 0)
    assert (others.count("Top-1"), others.count("Ratio")) == (0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--why"]])
def test_a_segmenters_files_are_told_by_length_and_digest(vitrail, tracked, monkeypatch, options):
    monkeypatch.chdir(tracked)
    name = "shift/a_swin_upernet-ade20k-circular"
    out = vitrail("show", "--recipe", name, "--scale", "full", *options).out
    files = yaml.safe_load(out)["model"]["files"]
    assert [*files] == ["swin_t_upernet_ade20k_circular.py", "a_swin_t_upernet_ade20k_circular.py"]
    assert all(re.fullmatch(r"\d+ lines \(digest [0-9a-f]{8}\)", told) for told in files.values())
    if options:
        for file, told in files.items():
            (line,) = (line for line in out.splitlines() if line.startswith(f"    {file}: "))
            assert line.split(": ")[1].split("  # ") == [told, f"configs/segmentation/{file}"]


def test_a_shared_run_a_source_and_an_untrained_recipe_are_told(vitrail, catalog, fine_tuning):
    plain, tuned = (catalog().paper("tiny").run(name) for name in ("plain", "tuned"))
    lines = vitrail("show", "tiny_table2", "--scale", "small", "--long").out.splitlines()
    below = {line.split(":")[0]: after for line, after in itertools.pairwise(lines)}
    assert below["Again, Top-1"].endswith(f" of {plain.home.name}")
    assert below["Tuned, Size"].endswith(f" of ({tuned.home.name})")
    runs = [line.split() for line in lines if line.startswith(str(plain.home.parent))]
    assert [str(tuned.home), "0", plain.home.name] in runs
    assert [str(plain.home), "0"] in runs


@pytest.mark.parametrize("name", ["again", "plain", "tiny/again", "{folder}"])
def test_recipes_that_share_a_run_are_found_by_name_and_folder(vitrail, catalog, fine_tuning, name):
    run = catalog("full").paper("tiny").run("again")
    done = vitrail("show", "--recipe", name.format(folder=run.home.name), "--scale", "full")
    assert yaml.safe_load(done.out) == run.recipe.model_dump(mode="json")
    called = name.rpartition("/")[2].format(folder="plain")
    assert f"recipe {called} at scale full: {run.home}" in done.out


def test_a_printed_answer_is_yes_or_no(vitrail, checkout):
    paper = checkout / "configs" / "papers" / "tiny"
    artifacts = read_yaml(paper / "artifacts.yaml")
    artifacts["artifacts"]["table1"]["columns"][1] |= {"unit": "yes/no", "digits": 0}
    (paper / "artifacts.yaml").write_text(as_yaml(artifacts))
    reference = paper / "reference" / "table1.csv"
    reference.write_text(reference.read_text().replace("Mixup,Ratio,0.5", "Mixup,Ratio,1"))
    lines = vitrail("show", "tiny_table1", "--scale", "small").out.splitlines()
    assert [line for line in lines if line.startswith("Mixup") and " yes " in line]


def test_an_unknown_recipe_is_answered_with_the_closest(vitrail):
    done = vitrail("show", "--recipe", "mixpu")
    assert done.code == 2
    assert "did you mean 'mixup'?" in done.err


@pytest.mark.parametrize("name", ["mixup", "tiny/mixup", "{folder}", "tiny/{folder}"])
def test_a_recipe_needs_no_target(vitrail, catalog, name):
    run = catalog("full").paper("tiny").run("mixup")
    name = name.format(folder=run.home.name)
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
    out = vitrail("show", "--recipe", "mixup", "--why", "--scale", "small").out
    recipe = catalog().paper("tiny").run("mixup").recipe
    assert yaml.safe_load(out) == recipe.model_dump(mode="json")
    said = dict(line.split("  # ") for line in out.splitlines()[1:] if "  # " in line)
    said = {value.strip(): place for value, place in said.items()}
    paper = "configs/papers/tiny"
    for value, place in {
        "mixup: 0.8": f"{paper}/recipes.yaml",
        "depth: 1": f"{paper}/recipes.yaml",
        "epochs: 1": f"{paper}/scales/small.yaml",
        "dataset: digits": f"{paper}/scales/small.yaml",
    }.items():
        file, _, number = said[value].rpartition(":")
        assert file == place
        line = (checkout / file).read_text().splitlines()[int(number) - 1]
        assert line.strip() in (value, "imagenet: digits")
    assert said["version: 1"] == "configs/datasets.yaml: the version of digits"
    assert said["cutmix: 0.0"] == "default"


@pytest.mark.parametrize("option", ["tiny", "--long", "--json"])
def test_a_recipe_has_no_other_form(vitrail, option):
    done = vitrail("show", "--recipe", "mixup", option)
    assert done.code == 2
    assert "--recipe shows one recipe" in done.err


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


def test_json_has_the_numbers(vitrail, write_results):
    write_results({("Plain", "Top-1"): {"measured": 75.25, "std": 0.5, "verdict": "outside"}})
    (table,) = json.loads(vitrail("show", "tiny_table1", "--scale", "small", "--json").out)
    assert table["target"] == "tiny_table1"
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    plain = cells["Plain", "Top-1"]
    assert (plain["measured"], plain["std"], plain["printed"]) == (75.25, 0.5, 74.8)
    assert cells["Mixup", "Top-1"]["measured"] is None


def test_a_target_that_is_published_and_not_made_here_shows_the_published_numbers(
    vitrail, publish, checkout
):
    def numbers():
        lines = vitrail("show", "tiny_table1", "--scale", "laptop").out.splitlines()
        return [line.split() for line in lines if line.startswith(("Plain  ", "Mixup  "))]

    catalog = publish()
    here = numbers()
    assert here[0][2].replace(".", "").isdigit(), here
    shutil.rmtree(checkout / "results" / "laptop")
    assert numbers() == here
    out = vitrail("show", "tiny_table1", "--scale", "laptop").out
    assert f"{published_folder(catalog) / 'tiny' / 'table1.csv'}" in out
