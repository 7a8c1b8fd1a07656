import pytest

from replication.commands import rehearsal
from replication.commands.rehearsal import miniature_recipe
from replication.engine.model import save_weights
from replication.plan.catalog import load_catalog
from vitrail.factory import build_model

LARGEST = 100.0  # million parameters


def test_every_recipe_is_trained_resumed_and_measured(vitrail, checkout):
    done = vitrail("rehearse", "tiny_table1", "--device", "cpu")
    assert done.code == 0, done.out
    lines = [line for line in done.out.splitlines() if line.startswith("ok")]
    assert [line.split()[1] for line in lines] == ["tiny/plain:", "tiny/mixup:"]
    assert "fp16 rehearsed as bf16" in lines[0]
    assert "M parameters" in lines[0]
    assert "2 of 2 recipes passed" in done.out
    assert "measuring accuracy" in done.err
    assert not any((checkout / name).exists() for name in ("data", "runs", "results"))


def test_published_weights_are_rehearsed_with_initial_ones_and_it_says_so(vitrail):
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 0, done.out
    assert "initial weights in place of published ones" in done.out


def test_a_fine_tuning_is_rehearsed_without_its_source_and_says_so(vitrail, catalog, fine_tuning):
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 0, done.out
    folder = catalog("full").paper("tiny").run("plain").folder.name
    note = f"initial weights in place of those of {folder}, not trained"
    assert [note in line for line in done.out.splitlines() if line.startswith("ok")] == [
        False,
        True,
    ]


def test_a_fine_tuning_is_rehearsed_from_its_source_where_that_is_trained(
    vitrail, catalog, fine_tuning
):
    plain = catalog("full").paper("tiny").run("plain")
    weights = build_model(plain.recipe, plain.info.classes).state_dict()
    save_weights(weights, plain.weights(0), plain.recipe, 0)
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 0, done.out
    assert "in place of" not in done.out
    weights.pop("cls_token")
    save_weights(weights, plain.weights(0), plain.recipe, 0)
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 1
    assert "cls_token" in done.out


def test_a_recipe_that_fails_is_told_and_the_others_go_on(vitrail, checkout):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    broken = recipes.read_text().replace("plain: {}", "plain: {model: {args: {depht: 2}}}")
    assert broken != recipes.read_text()
    recipes.write_text(broken)
    done = vitrail("rehearse", "tiny_table1", "--device", "cpu")
    assert done.code == 1
    assert "FAILED  tiny/plain: " in done.out
    assert "depht" in done.out
    assert "ok      tiny/mixup: " in done.out
    assert "1 of 2 recipes passed" in done.out


def test_a_measure_that_fails_fails_its_recipe(vitrail, checkout):
    artifacts = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    text = artifacts.read_text().replace("accuracy:accuracy", "accuracy:nothing")
    artifacts.write_text(text)
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 1
    assert "cannot be imported" in done.out


def test_a_misspelt_key_of_a_cell_is_found_before_the_training(vitrail, checkout):
    artifacts = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    artifacts.write_text(artifacts.read_text().replace("key: top1", "key: tpo1"))
    done = vitrail("rehearse", "tiny_table2", "--device", "cpu")
    assert done.code == 1
    assert "cell (Published, Top-1): the measurement 'accuracy' has no value 'tpo1'" in done.out
    assert "did you mean 'top1'?" in done.out


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_batch_weights_and_a_precision_the_device_lacks_are_changed(catalog, device):
    recipe = catalog("full").paper("tiny").run("mixup").recipe
    recipe = recipe.model_copy(update={"compile": True})
    small = miniature_recipe(recipe, device, LARGEST)
    assert (small.batch.size, small.batch.micro) == (2, 2)
    assert small.precision == ("bf16" if device == "cpu" else "fp16")
    assert small.compile == (device != "cpu")
    kept = {name: getattr(recipe, name) for name in ("batch", "precision", "compile")}
    assert small.model_copy(update=kept) == recipe


def test_the_largest_models_are_rehearsed_with_two_blocks(catalog, vitrail):
    recipe = catalog("full").paper("tiny").run("mixup").recipe
    assert miniature_recipe(recipe, "cpu", LARGEST).model.args == recipe.model.args
    assert miniature_recipe(recipe, "cpu", 1e-3).model.args == {**recipe.model.args, "depth": 2}
    name, of_size = "octic_h8_vit_small_patch16_224", {"img_size": 32, "patch_size": 8}
    hybrid = recipe.model.model_copy(update={"name": name, "args": {**of_size, "octic_depth": 6}})
    data = recipe.data.model_copy(update={"image_size": 32})
    small = miniature_recipe(recipe.model_copy(update={"model": hybrid, "data": data}), "cpu", 1e-3)
    assert small.model.args == {**of_size, "octic_depth": 1, "depth": 2}
    assert (
        "; 2 of its blocks"
        in vitrail("rehearse", "tiny_table1", "--device", "cpu", "--largest", "0.001").out
    )


def test_a_measure_that_repeats_itself_is_rehearsed_with_two_of_its_repetitions(root):
    full = load_catalog(root, scale="full")
    worst = full.paper("shift").measurement("worst_shift", "swin_t-cifar10-circular")
    linear = full.paper("octic").measurement("linear", "dinov2-vit-l")
    assert rehearsal._short(worst) == {**worst.args, "shifts": 2}
    assert rehearsal._short(linear) == {**linear.args, "steps": 2}
