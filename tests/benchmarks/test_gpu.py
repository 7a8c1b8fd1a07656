import csv
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks import gpu
from benchmarks.gpu.running import (
    Measured,
    Prediction,
    Rows,
    Settings,
    Step,
    origin_of,
    read_predictions,
    run,
)
from benchmarks.gpu.training import resolved, train
from replication.config.recipes.classification import ClassificationRecipe
from replication.images.loading import Pictures
from replication.images.opening import build
from replication.training import loop
from replication.training.dispatch import TrainingRun
from vitrail.errors import VitrailError

ROOT = Path(__file__).parents[2]
ABSENT = "matplotlib mmcv mmengine mmseg pydantic pydantic_core seaborn snakemake typer"
WITHOUT = f"""
import runpy, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT.split()}:
            raise ModuleNotFoundError(f"{{name}} is refused", name=name)

sys.meta_path.insert(0, Refuse())
runpy.run_module("benchmarks.gpu", run_name="__main__", alter_sys=True)
"""
FEW = ["equality/octic", "bits", "kernel", "resume", "octic/table1", "flowers/"]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_packages_that_are_too_old_for_the_library_are_found(monkeypatch):
    assert gpu.unmet() == {}
    monkeypatch.setattr(gpu, "version", lambda name: "1.0.3" if name == "timm" else version(name))
    ((line, installed),) = gpu.unmet().items()
    assert line.startswith("timm>=")
    assert installed == "1.0.3"


@pytest.mark.slow
def test_every_step_runs_on_a_cpu_without_the_packages_of_the_workflow(tmp_path):
    rows = tmp_path / "rows.csv"
    options = ["--quick", "--seconds", "3600", "--output", rows, "--runs", tmp_path / "runs"]
    options += ["--flowers", tmp_path / "absent.npz", "--commit", "abc", "--only", *FEW]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["quantity"]: row for row in rows_of(rows)}
    assert {row["commit"] for row in found.values()} == {"abc"}
    assert float(found["equality/D8/bf16"]["value"]) < 0.2
    assert float(found["bits by place/linear/float32"]["value"]) == 100
    assert float(found["resume/killed"]["value"]) == 0
    assert float(found["octic/block ViT-L/FLOPs"]["value"]) == pytest.approx(4.588, abs=1e-3)
    assert not found["kernel"]["value"]
    assert "absent.npz" in found["flowers/flowers102-ape"]["note"]


def test_a_device_that_torch_cannot_use_is_refused():
    with pytest.raises(VitrailError):
        origin_of("cuda:99", commit=None)


@pytest.fixture
def take(tmp_path):
    """Return a function that takes steps, each with a second's bound, and returns their rows."""

    def taken(*steps, predictions=None, seconds=3600.0):
        path = tmp_path / "rows.csv"
        rows = Rows(path, {"device": "none"}, predictions or {})
        settings = Settings("cuda", True, tmp_path / "archive.npz", tmp_path, threads=1)
        failed = run(steps, settings, rows, lanes=2, seconds=seconds)
        return failed, {row["quantity"]: row for row in rows_of(path)}

    return taken


def raising(settings):
    yield Measured("before", 1.0)
    raise MemoryError("all is used")


def dying(settings):
    yield Measured("alive", 1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def hanging(settings):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield Measured("waiting", 1.0)
    time.sleep(3600)


def one(settings):
    yield Measured("one", 1.0)


@pytest.mark.slow
def test_a_step_that_raises_dies_or_hangs_is_told_and_the_others_go_on(take):
    failed, rows = take(
        Step("raising", raising, 3600),
        Step("dying", dying, 3600),
        Step("hanging", hanging, 5),
        Step("last", one, 3600, alone=True),
    )
    assert failed == 2
    assert all(float(rows[name]["value"]) == 1 for name in ("before", "alive", "waiting", "one"))
    for name in ("raising", "dying", "hanging"):
        assert rows[name]["note"]
        assert not rows[name]["value"]


def test_a_step_for_which_no_time_is_left_has_a_row_without_a_number(take):
    failed, rows = take(Step("late", one, 3600), seconds=-1.0)
    assert failed == 0
    assert list(rows) == ["late"]
    assert rows["late"]["note"]


@pytest.mark.parametrize(("low", "verdict"), [(0.5, "inside"), (1.5, "outside")])
def test_a_number_stands_beside_the_first_prediction_whose_pattern_it_matches(take, low, verdict):
    predictions = {"on*": Prediction(2.0, low, 3.0), "one": Prediction(9.0, 9.0, 9.0)}
    _, rows = take(Step("a step", one, 3600), predictions=predictions)
    assert float(rows["one"]["predicted"]) == 2
    assert rows["one"]["verdict"] == verdict


def test_each_prediction_lies_in_its_range():
    for quantity, prediction in read_predictions().items():
        assert prediction.low <= prediction.predicted <= prediction.high, quantity


@pytest.fixture
def recipe():
    """A small model, trained with all that the recipes of Flowers-102 use."""
    return ClassificationRecipe.model_validate(
        {
            "model": {
                "name": "position_vit",
                "args": {"embedding": "auto-ape", "embed_dim": 24, "depth": 1, "num_heads": 2},
            },
            "data": {"dataset": "digits", "image_size": 32, "interpolation": "bilinear"},
            "augmentation": {
                "crop": "center",
                "hflip": 0.0,
                "auto_augment": "rand-m9-mstd0.5-inc1",
                "auto_augment_spatial": False,
                "erase_prob": 0.8,
                "mixup": 0.8,
                "cutmix": 0.8,
            },
            "label_smoothing": 0.1,
            "optimizer": {"name": "adam", "lr": 0.001, "group_lr": {"*.gamma": 0.1}},
            "schedule": {"epochs": 1},
            "batch": {"size": 256, "micro": 128, "drop_last": False},
        }
    )


@pytest.fixture
def plain(recipe):
    """The same without its parser."""
    return resolved(recipe.model_dump(mode="json"), recipe.hash)


def same_bits(found, expected):
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


def test_training_from_plain_data_ends_in_the_bits_of_the_engine(recipe, plain, registry, tmp_path):
    info = registry["digits"]
    weights = loop.train(TrainingRun(recipe, 0, tmp_path / "engine", info, tmp_path))
    images = build(info, "train", tmp_path)
    model, done, steps = train(plain, info, images, tmp_path / "plain")
    assert done == steps == recipe.steps(info.train_images)
    assert same_bits(model.state_dict(), load_file(weights))


class Ending(Pictures):
    """Images of which the 300th that is read tells the training to end."""

    read = 0

    def __getitem__(self, index):
        self.read += 1
        if self.read == 300:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__getitem__(index)


def test_a_training_that_is_told_to_end_goes_on_to_the_same_bits(plain, registry, tmp_path):
    info = registry["digits"]
    images = build(info, "train", tmp_path)
    expected, _, steps = train(plain, info, images, tmp_path / "straight")
    ending = Ending(images.images, images.labels)
    _, done, _ = train(plain, info, ending, tmp_path / "ended")
    assert 0 < done < steps
    found, done, _ = train(plain, info, images, tmp_path / "ended")
    assert done == steps
    assert same_bits(found.state_dict(), expected.state_dict())
