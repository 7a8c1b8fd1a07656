"""Segmenters are trained under the same rules as classifiers: resumed to the same bits, locked."""

import json
import signal
import subprocess
import sys
import time

import vitrail.segmentation  # noqa: F401  # isort: skip
import mmseg.apis
import pytest
import torch
from mmengine.optim import OptimWrapper
from mmseg.models import EncoderDecoder
from safetensors.torch import load_file

from replication.config.settings import TrainingOptions
from replication.context import Described, Trained
from replication.training.dispatch import TrainingRun
from replication.training.run_folder import exclusive, read_finished
from replication.training.segmentation import config
from replication.training.segmentation import training as engine
from replication.training.segmentation.accuracy import (
    ValidationSamples,
    predict,
    segmentation_accuracy,
)
from replication.training.segmentation.config import training_config
from replication.training.weights import load_weights
from vitrail.errors import VitrailError

STEPS = 6


@pytest.fixture
def run(info, data_root, tmp_path):
    def run(recipe, name="run", **options):
        engine.train(TrainingRun(recipe, 0, tmp_path / name, info, data_root, **options))
        return tmp_path / name

    return run


@pytest.fixture(scope="module")
def straight(recipe, info, data_root, tmp_path_factory):
    """A run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    engine.train(TrainingRun(recipe, 0, folder, info, data_root))
    return folder


def weights_of(folder):
    return load_file(folder / "weights.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_leaves_what_every_run_leaves(straight, recipe):
    facts = read_finished(straight)
    assert facts["steps"] == STEPS
    assert facts["recipe_hash"] == recipe.hash
    assert facts["dataset"] == "ade20k"
    assert not (straight / "checkpoints").exists()
    assert (straight / "recipe.yaml").exists()
    assert "UPerHead" in (straight / "config.py").read_text()
    assert len(losses_of(straight)) == 1


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_bits(straight, recipe, run):
    folder = run(recipe, stop_after=2)
    assert not (folder / "weights.safetensors").exists()
    assert [file.name for file in (folder / "checkpoints").glob("*.pt")] == ["step-00000002.pt"]
    run(recipe, stop_after=5)
    run(recipe)
    assert same(weights_of(straight), weights_of(folder))
    assert losses_of(straight) == losses_of(folder)
    assert read_finished(folder)["attempts"] == 3


@pytest.mark.slow
def test_validation_changes_no_bit_and_tells_what_is_measured(
    straight, recipe, info, data_root, run
):
    for stop in (2, None):
        folder = run(recipe, stop_after=stop, options=TrainingOptions(validate_every=1))
    assert same(weights_of(straight), weights_of(folder))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    validated = [line for line in lines if "validation/mIoU" in line]
    every = max(1, info.train_images // recipe.batch.size)
    assert [entry["step"] for entry in validated] == [
        step for step in range(1, STEPS + 1) if step % every == 0 or step == STEPS
    ]
    model = config.build_model(recipe, info.classes).eval()
    load_weights(model, folder / "weights.safetensors", recipe)
    measured = segmentation_accuracy(Trained("cpu", data_root, 0, recipe, info, model))
    for name in ("mIoU", "mAcc", "aAcc"):
        assert validated[-1][f"validation/{name}"] == pytest.approx(measured[name])


@pytest.mark.slow
def test_a_trained_run_opens_in_mmsegs_own_api_and_sees_the_same(straight, recipe, info, data_root):
    files = [str(straight / name) for name in ("config.py", "mmseg.pth")]
    theirs = mmseg.apis.init_model(*files, device="cpu")
    ours = config.build_model(recipe, info.classes).eval()
    load_weights(ours, straight / "weights.safetensors", recipe)
    assert same(theirs.state_dict(), ours.state_dict())
    assert len(theirs.dataset_meta["classes"]) == info.classes
    trained = Trained("cpu", data_root, 0, recipe, info, ours)
    for sample in map(ValidationSamples(trained).__getitem__, range(2)):
        told = mmseg.apis.inference_model(theirs, sample.told.img_path)
        assert torch.equal(told.pred_sem_seg.data[0], predict(trained, sample))
    card = (straight / "README.md").read_text()
    assert "image-segmentation" in card
    assert "init_model(" in card


@pytest.mark.slow
def test_workers_change_nothing(straight, recipe, run):
    assert same(weights_of(straight), weights_of(run(recipe, options=TrainingOptions(workers=2))))


@pytest.mark.slow
def test_a_checkpoint_is_one_of_mmengines(recipe, run):
    file = run(recipe, stop_after=2) / "checkpoints" / "step-00000002.pt"
    state = torch.load(file, weights_only=True)
    assert state["meta"]["iter"] == 2
    model = config.build_model(recipe, 150)
    model.load_state_dict(state["state_dict"])
    assert {"optimizer", "param_schedulers", "message_hub"} <= state.keys()


@pytest.mark.slow
def test_another_seed_is_another_run(straight, recipe, info, data_root, tmp_path):
    engine.train(TrainingRun(recipe, 1, tmp_path, info, data_root))
    assert not same(weights_of(straight), weights_of(tmp_path))


def test_a_finished_run_is_left_as_it_is(straight, recipe, info, data_root):
    before = (straight / "finished.json").stat().st_mtime_ns
    engine.train(TrainingRun(recipe, 0, straight, info, data_root))
    assert (straight / "finished.json").stat().st_mtime_ns == before


def test_a_second_start_in_the_same_folder_is_refused(recipe, run, tmp_path):
    with exclusive(tmp_path / "run"), pytest.raises(VitrailError, match="is being trained by"):
        run(recipe)


SCRIPT = """
import json, sys
from pathlib import Path
from replication.config.datasets import DatasetInfo
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.training.segmentation.training import train
from replication.config.settings import TrainingOptions
from replication.training.dispatch import TrainingRun
recipe, info, folder, data = map(json.loads, sys.argv[1:])
train(TrainingRun(SegmentationRecipe.model_validate(recipe), 0, Path(folder),
          DatasetInfo.model_validate(info), Path(data),
          options=TrainingOptions(workers=1, checkpoint_minutes=0)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_at_its_last_checkpoint(
    straight, recipe, info, data_root, run, tmp_path, number
):
    given = [recipe.model_dump(mode="json"), info.model_dump(mode="json")]
    paths = [str(tmp_path / "run"), str(data_root)]
    # Saving after each step makes it slow enough to be caught in the middle.
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(json.dumps, [*given, *paths])],
        stderr=subprocess.PIPE,
    )
    checkpoints = tmp_path / "run" / "checkpoints"
    while process.poll() is None and not list(checkpoints.glob("step-*.pt")):
        time.sleep(0.005)
    process.send_signal(number)
    process.wait()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    folder = run(recipe)
    facts = read_finished(folder)
    assert facts["steps"] == STEPS
    assert facts["interruptions"] == 1
    assert same(weights_of(straight), weights_of(folder))


@pytest.mark.slow
def test_a_training_whose_worker_fails_ends(recipe, info, data_root, tmp_path):
    broken = (
        "from replication.training.segmentation import sampling\n"
        "def read_sample(*_): raise RuntimeError('it is broken')\n"
        "sampling.read_sample = read_sample\n"
    )
    given = [recipe.model_dump(mode="json"), info.model_dump(mode="json")]
    paths = [str(tmp_path / "run"), str(data_root)]
    done = subprocess.run(
        [sys.executable, "-c", broken + SCRIPT, *map(json.dumps, [*given, *paths])],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "it is broken" in done.stderr


def test_a_loss_that_is_not_finite_stops_the_run(recipe, run, monkeypatch):
    parse, calls = EncoderDecoder.parse_losses, []

    def poisoned(self, losses):
        calls.append(None)
        loss, told = parse(self, losses)
        bad = loss * float("nan") if len(calls) == 4 else loss
        return bad, {**told, "loss": bad}

    monkeypatch.setattr(EncoderDecoder, "parse_losses", poisoned)
    with pytest.raises(VitrailError, match=r"loss is nan at step 4 .*step-00000003\.pt: lower"):
        run(recipe, options=TrainingOptions(checkpoint_minutes=0))


@pytest.mark.slow
def test_a_checkpoint_that_the_code_no_longer_fits_is_named(make_recipe, recipe, run, monkeypatch):
    run(recipe, stop_after=2)
    wider = make_recipe({"model": {"args": {"decode_head": {"channels": 12}}}})
    name = recipe.hash
    monkeypatch.setattr(type(wider), "hash", property(lambda self: name))
    with pytest.raises(VitrailError, match=r"step-00000002\.pt does not fit configuration"):
        run(wider)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["build_optim_wrapper", "load_state_dict"])
def test_too_little_memory_is_no_fault_of_a_configuration_or_checkpoint(
    recipe, run, monkeypatch, part
):
    run(recipe, stop_after=2)

    def full(*given, **options):
        raise torch.OutOfMemoryError

    owner = engine._Runner if part == "build_optim_wrapper" else OptimWrapper
    monkeypatch.setattr(owner, part, full)
    with pytest.raises(VitrailError, match="too little memory for 2 images"):
        run(recipe)


def test_the_model_is_built_and_filled_again(straight, recipe, info, data_root):
    model = config.build_model(recipe, info.classes)
    load_weights(model, straight / "weights.safetensors", recipe)
    sample = ValidationSamples(Described("cpu", data_root, 0, recipe, info))[0]
    with torch.inference_mode():
        logits = model.eval()(sample.image[None])
    assert logits.shape[:2] == (1, info.classes)
    assert config.image_shape(recipe) == (3, 64, 64)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"args": {"backbone": {"depht": [1]}}}}, "refuses model.args"),
        ({"model": {"name": "mmseg::swin/none.py"}}, "'mmseg::swin/none.py' cannot be used"),
        ({"model": {"name": "none"}}, "'none' cannot be used"),
    ],
)
def test_a_wrong_configuration_is_refused(make_recipe, changes, sentence):
    with pytest.raises(VitrailError) as error:
        config.build_model(make_recipe(changes), 150)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"train_dataloader": {"dataset": {"pipeline": [{"type": "LoadImageFromFiel"}]}}},
        {"optim_wrapper": {"optimizer": {"learning_rate": 1.0}}},
    ],
)
def test_parts_that_mmengine_cannot_build_are_one_sentence(make_recipe, run, options):
    with pytest.raises(VitrailError, match=r"cannot be trained \(.*\): correct the file, or"):
        run(make_recipe({"options": options}))


def test_missing_data_are_one_sentence(recipe, info, tmp_path):
    with pytest.raises(VitrailError, match=r"dataset 'ade20k' is not in .*place it as"):
        engine.train(TrainingRun(recipe, 0, tmp_path / "run", info, tmp_path))


@pytest.mark.slow
def test_a_run_that_has_come_so_far_takes_no_step_more(recipe, run):
    folder = run(recipe, stop_after=3)
    run(recipe, stop_after=3)
    assert [file.name for file in (folder / "checkpoints").glob("*.pt")] == ["step-00000003.pt"]


def test_a_batch_that_processes_cannot_share_is_refused(recipe, info, data_root):
    with pytest.raises(VitrailError, match=r"batch\.size 2 .* 3 devices cannot share"):
        training_config(TrainingRun(recipe, 0, data_root, info, data_root), world=3, on_gpu=False)
