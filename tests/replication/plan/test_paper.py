"""A paper's folder is read strictly, and says in one sentence where it is wrong."""

import pytest

from replication.plan.paper import ArtifactSpec, Labelled, RecipesFile, fill, read_reference
from replication.plan.schema import parse
from vitrail.errors import VitrailError


def recipes_file(**changes):
    data = {
        "base": {"optimizer": {"lr": 1.0, "name": "sgd"}},
        "axes": {
            "size": {"s": {"model": {"name": "small"}}, "b": {"model": {"name": "base"}}},
            "lr": {"low": {"optimizer": {"lr": 0.1}}, "high": {}},
        },
        "recipes": [{"name": "{size}-{lr}", "axes": ["size", "lr"], "delta": {"x": 1}}],
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
        "x": 1,
    }


def test_a_family_may_have_only_some_choices_of_an_axis():
    family = {"name": "{size}-{lr}", "axes": ["size", "lr"], "only": {"size": ["b"]}}
    assert list(recipes_file(recipes=[family]).expand("recipes.yaml")) == ["b-low", "b-high"]


def test_a_choice_may_extend_another_of_its_axis():
    choices = {
        "m": {"extends": "s", "model": {"depth": 2}},
        "s": {"model": {"name": "small", "depth": 1}},
    }
    family = {"name": "{size}", "axes": ["size"]}
    recipes = recipes_file(axes={"size": choices}, recipes=[family]).expand("recipes.yaml")
    assert recipes["m"]["model"] == {"name": "small", "depth": 2}
    assert "extends" not in recipes["m"]


def test_segmenters_have_a_base_of_their_own():
    family = {"name": "seg-{lr}", "task": "segmentation", "axes": ["lr"]}
    recipes = recipes_file(segmentation={"batch": {"size": 16}}, recipes=[family]).expand("r.yaml")
    low = {"task": "segmentation", "batch": {"size": 16}, "optimizer": {"lr": 0.1}}
    assert recipes == {
        "seg-low": low,
        "seg-high": {"task": "segmentation", "batch": {"size": 16}},
    }


@pytest.mark.parametrize(
    ("families", "sentence"),
    [
        ([{"name": "{size}", "axes": ["sise"]}], "axis 'sise' is unknown; did you mean 'size'?"),
        ([{"name": "same", "axes": ["size"]}], "two recipes are called 'same'; rename one"),
        ([{"name": "{width}", "axes": ["size"]}], "'{width}' names 'width'"),
        ([{"name": "{lr}", "axes": ["lr"], "only": {"lr": ["lwo"]}}], "choice 'lwo' is unknown"),
        ([{"name": "{lr}", "axes": ["lr"], "only": {"size": ["s"]}}], "axis 'size' is unknown"),
    ],
)
def test_a_wrong_family_is_refused(families, sentence):
    with pytest.raises(VitrailError) as error:
        recipes_file(recipes=families).expand("recipes.yaml")
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


def test_fill_leaves_text_without_variables_alone():
    assert fill("plain", {}, "here") == "plain"


def write(path, text):
    path.write_text("row,column,value,std,source\n" + text)
    return path


def test_printed_values_are_numbers_or_words(tmp_path):
    text = 'Mixup,S,78.069,0.1,"Table 5, p. 6"\nMixup,B,Inconsistent,,"Table 5, p. 6"\n'
    printed = read_reference(write(tmp_path / "t.csv", text))
    assert printed[("Mixup", "S")].value == 78.069
    assert printed[("Mixup", "S")].std == 0.1
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
