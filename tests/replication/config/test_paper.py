"""A paper's folder is read strictly, and says in one sentence where it is wrong."""

import pytest
import yaml

from replication.config.paper import ArtifactSpec, Labelled, RecipesFile, fill, read_reference
from replication.config.schema import parse
from tests.conftest import ROOT
from vitrail.errors import VitrailError


def recipes_file(**changes):
    data = {
        "base": {"optimizer": {"lr": 1.0, "name": "sgd"}},
        "axes": {
            "size": {"s": {"model": {"name": "small"}}, "b": {"model": {"name": "base"}}},
            "lr": {"low": {"optimizer": {"lr": 0.1}}, "high": {}},
        },
        "recipes": [{"name": "{size}-{lr}"}],
        **changes,
    }
    return parse(RecipesFile, data, "recipes.yaml")


def test_a_family_is_the_product_of_its_axes_laid_over_the_base():
    recipes = recipes_file().expand("recipes.yaml")
    assert list(recipes) == ["s-low", "s-high", "b-low", "b-high"]
    assert recipes["b-low"] == {
        "task": "classification",
        "optimizer": {"lr": 0.1, "name": "sgd"},
        "model": {"name": "base"},
    }


@pytest.mark.parametrize(
    ("name", "recipes"),
    [
        ("{size:b}-{lr}", ["b-low", "b-high"]),
        ("{size}-{lr:[!h]*}", ["s-low", "b-low"]),
        ("{size:s, [a-c]}-{lr:high}", ["s-high", "b-high"]),
        ("one", ["one"]),
    ],
)
def test_a_name_has_the_choices_that_match_its_patterns(name, recipes):
    assert list(recipes_file(recipes=[{"name": name}]).expand("recipes.yaml")) == recipes


def test_deltas_are_laid_over_the_recipes_that_they_match_the_later_over_the_earlier():
    deltas = {
        "*-low, s-*": {"optimizer": {"lr": 5.0}, "x": 1},
        "s-high": {"optimizer": {"name": "adam"}, "x": 2},
    }
    recipes = recipes_file(deltas=deltas).expand("recipes.yaml")
    assert {name: recipe.get("x") for name, recipe in recipes.items()} == {
        "s-low": 1,
        "s-high": 2,
        "b-low": 1,
        "b-high": None,
    }
    assert recipes["s-high"]["optimizer"] == {"lr": 5.0, "name": "adam"}
    assert recipes["b-low"]["optimizer"] == {"lr": 5.0, "name": "sgd"}


def test_a_delta_that_matches_no_recipe_is_refused():
    with pytest.raises(VitrailError, match="recipe 's-hihg' is unknown; did you mean 's-high'"):
        recipes_file(deltas={"s-low, s-hihg": {"x": 1}}).expand("recipes.yaml")


def test_a_choice_may_extend_another_of_its_axis():
    choices = {
        "m": {"extends": "s", "model": {"depth": 2}},
        "s": {"model": {"name": "small", "depth": 1}},
    }
    family = {"name": "{size}"}
    recipes = recipes_file(axes={"size": choices}, recipes=[family]).expand("recipes.yaml")
    assert recipes["m"]["model"] == {"name": "small", "depth": 2}
    assert "extends" not in recipes["m"]


def test_segmenters_have_a_base_of_their_own():
    family = {"name": "seg-{lr}", "task": "segmentation"}
    recipes = recipes_file(segmentation={"batch": {"size": 16}}, recipes=[family]).expand("r.yaml")
    low = {"task": "segmentation", "batch": {"size": 16}, "optimizer": {"lr": 0.1}}
    assert recipes == {
        "seg-low": low,
        "seg-high": {"task": "segmentation", "batch": {"size": 16}},
    }


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["{sise}"], "axis 'sise' is unknown; did you mean 'size'?"),
        (["same", "same"], "two recipes are called 'same'; rename one"),
        (["{size}-{lr}", "{size:b}-low"], "two recipes are called 'b-low'; rename one"),
        (["{lr:low, lwo}"], "choice 'lwo' is unknown; did you mean 'low'?"),
        (["{size"], "the name is no template"),
    ],
)
def test_a_wrong_family_is_refused(names, sentence):
    with pytest.raises(VitrailError) as error:
        recipes_file(recipes=[{"name": name} for name in names]).expand("recipes.yaml")
    assert sentence in str(error.value)


def artifact(**changes):
    data = {
        "title": "t",
        "caption": "c",
        "source": "Table 1, p. 1",
        "metric": "top-1",
        "unit": "%",
        "cell": {"measure": "accuracy", "recipe": "{model}-{mix}", "key": "top1"},
        **changes,
    }
    return parse(ArtifactSpec, data, "artifacts.yaml")


def test_a_cell_is_the_template_filled_with_row_and_column():
    row = Labelled.model_validate({"label": "Mixup", "mix": "mixup0.2"})
    column = Labelled.model_validate({"label": "S", "model": "vit_s"})
    cell = artifact().cell_at(row, column, "here")
    assert (cell.measure, cell.recipe, cell.key) == ("accuracy", "vit_s-mixup0.2", "top1")
    assert (cell.metric, cell.unit, cell.exact) == ("top-1", "%", False)


def test_a_row_or_column_may_say_a_cells_field_itself():
    row = Labelled.model_validate({"label": "Mixup", "mix": "m", "unit": "ratio"})
    column = Labelled.model_validate({"label": "S", "model": "s", "exact": True, "digits": 4})
    cell = artifact().cell_at(row, column, "here")
    assert (cell.unit, cell.exact, cell.digits) == ("ratio", True, 4)


def test_a_row_may_leave_out_a_variable_that_has_a_default():
    cell = {"measure": "{taken}", "recipe": "{model}"}
    table = artifact(cell=cell, defaults={"taken": "", "model": "vit_s"})
    plain = Labelled.model_validate({"label": "Plain"})
    taken = Labelled.model_validate({"label": "Taken", "taken": "accuracy"})
    column = Labelled.model_validate({"label": "S"})
    assert table.cell_at(plain, column, "here").measure == ""
    assert table.cell_at(taken, column, "here").measure == "accuracy"
    assert table.cell_at(taken, column, "here").recipe == "vit_s"


def test_a_template_with_an_unknown_variable_names_the_cell():
    row = Labelled.model_validate({"label": "Mixup", "mixx": "m"})
    column = Labelled.model_validate({"label": "S", "model": "s"})
    with pytest.raises(VitrailError, match=r"cell \(Mixup, S\).*names 'mix'; did you mean 'mixx'"):
        artifact().cell_at(row, column, "artifacts.yaml")


def test_a_label_stands_under_its_group():
    assert Labelled.model_validate({"label": "Ours", "group": "ViT-S"}).full_label == "ViT-S / Ours"


def test_a_row_may_stand_for_every_choice_of_an_axis():
    rows = [{"label": "First"}, {"label": "ViT-{size}", "each": "size", "unit": "%"}]
    table = artifact(rows=rows, cell={"recipe": "vit_{size}"}, defaults={"size": "none"})
    table = table.with_choices({"size": ["s", "b"]}, "here")
    assert [row.label for row in table.rows] == ["First", "ViT-s", "ViT-b"]
    column = Labelled.model_validate({"label": "x"})
    cells = [table.cell_at(row, column, "here") for row in table.rows]
    assert [cell.recipe for cell in cells] == ["vit_none", "vit_s", "vit_b"]
    assert [cell.unit for cell in cells][1:] == ["%", "%"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"label": "x", "each": "sise"}, "here: axis 'sise' is unknown; did you mean 'size'"),
        ({"label": "{sise}", "each": "size"}, "here: '{sise}' names 'sise'; did you mean 'size'"),
    ],
)
def test_a_row_of_an_axis_that_there_is_not_is_refused(row, said):
    with pytest.raises(VitrailError, match=said):
        artifact(rows=[row]).with_choices({"size": ["s", "b"]}, "here")


def test_fill_leaves_text_without_variables_alone():
    assert fill("plain", {}, "here") == "plain"


def write(path, text):
    path.write_text("row,column,value,std,source\n" + text)
    return path


def test_printed_values_are_numbers_or_words(tmp_path):
    text = 'Mixup,S,78.069,0.10,"Table 5, p. 6"\nMixup,B,Inconsistent,,"Table 5, p. 6"\n'
    printed = read_reference(write(tmp_path / "t.csv", text))
    assert printed[("Mixup", "S")].value == 78.069
    assert printed[("Mixup", "S")].std == 0.1
    assert printed[("Mixup", "S")].spread == "0.10"
    assert printed[("Mixup", "B")].value == "Inconsistent"
    assert printed[("Mixup", "B")].source == "Table 5, p. 6"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b,1,,T\na,b,2,,T\n", "stands twice"),
        ("a,b,1,,\n", "has no source"),
        ("a,b,1,wide,T\n", "the std of .* is 'wide'"),
    ],
)
def test_wrong_reference_files_are_refused(tmp_path, text, sentence):
    with pytest.raises(VitrailError, match=sentence):
        read_reference(write(tmp_path / "t.csv", text))


def test_a_wrong_header_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("row,col,value\n")
    with pytest.raises(VitrailError, match="the header must be row,column,value,std,source"):
        read_reference(tmp_path / "t.csv")


def test_an_artifact_without_reference_prints_nothing(tmp_path):
    assert read_reference(tmp_path / "none.csv") == {}


@pytest.mark.parametrize(
    "file", ROOT.glob("configs/**/*.yaml"), ids=lambda file: str(file.relative_to(ROOT))
)
def test_each_anchor_is_used(file):
    events = list(yaml.parse(file.read_text(encoding="utf-8")))
    aliases = {event.anchor for event in events if isinstance(event, yaml.AliasEvent)}
    assert {getattr(event, "anchor", None) for event in events} - {None} == aliases
