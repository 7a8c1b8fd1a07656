"""What our graph decides is laid over a configuration; all else stays as it is written."""

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import PARAM_SCHEDULERS

from replication.config.datasets import load_registry
from replication.config.python_source import config_files
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.config.weights import PublishedWeights
from replication.datasets.published_weights import fetch
from replication.training.dispatch import TrainingRun
from replication.training.segmentation.config import load_config, training_config
from replication.training.segmentation.config import test_config as config_of_test
from tests.replication.training.segmentation.conftest import SIZE, SWIN
from tests.vitrail.segmentation.segmenters import CONFIGS
from vitrail.errors import VitrailError

ALONE = {"world": 1, "on_gpu": False}
PLAIN = {
    "model": {"name": SWIN},
    "data": {"dataset": "ade20k"},
    "schedule": {"steps": 160000},
    "batch": {"size": 16},
}


def train_config(recipe, info, tmp_path, **changes):
    team = {name: changes.pop(name, default) for name, default in ALONE.items()}
    return training_config(TrainingRun(recipe, 0, tmp_path, info, tmp_path, **changes), **team)


@pytest.fixture(scope="module")
def plain():
    return SegmentationRecipe.model_validate(PLAIN)


@pytest.fixture(scope="module")
def original():
    return Config.fromfile(Config._get_cfg_path(SWIN, "")[0])


@pytest.mark.parametrize("name", sorted(file.stem for file in CONFIGS.glob("*.py")))
def test_a_configuration_of_ours_is_opened_by_the_files_of_its_recipe(name, tmp_path, monkeypatch):
    files = config_files(name, CONFIGS.parents[1])
    recipe = SegmentationRecipe.model_validate({**PLAIN, "model": {"name": name, "files": files}})
    written = Config.fromfile(CONFIGS / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    config = load_config(recipe, written.model.decode_head.num_classes, synchronised=True)
    for settings in (written, config):
        settings.model.update(pretrained=None)
        settings.model.backbone.init_cfg = None
    assert config.to_dict() == written.to_dict()


def test_an_unmodified_configuration_keeps_its_model(plain, original):
    model = load_config(plain, 150).model
    expected = original.model
    expected.backbone.init_cfg = None
    text = str(expected).replace("SyncBN", "BN")
    assert str(model) == text


def test_an_unmodified_configuration_keeps_pipelines_optimiser_and_schedule(
    plain, original, info, tmp_path
):
    config = train_config(plain, info, tmp_path, world=4, on_gpu=True)
    inner = config.train_dataloader.dataset.dataset
    assert inner.pipeline == original.train_dataloader.dataset.pipeline
    assert config.optim_wrapper == original.optim_wrapper
    assert config.param_scheduler == original.param_scheduler
    assert config.train_dataloader.batch_size == 4
    assert config.train_cfg.max_iters == 160000
    assert "SyncBN" in str(config.model)


def test_the_schedule_is_stretched_to_the_steps(plain, info, tmp_path):
    shorter = plain.model_copy(update={"schedule": type(plain.schedule)(steps=320)})
    warmup, poly = train_config(shorter, info, tmp_path).param_scheduler
    assert (warmup.begin, warmup.end) == (0, 3)
    assert (poly.begin, poly.end) == (3, 320)


def test_a_warmup_ends_however_short_the_training_is(plain, info, tmp_path):
    shortest = plain.model_copy(update={"schedule": type(plain.schedule)(steps=2)})
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    warmup = {**train_config(shortest, info, tmp_path).param_scheduler[0]}
    scheduler = PARAM_SCHEDULERS.build({**warmup, "optimizer": optimizer})
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_the_data_are_the_registrys(plain, tmp_path):
    cityscapes = load_registry()["cityscapes"]
    dataset = config_of_test(plain, cityscapes, tmp_path, 0).test_dataloader.dataset
    assert dataset.type == "CityscapesDataset"
    assert dataset.data_root == str(tmp_path / cityscapes.folder)
    assert dataset.data_prefix.img_path == cityscapes.segmentation.val.img_path


def test_a_dataset_without_masks_is_refused(plain, tmp_path):
    with pytest.raises(VitrailError, match="dataset 'digits' has no masks"):
        config_of_test(plain, load_registry()["digits"], tmp_path, 0)


def test_heads_get_as_many_classes_as_the_dataset_has(plain):
    model = load_config(plain, 7).model
    assert (model.decode_head.num_classes, model.auxiliary_head.num_classes) == (7, 7)


def test_values_are_laid_over_the_configuration_and_sizes_are_tuples(recipe, original):
    config = load_config(recipe, 150)
    assert config.model.data_preprocessor.size == tuple(SIZE)
    assert config.model.backbone.depths == [1, 1, 1, 1]
    assert config.model.backbone.mlp_ratio == original.model.backbone.mlp_ratio


def test_args_of_the_model_are_laid_over_its_options(recipe):
    both = recipe.model_copy(
        update={"options": {"model": {"decode_head": {"channels": 12, "dropout_ratio": 0.5}}}}
    )
    head = load_config(both, 150).model.decode_head
    assert (head.channels, head.dropout_ratio) == (8, 0.5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optim_wraper": {}}, "options.optim_wraper is unknown; did you mean 'optim_wrapper'?"),
        ({"train_cfg": {"max_iters": 5}}, "options.train_cfg is for the graph to set"),
        ({"optim_wrapper": {"accumulative_counts": 2}}, "a resumed training would lose"),
        ({"param_scheduler": [{"type": "PolyLR", "end": 9}]}, "PolyLR cannot be stretched"),
    ],
)
def test_options_that_would_do_nothing_or_harm_are_refused(
    plain, info, tmp_path, options, sentence
):
    with pytest.raises(VitrailError) as error:
        train_config(plain.model_copy(update={"options": options}), info, tmp_path)
    assert sentence in str(error.value)


def test_published_weights_must_be_given(plain, info, tmp_path):
    model = plain.model.model_copy(update={"pretrained": "swin.ms_in1k"})
    with pytest.raises(VitrailError, match=r"published weights swin\.ms_in1k and was given none"):
        train_config(plain.model_copy(update={"model": model}), info, tmp_path)


def test_published_weights_fill_the_backbone(plain, info, tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "published.pth")
    entry = {"name": "swin", "url": [(tmp_path / "published.pth").as_uri()], "licence": "none"}
    file = tmp_path / "swin.safetensors"
    with pytest.raises(VitrailError, match=r"swin\.safetensors does not exist: run"):
        train_config(plain, info, tmp_path, initial=file)
    fetch(PublishedWeights.model_validate(entry), file)
    backbone = train_config(plain, info, tmp_path, initial=file).model.backbone
    assert backbone.init_cfg == {"type": "Pretrained", "checkpoint": str(file)}
