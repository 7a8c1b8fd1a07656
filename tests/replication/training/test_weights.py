import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from replication.config.weights import PublishedWeights
from replication.datasets.published_weights import fetch
from replication.training.model_factory import build_model, build_pretrained, check_image_size
from replication.training.weights import build_from, load_weights, save_weights
from vitrail.errors import VitrailError

CPU = torch.device("cpu")


@pytest.fixture
def weights(recipe, tmp_path):
    """A run's weights on disk."""
    save_weights(build_model(recipe, 10).state_dict(), tmp_path / "w.safetensors", recipe, 0)
    return tmp_path / "w.safetensors"


def test_a_model_has_the_recipes_arguments_and_the_datasets_classes(recipe):
    model = build_model(recipe, 7)
    assert model.head.weight.shape == (7, 16)
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 7)


def test_stochastic_depth_is_timms_or_the_same_in_every_block(make_recipe):
    def rates(**changes):
        model = build_model(make_recipe({"model": changes}), 10)
        return [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]

    assert rates() == pytest.approx([0.0, 0.1])
    assert rates(drop_path_rule="constant") == pytest.approx([0.1, 0.1])
    assert rates(drop_path_rule="constant", args={"drop_path_rate": 0.0}) == [0.0, 0.0]


def test_a_model_without_stochastic_depth_cannot_repeat_it(make_recipe):
    recipe = make_recipe({"model": {"drop_path_rule": "constant", "name": "resnet18"}})
    plain = recipe.model.model_copy(update={"args": {"drop_path_rate": 0.1}})
    with pytest.raises(VitrailError, match="'resnet18' has no drop_path1"):
        build_model(recipe.model_copy(update={"model": plain}), 10)


def test_a_misspelt_model_is_named_with_the_closest_one(make_recipe):
    recipe = make_recipe({"model": {"name": "vit_tiny_patch16_244"}})
    with pytest.raises(VitrailError, match=r"'vit_tiny_patch16_244'; did you mean 'vit_tiny_patch"):
        build_model(recipe, 10)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"embed_dims": 16}, "unexpected keyword argument 'embed_dims'"),
        ({"num_heads": 3}, "divisible by num_heads"),
    ],
)
def test_arguments_that_the_model_refuses_are_shown_with_its_reason(make_recipe, args, reason):
    recipe = make_recipe({"model": {"args": args}})
    with pytest.raises(VitrailError, match=rf"vit_tiny_patch16_224.*{next(iter(args))}.*{reason}"):
        build_model(recipe, 10)


def test_an_image_size_that_the_model_refuses_is_named(make_recipe):
    recipe = make_recipe({"data": {"image_size": 12}})
    with pytest.raises(VitrailError, match=r"refuses images of 12 pixels .*Input height"):
        check_image_size(build_model(recipe, 10), recipe, CPU)


def test_weights_come_back_bit_for_bit(recipe, weights):
    model, other = build_model(recipe, 10), build_model(recipe, 10)
    load_weights(model, weights, recipe)
    load_weights(other, weights, recipe)
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_weights_of_another_recipe_are_refused(recipe, make_recipe, weights):
    other = make_recipe({"optimizer": {"lr": 0.5}})
    with pytest.raises(VitrailError, match=f"recipe {recipe.hash}, not of recipe {other.hash}"):
        load_weights(build_model(other, 10), weights, other)


@pytest.mark.parametrize("size", [0, 5, 200, -1])
def test_truncated_weights_are_refused(recipe, weights, size):
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(VitrailError, match=r"w\.safetensors is .*damaged"):
        load_weights(build_model(recipe, 10), weights, recipe)


def test_missing_weights_are_named_with_the_record_of_the_training_that_makes_them(
    recipe, tmp_path
):
    weights = tmp_path / "micro-0a1b2c3d" / "seed0" / "weights.safetensors"
    with pytest.raises(VitrailError) as caught:
        load_weights(build_model(recipe, 10), weights, recipe)
    assert f"{weights} does not exist" in str(caught.value)
    assert f"{tmp_path}/micro-0a1b2c3d/trained-seed0.json" in str(caught.value)


def test_weights_of_another_architecture_are_refused(recipe, weights):
    with pytest.raises(VitrailError, match=r"does not fit model 'vit_tiny_patch16_224'"):
        load_weights(build_model(recipe, 11), weights, recipe)


def test_a_model_starts_from_all_weights_of_another_recipe(make_recipe, weights):
    other = make_recipe({"optimizer": {"lr": 0.5}})
    filled = build_from(other, 10, weights).state_dict()
    assert all(torch.equal(filled[name], value) for name, value in load_file(weights).items())


def test_a_start_that_does_not_fit_says_where(make_recipe, weights):
    other = make_recipe({"model": {"args": {"depth": 3}}})
    with pytest.raises(VitrailError, match=r"Missing key.*blocks\.2.*correct model\.weights_from"):
        build_from(other, 10, weights)
    wide = make_recipe({"model": {"args": {"embed_dim": 32}}})
    with pytest.raises(VitrailError, match="size mismatch"):
        build_from(wide, 11, weights)


def test_a_classifier_of_other_classes_keeps_its_initial_weights(recipe, weights):
    torch.manual_seed(3)
    initial = build_model(recipe, 11).state_dict()
    torch.manual_seed(3)
    filled = build_from(recipe, 11, weights).state_dict()
    source = load_file(weights)
    head = {"head.weight", "head.bias"}
    assert all(torch.equal(filled[name], initial[name]) for name in head)
    assert all(torch.equal(filled[name], source[name]) for name in source.keys() - head)


def test_tied_weights_are_saved_too(recipe, tmp_path):
    tied = torch.ones(3, 3)
    save_weights({"a": tied, "b": tied, "c": tied.T}, tmp_path / "w", recipe, 0)
    assert (tmp_path / "w").exists()


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def published(make_recipe, name="test_vit.r160_in1k", **args):
    recipe = make_recipe({"data": {"image_size": 160}})
    model = recipe.model.model_copy(update={"name": name, "args": args, "pretrained": True})
    return recipe.model_copy(update={"model": model})


def test_without_a_network_the_message_says_how_to_fetch_pretrained_weights(make_recipe, offline):
    with pytest.raises(VitrailError, match=r"where there is a network .*HF_HOME.*OFFLINE"):
        build_pretrained(published(make_recipe), 10, None)


@pytest.mark.parametrize("name", ["vit_small_patch16_36x1_224", "test_vit.nope"])
def test_weights_that_nobody_has_published_are_refused(make_recipe, name):
    with pytest.raises(VitrailError, match=rf"model '{name}' refuses args .* pretrained=True"):
        build_pretrained(published(make_recipe, name, depth=1), 10, None)


def test_pretrained_weights_fill_all_but_a_head_of_another_size(make_recipe, tmp_path):
    source = timm.create_model("test_vit.r160_in1k")
    torch.save(source.state_dict(), tmp_path / "source.pth")
    entry = {"name": "vit", "url": [(tmp_path / "source.pth").as_uri()], "licence": "none"}
    fetch(PublishedWeights.model_validate(entry), tmp_path / "published.safetensors")
    model = build_pretrained(published(make_recipe), 10, tmp_path / "published.safetensors")
    assert model.head.weight.shape[0] == 10
    for name, value in model.state_dict().items():
        assert name.startswith("head.") or torch.equal(value, source.state_dict()[name]), name


def test_a_model_of_a_hubs_layout_is_built_with_its_weights(make_recipe, recipe, tmp_path):
    source = timm.create_model(recipe.model.name, **recipe.model.args, num_classes=10)
    timm.models.save_for_hf(source, tmp_path, safe_serialization=True)
    hub = published(make_recipe, f"local-dir:{tmp_path}")
    assert hub.model.published is None
    model = build_pretrained(hub, 10, None)
    assert all(torch.equal(v, source.state_dict()[n]) for n, v in model.state_dict().items())
    assert build_model(hub, 7).head.weight.shape == (7, 16)
    with pytest.raises(VitrailError, match=r"local-dir:/no/such.*Config file not found"):
        build_pretrained(published(make_recipe, "local-dir:/no/such"), 10, None)


def test_a_model_may_have_other_published_weights_than_those_of_its_name(make_recipe):
    recipe = make_recipe({"model": {"pretrained": "deit_small_patch16_224.fb_in1k"}})
    assert recipe.model.published == "deit_small_patch16_224.fb_in1k"
    assert make_recipe({"model": {"pretrained": True}}).model.published == "vit_tiny_patch16_224"
    assert make_recipe().model.published is None


def test_damaged_or_missing_pretrained_weights_are_refused(make_recipe, tmp_path):
    file = tmp_path / "test_vit.r160_in1k.safetensors"
    with pytest.raises(VitrailError, match=r"does not exist: .*weights test_vit.* --output"):
        build_pretrained(published(make_recipe), 10, file)
    file.write_bytes(b"not weights")
    with pytest.raises(VitrailError, match=r"in1k\.safetensors has no sound note of its digest"):
        build_pretrained(published(make_recipe), 10, file)


@pytest.mark.parametrize("run", ["{", "[1]", "null", "4"])
def test_weights_whose_metadata_name_no_run_are_refused(recipe, tmp_path, run):
    save_file({"a": torch.ones(1)}, tmp_path / "w.safetensors", metadata={"run": run})
    with pytest.raises(VitrailError, match=r"w\.safetensors names no run as its own"):
        load_weights(build_model(recipe, 10), tmp_path / "w.safetensors", recipe)


def test_a_damaged_start_is_refused(make_recipe, weights):
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(VitrailError, match=r"w\.safetensors is .*damaged"):
        build_from(make_recipe(), 10, weights)
