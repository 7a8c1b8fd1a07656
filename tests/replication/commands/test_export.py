"""A run leaves as timm takes it, and comes back with the same bits."""

import errno
import json
import re

import pytest
import timm
import torch
import yaml

from replication.commands.export import export
from replication.engine.hub import write_config
from replication.engine.model import save_weights
from replication.engine.recipes.classification import ClassificationRecipe
from replication.engine.recipes.self_supervision import SelfSupervisionRecipe
from replication.ledger import complete
from replication.plan.nodes import MeasurementNode, TrainingNode
from replication.plan.schema import as_yaml
from tests.vitrail.dinov2.conftest import BASE as SELF_SUPERVISION
from vitrail.dinov2.network import build_model as build_backbone
from vitrail.errors import VitrailError
from vitrail.factory import build_model
from vitrail.files import sha256
from vitrail.weights_file import read_weights

SWIN = {"img_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]}
MODEL = {
    "name": "a_swin_tiny_patch4_window7_224",
    "args": {**SWIN, "window_size": 4, "selection": "fast"},
}


@pytest.fixture
def run(tmp_path, registry):
    """A trained run of one seed; measurements, and records of trainings, of it and of others."""
    recipe = ClassificationRecipe.model_validate(
        {
            "model": MODEL,
            "data": {"dataset": "digits", "image_size": 16, "crop_pct": 1.0},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 8, "micro": 8},
        }
    )
    seed = tmp_path / "run" / "seed0"
    seed.mkdir(parents=True)
    model = build_model(recipe, 10)
    save_weights(model.state_dict(), seed / "weights.safetensors", recipe, 0)
    write_config(model, recipe, registry["digits"], seed)
    (seed / "recipe.yaml").write_text(as_yaml(recipe.model_dump(mode="json")))
    for name, digest in (("accuracy", sha256(seed / "weights.safetensors")), ("stale", "0" * 64)):
        node = MeasurementNode(
            scale="laptop",
            paper="shift",
            name=name,
            output=seed.parent / "measurements" / f"{name}.json",
            inputs=(),
            code="0123456789abcdef",
            commit=None,
            function="vitrail.measures.accuracy:accuracy",
            seeds=(0,),
            device="cpu",
            data_root=tmp_path,
            workers=0,
            datasets=(registry["digits"],),
        )
        values, weights = {"0": {"top1": 97.25}}, {"0": digest}
        outcome = {"values": values, "weights": weights, "code": node.code, "provenance": {}}
        complete(node, outcome)
    for seeds, digest, commit in (
        ((0,), sha256(seed / "weights.safetensors"), "a1b2c3"),
        ((0, 1), "0" * 64, "before"),
    ):
        node = TrainingNode(
            scale="laptop",
            paper="shift",
            name="run",
            output=seed.parent / f"trained-{'-'.join(map(str, seeds))}.json",
            inputs=(),
            code="0123456789abcdef",
            commit=None,
            recipe=recipe,
            dataset=registry["digits"],
            data=(),
            seeds=seeds,
            device="cpu",
            data_root=tmp_path,
            workers=0,
            checkpoint_seconds=600,
        )
        facts = {str(number): {"commit": commit} for number in seeds}
        complete(node, {"sha256": dict.fromkeys(facts, digest), "facts": facts})
    return seed.parent


def test_timm_makes_the_model_again_with_the_same_bits(run, tmp_path):
    export(run, tmp_path / "mine", 0, None)
    model = timm.create_model(f"local-dir:{tmp_path / 'mine'}", pretrained=True)
    weights = read_weights(run / "seed0" / "weights.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert model.grid.name == "fast"
    config = timm.data.resolve_model_data_config(model)
    assert (config["input_size"], config["crop_pct"]) == ((3, 16, 16), 1.0)


def test_the_model_card_has_recipe_data_licence_and_the_numbers_of_these_weights(run, tmp_path):
    export(run, tmp_path / "mine", 0, None)
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "| accuracy | top1 | 97.25 | digits |" in card
    assert "stale" not in card
    assert "Commit a1b2c3, seed 0" in card
    for part in ("license: apache-2.0", "selection: fast", f"local-dir:{tmp_path / 'mine'}"):
        assert part in card


def test_the_configuration_is_that_of_the_training(run, tmp_path):
    """The registry's mean and standard deviation may have changed since."""
    path = run / "seed0" / "config.json"
    config = json.loads(path.read_text())
    config["pretrained_cfg"]["mean"] = [0.125, 0.25, 0.5]
    path.write_text(json.dumps(config))
    export(run, tmp_path / "mine", 0, None)
    assert (tmp_path / "mine" / "config.json").read_text() == path.read_text()


def test_a_backbone_of_self_supervision_is_one_without_a_head(tmp_path, registry):
    recipe = SelfSupervisionRecipe.model_validate(SELF_SUPERVISION)
    seed = tmp_path / "run" / "seed0"
    seed.mkdir(parents=True)
    model = build_backbone(recipe, 0).eval()
    save_weights(model.state_dict(), seed / "weights.safetensors", recipe, 0)
    write_config(model, recipe, registry[recipe.data.dataset], seed)
    (seed / "recipe.yaml").write_text(as_yaml(recipe.model_dump(mode="json")))
    export(seed.parent, tmp_path / "mine", 0, None)
    taken = timm.create_model(f"local-dir:{tmp_path / 'mine'}", pretrained=True).eval()
    image = torch.randn(1, 3, 16, 16)
    assert torch.equal(taken(image), model(image))
    assert "image-feature-extraction" in (tmp_path / "mine" / "README.md").read_text()


class Hub:
    pushed: dict = {}

    def create_repo(self, repository, exist_ok):
        if repository.startswith("nobody/"):
            raise OSError("401 Unauthorized.")

    def upload_folder(self, repo_id, folder_path):
        self.pushed[repo_id] = sorted(file.name for file in folder_path.iterdir())
        return f"https://huggingface.co/{repo_id}"


def test_it_is_pushed_to_a_hub(run, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    export(run, None, 0, "hf-hub:me/mine")
    assert Hub.pushed == {"me/mine": ["README.md", "config.json", "model.safetensors"]}
    assert "https://huggingface.co/me/mine" in capsys.readouterr().out
    with pytest.raises(VitrailError, match=r"nobody/mine \(401 Unauthorized\): log in"):
        export(run, None, 0, "hf-hub:nobody/mine")


def test_a_wrong_place_is_refused_in_a_sentence(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for to, seed, push, message in (
        (None, 0, None, "nowhere to export to: give --to"),
        (tmp_path / "full", 0, None, "full is not empty"),
        (None, 0, "me/mine", "give hf-hub:USER/NAME"),
        (tmp_path / "new", 3, None, "seed3 has no trained weights"),
    ):
        with pytest.raises(VitrailError, match=message):
            export(run, to, seed, push)


def file_in_the_way(place):
    place.write_text("")
    return place


def below_a_file(place):
    return file_in_the_way(place) / "mine"


def dangling_link(place):
    place.symlink_to(place.with_name("nowhere"))
    return place


@pytest.mark.parametrize("occupy", [file_in_the_way, below_a_file, dangling_link])
def test_a_place_that_is_no_folder_is_refused_and_left_as_it_was(run, tmp_path, occupy):
    to = occupy(tmp_path / "place")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(VitrailError, match=re.escape(str(to))):
        export(run, to, 0, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_one_may_not_write_is_refused(run, tmp_path, monkeypatch):
    def refuse(path, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(VitrailError, match=r"mine .*Permission denied"):
        export(run, tmp_path / "mine", 0, None)


def test_an_empty_folder_and_a_link_to_one_are_filled(run, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    export(run, tmp_path / "link", 0, None)
    assert (tmp_path / "empty" / "model.safetensors").is_file()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-3],
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: text.replace('"values"', '"valves"'),
        lambda text: text.replace('"seeds"', '"seed"'),
        lambda text: text.replace("accuracy:", "accuracies:"),
    ],
    ids=["cut", "list", "nested", "values", "seeds", "edited"],
)
def test_a_damaged_measurement_is_named_and_nothing_is_left(run, tmp_path, damage):
    file = run / "measurements" / "accuracy.json"
    file.write_text(damage(file.read_text()))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(VitrailError, match=re.escape(str(file))) as refused:
        export(run, tmp_path / "mine", 0, None)
    assert not re.search("TARGET|RECORD", str(refused.value))
    assert sorted(tmp_path.rglob("*")) == before
    file.unlink()
    export(run, tmp_path / "mine", 0, None)  # what failed does not stand in the way of the next


@pytest.mark.parametrize("task", ["clasification", ["classification"], {"a": 1}])
def test_a_recipe_of_no_known_task_is_refused_in_a_sentence(run, tmp_path, task):
    path = run / "seed0" / "recipe.yaml"
    path.write_text(as_yaml({**yaml.safe_load(path.read_text()), "task": task}))
    with pytest.raises(VitrailError, match=r"recipe.yaml: task .* is unknown.*classification"):
        export(run, tmp_path / "mine", 0, None)
    assert not (tmp_path / "mine").exists()


def test_an_upload_that_is_refused_leaves_no_folder(run, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    with pytest.raises(VitrailError, match="401"):
        export(run, tmp_path / "mine", 0, "hf-hub:nobody/mine")
    assert not (tmp_path / "mine").exists()
