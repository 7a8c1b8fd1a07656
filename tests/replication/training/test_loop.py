import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
import yaml
from safetensors.torch import load_file, save_file

from replication.config.recipes.classification import ClassificationRecipe
from replication.config.settings import TrainingOptions
from replication.config.weights import PublishedWeights
from replication.datasets.published_weights import fetch
from replication.plan.code_digest import Code
from replication.training import loop, run_folder
from replication.training.dispatch import TrainingRun
from replication.training.loop import train
from replication.training.model_factory import build_model
from replication.training.run_folder import read_finished
from replication.training.step import ClassifierTrainer
from replication.training.weights import load_weights
from vitrail.errors import VitrailError
from vitrail.files import sha256


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def same_weights(one: Path, other: Path) -> bool:
    """Bit for bit, metadata included."""
    return (one / "weights.safetensors").read_bytes() == (
        other / "weights.safetensors"
    ).read_bytes()


@pytest.fixture(scope="module")
def straight(tmp_path_factory, recipe, info) -> Path:
    """An uninterrupted run of the base recipe, seed 0: 8 steps."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    train(TrainingRun(recipe, 0, folder, info, folder))
    return folder


def test_a_run_leaves_its_recipe_log_weights_and_facts_and_no_checkpoint(straight, recipe):
    visible = sorted(path.name for path in straight.iterdir() if path.name[0] != ".")
    assert visible == [
        *("README.md", "config.json", "finished.json", "log.jsonl", "recipe.yaml"),
        "weights.safetensors",
    ]
    assert (
        ClassificationRecipe.model_validate(yaml.safe_load((straight / "recipe.yaml").read_text()))
        == recipe
    )
    load_weights(build_model(recipe, 10), straight / "weights.safetensors", recipe)


def test_timm_makes_the_model_again_from_the_run_folder(straight, recipe):
    model = timm.create_model(f"local-dir:{straight}", pretrained=True)
    weights = load_file(straight / "weights.safetensors")
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert timm.data.resolve_model_data_config(model)["input_size"] == (3, 8, 8)
    card = (straight / "README.md").read_text()
    for part in (f"local-dir:{straight}", "1198 images of 10 classes", "lr: 0.001", "seed 0"):
        assert part in card


def test_the_log_has_an_entry_at_the_end_of_each_epoch(straight):
    entries = log(straight)
    assert [(entry["step"], entry["epoch"]) for entry in entries] == [(4, 1.0), (8, 2.0)]
    for entry in entries:
        assert entry.keys() == {"step", "epoch", "loss", "lr", "images_per_second"}
        assert 1 < entry["loss"] < 4
        assert entry["images_per_second"] > 0


def test_the_facts_say_what_the_run_was_and_what_it_cost(straight, recipe):
    facts = read_finished(straight)
    assert facts["recipe_hash"] == recipe.hash
    assert (facts["seed"], facts["dataset"], facts["steps"]) == (0, "digits", 8)
    assert (facts["attempts"], facts["interruptions"], facts["steps_repeated"]) == (1, 0, 0)
    assert facts["wall_seconds"] > 0
    assert facts["peak_memory_bytes"] > 1e7


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(straight, recipe, run):
    assert same_weights(straight, run(recipe, "again"))
    other = load_file(run(recipe, "other", seed=1) / "weights.safetensors")
    mine = load_file(straight / "weights.safetensors")
    assert not torch.equal(mine["head.weight"], other["head.weight"])


def test_a_stopped_run_resumes_to_the_same_bits(straight, recipe, run, monkeypatch):
    folder = run(recipe, stop_after=3)
    assert not (folder / "weights.safetensors").exists()
    run(recipe, stop_after=6)
    run(recipe)
    assert same_weights(straight, folder)
    for entry, expected in zip(log(folder), log(straight), strict=True):
        assert all(entry[key] == expected[key] for key in ("step", "epoch", "loss", "lr"))
    assert (read_finished(folder)["attempts"], read_finished(folder)["interruptions"]) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "delta",
    [
        {"optimizer": {"name": "lamb"}},
        {"optimizer": {"name": "sgd", "layer_decay": 0.7}, "ema_decay": None},
        {"precision": "bf16", "augmentation": {"mixup": 0.0, "cutmix": 0.0, "erase_prob": 0.5}},
    ],
)
def test_resuming_is_exact_for_other_optimisers_and_precisions(make_recipe, run, delta):
    recipe = make_recipe(delta)
    run(recipe, "resumed", stop_after=5)
    assert same_weights(run(recipe, "resumed"), run(recipe, "uninterrupted"))


def test_resuming_from_the_checkpoint_before_a_damaged_one_is_exact(straight, recipe, run, capsys):
    run(recipe, stop_after=2)
    folder = run(recipe, stop_after=3)
    (folder / "checkpoints" / "step-00000003.pt").write_bytes(b"damaged")
    run(recipe)
    assert "step-00000003.pt is damaged" in capsys.readouterr().err
    assert same_weights(straight, folder)


def test_checkpoints_come_by_time(recipe, run, monkeypatch):
    saved = []
    step = ClassifierTrainer.step

    def spy(self, number, batches):
        saved.append(sorted(path.name for path in Path(folder, "checkpoints").glob("*.pt")))
        return step(self, number, batches)

    folder = run(recipe, stop_after=1)
    monkeypatch.setattr(ClassifierTrainer, "step", spy)
    run(recipe, stop_after=4, options=TrainingOptions(checkpoint_minutes=0))
    assert saved[1:] == [
        ["step-00000001.pt", "step-00000002.pt"],
        ["step-00000002.pt", "step-00000003.pt"],
    ]


def test_a_finished_run_is_left_as_it_is(straight, recipe, run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    (folder / "checkpoints").mkdir()  # as a kill between the last two acts leaves it
    before = (folder / "finished.json").stat().st_mtime_ns
    monkeypatch.setattr(ClassifierTrainer, "step", lambda *args: pytest.fail("it trains"))
    run(recipe)
    assert (folder / "finished.json").stat().st_mtime_ns == before
    assert not (folder / "checkpoints").exists()


def test_weights_without_facts_are_made_again(straight, recipe, run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    (folder / "finished.json").unlink()
    run(recipe)
    assert read_finished(folder)["steps"] == 8
    assert same_weights(straight, folder)


def test_a_folder_with_the_weights_of_another_run_is_refused(straight, recipe, run, tmp_path):
    shutil.copytree(straight, tmp_path / "run")
    with pytest.raises(VitrailError, match=rf"is of recipe {recipe.hash}, seed 0, not .* seed 1"):
        run(recipe, seed=1)


def test_zero_epochs_keep_the_initial_weights_of_the_seed(make_recipe, run):
    recipe = make_recipe({"schedule": {"epochs": 0, "warmup_epochs": 0}})
    one, again, other = (run(recipe, name, seed=s) for name, s in [("a", 0), ("b", 0), ("c", 1)])
    assert same_weights(one, again)
    assert not same_weights(one, other)
    assert read_finished(one)["steps"] == 0


@pytest.fixture
def from_run(make_recipe, straight):
    """A recipe that starts from the weights of the straight run, and the file of these."""

    def make(**changes):
        delta = {"model": {"weights_from": "straight-0a1b2c3d"}, **changes}
        return make_recipe(delta), {"initial": straight / "weights.safetensors"}

    return make


def test_zero_epochs_from_another_run_keep_its_weights(from_run, run):
    recipe, start = from_run(schedule={"epochs": 0, "warmup_epochs": 0})
    folder = run(recipe, seed=3, **start)
    begun = load_file(start["initial"])
    kept = load_file(folder / "weights.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in begun.items())
    assert read_finished(folder)["initial_sha256"] == sha256(start["initial"])


def test_training_goes_on_from_another_runs_weights_and_resumes_exactly(from_run, run):
    """With a learning rate of next to nothing the weights stay where they began."""
    still = {"optimizer": {"lr": 1e-12}, "schedule": {"warmup_epochs": 0}, "ema_decay": None}
    recipe, start = from_run(**still)
    whole = run(recipe, "whole", **start)
    begun = load_file(start["initial"])
    for name, value in load_file(whole / "weights.safetensors").items():
        assert torch.allclose(value, begun[name], atol=1e-6), name
    run(recipe, "cut", stop_after=3, **start)
    assert same_weights(whole, run(recipe, "cut", **start))


def test_what_was_trained_from_weights_that_are_replaced_since_is_refused(from_run, run, tmp_path):
    recipe, start = from_run(schedule={"epochs": 0, "warmup_epochs": 0})
    run(recipe, **start)
    run(recipe, **start)
    other = tmp_path / "other.safetensors"
    shutil.copy(start["initial"].with_name("finished.json"), tmp_path)
    save_file({name: value + 1 for name, value in load_file(start["initial"]).items()}, other)
    with pytest.raises(VitrailError, match=r"from other weights than .*other\.safetensors holds"):
        run(recipe, initial=other)
    folder = run(recipe, initial=other, retrain=True)  # which asks for it to be trained anew
    assert same_weights(folder, run(recipe, "fresh", initial=other))
    recipe, start = from_run()
    run(recipe, "cut", stop_after=3, **start)
    with pytest.raises(VitrailError, match=r"step-0+3\.pt was trained from other weights than"):
        run(recipe, "cut", initial=other)


@pytest.fixture
def from_published(make_recipe, tmp_path):
    """A recipe that starts from published weights, and two files of such."""

    def file(name):
        weights = build_model(make_recipe(), 10).state_dict()
        torch.save(weights, tmp_path / f"{name}.pth")
        entry = {"name": "vit", "url": [(tmp_path / f"{name}.pth").as_uri()], "licence": "none"}
        fetch(PublishedWeights.model_validate(entry), tmp_path / f"{name}.safetensors")
        return tmp_path / f"{name}.safetensors"

    def make(**changes):
        return make_recipe({"model": {"pretrained": True}, **changes}), file("one"), file("other")

    return make


def test_the_published_weights_that_a_training_starts_from_are_noted_and_may_not_be_replaced(
    from_published, run
):
    recipe, one, other = from_published(schedule={"epochs": 0, "warmup_epochs": 0})
    folder = run(recipe, initial=one)
    assert read_finished(folder)["initial_sha256"] == sha256(one) != sha256(other)
    run(recipe, initial=one)
    with pytest.raises(VitrailError, match=r"from other weights than .*other\.safetensors holds"):
        run(recipe, initial=other)
    run(recipe, initial=other, retrain=True)
    assert read_finished(folder)["initial_sha256"] == sha256(other)


@pytest.mark.parametrize("retrain", [False, True])
def test_a_training_that_has_not_noted_its_published_weights_stays_finished(
    from_published, run, retrain
):
    """As older code has left it."""
    recipe, one, other = from_published(schedule={"epochs": 0, "warmup_epochs": 0})
    folder = run(recipe, initial=one)
    facts = read_finished(folder) | {"initial_sha256": None}
    (folder / "finished.json").write_text(json.dumps(facts))
    run(recipe, initial=other, retrain=retrain)
    assert read_finished(folder) == facts


def test_a_recipe_that_starts_from_a_run_is_not_trained_without_its_weights(from_run, run):
    recipe, _ = from_run()
    with pytest.raises(VitrailError, match="the weights of straight-0a1b2c3d and was given none"):
        run(recipe)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_step_and_leaves_with_its_number(
    straight, recipe, run, before_step, monkeypatch, capsys, number
):
    handler = signal.getsignal(number)
    before_step(4, lambda _: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as stop:
        run(recipe)
    assert stop.value.code == 128 + number
    assert signal.getsignal(number) is handler
    assert f"stopped by signal {int(number)}; step 5 of 8 is saved" in capsys.readouterr().err
    monkeypatch.undo()
    assert same_weights(straight, run(recipe))


def test_a_signal_in_the_last_step_ends_the_process_once_the_weights_are_there(
    straight, recipe, run, before_step, tmp_path
):
    before_step(7, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        run(recipe)
    assert same_weights(straight, tmp_path / "run")
    assert (tmp_path / "run" / "finished.json").exists()


def poison_loss(trainer: ClassifierTrainer) -> None:
    trainer.loss = lambda logits, targets: logits.sum() * float("nan")


def poison_weight(trainer: ClassifierTrainer) -> None:
    with torch.no_grad():
        trainer.model.norm.weight[0] = float("inf")


@pytest.mark.parametrize("poison", [poison_loss, poison_weight])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint_before(
    straight, recipe, run, before_step, monkeypatch, poison
):
    before_step(3, poison)
    with pytest.raises(
        VitrailError, match=r"loss is nan at step 4 \(lr .*step-00000003\.pt: lower"
    ):
        run(recipe, options=TrainingOptions(checkpoint_minutes=0))
    monkeypatch.undo()
    assert same_weights(straight, run(recipe))


WITH_WORKERS = """
import json, os, signal, sys
from pathlib import Path
from torch.utils.data import get_worker_info
from replication.training import validation
from replication.config.settings import TrainingOptions
from replication.training.dispatch import TrainingRun
from replication.training.loop import train
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.datasets import DatasetInfo
from replication.images.caching import KeptSamples
from replication.images.loading import EvaluationSamples

def in_workers(samples, method, failure):
    fetch = getattr(samples, method)

    def failing(self, wanted):
        worker = get_worker_info()
        if worker is not None and worker.id == 0:  # the other one has still to end
            failure()
        return fetch(self, wanted)

    setattr(samples, method, failing)

def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def raises(*_):
    raise RuntimeError("it is broken")

recipe, info, folder, injected = map(json.loads, sys.argv[1:])
exec(injected)
train(TrainingRun(ClassificationRecipe.model_validate(recipe), 0, Path(folder, "run"),
      DatasetInfo.model_validate(info), Path(folder),
      options=TrainingOptions(workers=2, validate_every=1)))
"""
DIVERGING = {"optimizer": {"lr": 1e30, "clip_grad": None}, "schedule": {"epochs": 20}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delta", "injected", "told"),
    [
        (DIVERGING, "", "the loss is nan"),
        ({}, "in_workers(KeptSamples, '__getitems__', is_killed)", "Killed"),
        ({}, "in_workers(KeptSamples, '__getitems__', raises)", "it is broken"),
        ({}, "in_workers(EvaluationSamples, '__getitem__', raises)", "it is broken"),
        ({}, "validation.hits = raises", "it is broken"),
    ],
)
def test_a_training_that_fails_ends_with_its_workers(
    make_recipe, info, tmp_path, delta, injected, told
):
    recipe = make_recipe(delta).model_dump(mode="json")
    given = [recipe, info.model_dump(mode="json"), str(tmp_path), injected]
    done = subprocess.run(
        [sys.executable, "-c", WITH_WORKERS, *map(json.dumps, given)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert told in done.stderr


def test_the_rate_told_with_a_fault_is_that_of_its_step_though_losses_are_read_later(
    make_recipe, run, before_step, monkeypatch
):
    read = loop.Losses.read
    # As on a GPU, where the losses of an epoch are read at its end.
    monkeypatch.setattr(
        loop.Losses, "read", lambda self: read(self) if len(self._unread) == 4 else None
    )
    before_step(1, poison_loss)
    warmup = {"optimizer": {"lr": 0.004}, "schedule": {"warmup_lr": 0.0}}  # 0.001 more each step
    with pytest.raises(VitrailError, match=r"loss is nan at step 2 \(lr 0\.001\)"):
        run(make_recipe(warmup))


def test_a_sound_checkpoint_that_the_code_no_longer_fits_is_named(recipe, run, monkeypatch):
    run(recipe, stop_after=3)
    monkeypatch.setattr(loop, "build_model", lambda recipe, classes: build_model(recipe, 11))
    with pytest.raises(VitrailError, match=r"step-00000003\.pt does not fit model 'vit_tiny.*code"):
        run(recipe)


def test_weights_that_are_not_finite_are_never_saved(recipe, run, tmp_path, monkeypatch):
    step = ClassifierTrainer.step

    def poisoned(self, at, batches):
        loss = step(self, at, batches)
        if at in (3, 7):
            poison_weight(self)
        return loss

    monkeypatch.setattr(ClassifierTrainer, "step", poisoned)
    with pytest.raises(VitrailError, match="the weights are no longer finite after step 4"):
        run(recipe, options=TrainingOptions(checkpoint_minutes=0))
    shutil.rmtree(tmp_path / "run")
    monkeypatch.setattr(
        ClassifierTrainer, "step", lambda *a: poisoned(*a) if a[1] == 7 else step(*a)
    )
    with pytest.raises(VitrailError, match=r"after step 8 .*last good checkpoint is None"):
        run(recipe)
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_too_little_memory_is_told_with_the_micro_batch(recipe, run, monkeypatch):
    def full(self, at, batches):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(ClassifierTrainer, "step", full)
    with pytest.raises(VitrailError, match="too little memory for micro-batches of 128 images"):
        run(recipe)


def test_too_little_memory_is_no_fault_of_a_checkpoint(recipe, run, monkeypatch):
    run(recipe, stop_after=3)

    def full(self, state):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(ClassifierTrainer, "restore", full)
    with pytest.raises(VitrailError, match="too little memory"):
        run(recipe)


def test_the_dataset_must_be_the_recipes_own(recipe, run, info, tmp_path):
    newer = info.model_copy(update={"version": 2})
    with pytest.raises(VitrailError, match=r"wants dataset digits version 1 and was given .* 2"):
        train(TrainingRun(recipe, 0, tmp_path / "run", newer, tmp_path))


def test_a_dataset_of_another_size_than_was_planned_for_is_refused(recipe, info, tmp_path):
    larger = info.model_copy(update={"train_images": info.train_images + 1})
    with pytest.raises(VitrailError, match=r"has 1198 training images .* says 1199: complete it"):
        train(TrainingRun(recipe, 0, tmp_path / "run", larger, tmp_path))


def test_a_run_that_other_code_has_trained_is_trained_anew_if_asked(recipe, run, monkeypatch):
    folder = run(recipe)
    before = read_finished(folder)
    run(recipe, retrain=True)
    assert read_finished(folder) == before
    monkeypatch.setattr(run_folder, "training_code", lambda *_: Code(("other code",)))
    run(recipe)
    assert read_finished(folder) == before
    run(recipe, retrain=True)
    assert read_finished(folder)["code"] == Code(("other code",)).digest


def test_a_kill_before_a_run_begins_anew_loses_nothing(recipe, run, monkeypatch, tmp_path):
    """Checkpoints that an earlier kill left are of the old code: the new training may not go on."""
    kept = tmp_path / "kept"
    shutil.copytree(run(recipe, stop_after=3) / "checkpoints", kept)
    folder = run(recipe)
    before = (folder / "weights.safetensors").read_bytes(), read_finished(folder)
    shutil.copytree(kept, folder / "checkpoints")
    monkeypatch.setattr(run_folder, "training_code", lambda *_: Code(("other code",)))

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_folder.Checkpoints, "clear", killed)
        with pytest.raises(KeyboardInterrupt):
            run(recipe, retrain=True)
    assert ((folder / "weights.safetensors").read_bytes(), read_finished(folder)) == before
    with monkeypatch.context() as patch:
        patch.setattr(type(folder), "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            run(recipe, retrain=True)
    assert ((folder / "weights.safetensors").read_bytes(), read_finished(folder)) == before
    run(recipe, retrain=True)
    assert read_finished(folder)["code"] == Code(("other code",)).digest


def test_a_run_whose_datasets_entry_has_changed_is_trained_anew(recipe, info, run, tmp_path):
    folder = run(recipe)
    noted, reworded = read_finished(folder)["data"], info.model_copy(update={"title": "digits"})
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    train(TrainingRun(recipe, 0, folder, reworded, tmp_path))  # a word decides nothing
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before
    moved = info.model_copy(update={"mean": (0.5, 0.5, 0.5)})
    train(TrainingRun(recipe, 0, folder, moved, tmp_path))
    assert read_finished(folder)["data"] != noted
    train(TrainingRun(recipe, 0, tmp_path / "fresh", moved, tmp_path))
    assert same_weights(folder, tmp_path / "fresh")


def test_a_checkpoint_on_a_dataset_whose_entry_has_changed_is_refused(recipe, info, run, tmp_path):
    folder = run(recipe, stop_after=3)
    moved = info.model_copy(update={"mean": (0.5, 0.5, 0.5)})
    with pytest.raises(VitrailError, match=r"step-0+3\.pt is of .* delete .*checkpoints"):
        train(TrainingRun(recipe, 0, folder, moved, tmp_path))


def test_a_run_is_trained_anew_where_the_entry_of_its_sources_dataset_has_changed(
    make_recipe, info, run, tmp_path
):
    """Both stages of a training from another run's weights follow the entry."""
    still = {"schedule": {"epochs": 0, "warmup_epochs": 0}}
    of_start = make_recipe(still)
    recipe = make_recipe({**still, "model": {"weights_from": "start"}})
    initial = run(of_start, "start") / "weights.safetensors"
    folder = run(recipe, initial=initial)
    moved = info.model_copy(update={"mean": (0.5, 0.5, 0.5)})
    train(TrainingRun(of_start, 0, tmp_path / "start", moved, tmp_path))
    noted = read_finished(folder)["data"]
    run(recipe, initial=initial)
    assert read_finished(folder)["data"] != noted


def test_a_batch_larger_than_the_dataset_is_refused(make_recipe, run):
    with pytest.raises(VitrailError, match="fewer than one batch of 4096"):
        run(make_recipe({"batch": {"size": 4096, "micro": 128}}))


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "cdua"])
def test_a_device_that_is_not_there_is_refused(recipe, run, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(VitrailError, match=f"device '{device}'"):
        run(recipe, device=device)


def test_a_folder_that_cannot_be_written_is_named(recipe, run, tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(VitrailError, match=r"cannot write to .*run"):
        run(recipe)


def test_progress_ends_with_the_last_step_also_in_a_log_file(recipe, run, capsys):
    run(recipe)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "step 8/8, epoch 2/2, loss" in lines[0]
    assert "images/s" in lines[0]
