"""No weights file runs code, by whichever of mmengine's and mmseg's ways it is loaded."""

import io
import json
from urllib.error import URLError

import vitrail.segmentation  # noqa: F401  # isort: skip
import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, Runner, checkpoint, load_checkpoint
from mmseg.apis import init_model
from mmseg.registry import MODELS
from safetensors.torch import save_file
from torch import nn

from replication.training.dispatch import TrainingRun
from replication.training.segmentation import training as engine
from replication.training.segmentation.config import load_config
from tests.malice import ATTACKS
from vitrail.errors import VitrailError
from vitrail.files import sha256

REFUSED = r"evil\.pth is refused, as reading it may run code or it is damaged \(.*\): get"
TINY = {"depths": [1, 1, 1, 1], "embed_dim": 12, "num_heads": [1, 1, 1, 1], "window_size": 7}


@pytest.fixture(params=ATTACKS)
def evil(request, tmp_path):
    """A malicious file; it must leave no trace."""
    request.param(tmp_path / "evil.pth", tmp_path / "made")
    yield tmp_path / "evil.pth"
    assert not (tmp_path / "made").exists()


def backbone(kind, file, **more):
    init = {"type": "Pretrained", "checkpoint": str(file)}
    return MODELS.build({"type": kind, "init_cfg": init, **more})


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("AdaptiveSwin", TINY),
        ("SwinTransformer", {"depths": [1] * 4, "embed_dims": 16, "num_heads": [1] * 4}),
        ("VisionTransformer", {"embed_dims": 16, "num_layers": 1, "num_heads": 1}),
        ("ResNet", {"depth": 18}),  # by mmengine's own initialisation
        ("BEiT", {"embed_dims": 16, "num_layers": 1, "num_heads": 1}),
    ],
)
def test_backbones_refuse_it(evil, kind, more):
    with pytest.raises(VitrailError, match=REFUSED):
        backbone(kind, evil, **more).init_weights()


@pytest.mark.parametrize("prefix", ["https://example.org/", "http://example.org/a/"])
def test_a_file_from_a_url_is_refused(evil, prefix, tmp_path, monkeypatch):
    def serve(url, target, **options):
        assert url == f"{prefix}evil.pth"
        (tmp_path / target).write_bytes(evil.read_bytes())

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", serve)
    with pytest.raises(VitrailError, match=REFUSED):
        CheckpointLoader.load_checkpoint(f"{prefix}evil.pth", logger="silent")


@pytest.mark.parametrize("name", ["open-mmlab://resnet50_v1c", "torchvision://resnet18"])
def test_a_file_from_a_model_zoo_is_refused(evil, name, tmp_path, monkeypatch):
    def serve(url, target, **options):
        (tmp_path / target).write_bytes(evil.read_bytes())

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", serve)
    with pytest.raises(VitrailError, match=r"\.pth is refused, as reading it may run code"):
        CheckpointLoader.load_checkpoint(name, logger="silent")


def test_every_other_scheme_ends_in_the_same_reader(evil):
    assert checkpoint._safe_torch_load is not None
    with pytest.raises(VitrailError, match=REFUSED):
        checkpoint._safe_torch_load(str(evil))
    with pytest.raises(Exception, match="Weights only load failed"):
        checkpoint._safe_torch_load(io.BytesIO(evil.read_bytes()))


@pytest.mark.parametrize("resume", [False, True])
def test_a_runner_neither_starts_from_it_nor_resumes_it(evil, resume, recipe, tmp_path):
    config = load_config(recipe, 150)
    runner = Runner(
        model=config.model,
        work_dir=str(tmp_path / "work"),
        default_scope="mmseg",
        load_from=str(evil),
        resume=resume,
        experiment_name=f"{evil.parent.name}",
        log_level="ERROR",
    )
    with pytest.raises(VitrailError, match=REFUSED):
        runner.load_or_resume()


def test_mmsegs_own_tools_refuse_it(evil, recipe):
    config = load_config(recipe, 150)
    with pytest.raises(VitrailError, match=REFUSED):
        init_model(config, str(evil), device="cpu")
    with pytest.raises(VitrailError, match=REFUSED):
        load_checkpoint(nn.Linear(1, 1), str(evil), logger="silent")


@pytest.mark.slow
def test_a_training_refuses_it(evil, recipe, info, data_root, tmp_path):
    digest = sha256(evil)
    note = {"sha256": digest, "published_sha256": digest, "pinned": True}
    evil.with_suffix(".json").write_text(json.dumps(note))
    with pytest.raises(VitrailError, match=REFUSED):
        engine.train(TrainingRun(recipe, 0, tmp_path / "run", info, data_root, initial=evil))


def test_a_file_that_cannot_be_downloaded_is_told_with_where_to_place_it(tmp_path, monkeypatch):
    def unreachable(url, target, **options):
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    url = "https://example.org/swin.pth"
    with pytest.raises(VitrailError, match=rf"{url} \(.*no route to host.*\): .*network") as told:
        CheckpointLoader.load_checkpoint(url)
    place = tmp_path / "checkpoints" / "swin.pth"
    assert str(place) in str(told.value)
    torch.save({"a": torch.ones(1)}, place)
    assert CheckpointLoader.load_checkpoint(url).keys() == {"a"}


def test_a_web_page_is_called_one(tmp_path):
    (tmp_path / "swin.pth").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(VitrailError, match=r"swin\.pth is a web page, not weights"):
        backbone("AdaptiveSwin", tmp_path / "swin.pth", **TINY).init_weights()


def test_what_mmengine_itself_saves_is_still_read(tmp_path):
    losses = HistoryBuffer([1.0, 2.0], [1, 1])
    meta = {"iter": 3, "seed": np.int64(1), "lr": np.float64(0.1)}
    torch.save({"state_dict": {"a": torch.ones(1)}, "loss": losses, "meta": meta}, tmp_path / "c")
    read = CheckpointLoader.load_checkpoint(str(tmp_path / "c"), logger="silent")
    assert read["loss"].mean() == 1.5
    assert read["meta"] == meta


def test_a_log_may_name_no_other_attribute(tmp_path):
    class Sly:
        def __reduce__(self):
            return getattr, (HistoryBuffer, "__init__")

    torch.save({"a": Sly()}, tmp_path / "evil.pth")
    with pytest.raises(VitrailError, match=REFUSED):
        CheckpointLoader.load_checkpoint(str(tmp_path / "evil.pth"), logger="silent")


def test_safetensors_are_read_by_mmseg_too(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "w.safetensors")
    read = CheckpointLoader.load_checkpoint(str(tmp_path / "w.safetensors"), logger="silent")
    assert torch.equal(read["a"], torch.ones(1))
