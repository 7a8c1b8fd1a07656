import yaml


def test_a_cell_is_shown_with_run_measure_printed_value_and_place(vitrine, catalog):
    run = catalog().paper("tiny").run("plain")
    out = vitrine("show", "tiny_table1", "--scale", "smoke").out
    cells = [line for line in out.splitlines() if line.startswith("Plain ") and "Top-1" in line]
    assert f"plain-{run.recipe.hash}" in cells[0]
    assert "accuracy: top1" in cells[0]
    assert "74.8 ± 0.1" in cells[0]
    assert "Table 1, p. 1" in cells[0]
    assert str(run.folder) in out


def test_a_recipe_is_printed_as_yaml_that_reads_back(vitrine, catalog):
    out = vitrine("show", "tiny", "--recipe", "mixup", "--scale", "full").out
    recipe = catalog("full").paper("tiny").run("mixup").recipe
    assert yaml.safe_load(out) == recipe.model_dump(mode="json")


def test_an_unknown_recipe_is_answered_with_the_closest(vitrine):
    done = vitrine("show", "tiny", "--recipe", "mixpu")
    assert done.code == 2
    assert "did you mean 'mixup'?" in done.err
