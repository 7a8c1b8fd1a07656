"""A training that is validated takes the same steps, and is told what will be measured."""

import json
import os
import signal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replication.config.recipe import Model
from replication.config.settings import TrainingOptions
from replication.context import Trained
from replication.measures.accuracy import accuracy
from replication.training.model_factory import build_model
from replication.training.validation import is_due
from replication.training.weights import load_weights
from vitrail.measures.accuracy import hits

MODELS = {
    "transformer with random depth and an average": {},
    "dropout, no average": {"model": {"args": {"proj_drop_rate": 0.2}}, "ema_decay": None},
}


def entries(folder):
    """Validations, and the other entries of a log."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [
        [line for line in lines if ("validation/top1" in line) == kind] for kind in (True, False)
    ]


def bits(folder):
    return (folder / "weights.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("delta", MODELS.values(), ids=MODELS)
def test_validation_changes_no_bit_of_weights_and_losses(make_recipe, run, delta, workers):
    recipe = make_recipe(delta)
    without = run(recipe, "without", options=TrainingOptions(workers=workers))
    watched = run(recipe, "watched", options=TrainingOptions(workers=workers, validate_every=1))
    assert bits(without) == bits(watched)
    validated, logged = entries(watched)
    assert [entry["epoch"] for entry in validated] == [1.0, 2.0]
    assert [entry["loss"] for entry in logged] == [entry["loss"] for entry in entries(without)[1]]


@pytest.mark.slow
def test_batch_norm_counts_no_image_of_the_validation(recipe, run):
    """Its running averages are among the weights."""
    convolutional = recipe.model_copy(update={"model": Model(name="test_resnet")})
    without, watched = (
        run(convolutional, str(n), options=TrainingOptions(validate_every=n)) for n in (None, 1)
    )
    assert bits(without) == bits(watched)


@pytest.mark.slow
def test_a_resumed_training_logs_and_ends_as_an_uninterrupted_one(recipe, run):
    whole = run(recipe, "whole", options=TrainingOptions(validate_every=1))
    for stop in (3, 5, None):  # within the first epoch and the second
        cut = run(recipe, "cut", options=TrainingOptions(validate_every=1), stop_after=stop)
    assert bits(whole) == bits(cut) == bits(run(recipe, "without"))
    assert entries(whole)[0] == entries(cut)[0]


def test_the_last_validation_is_the_accuracy_that_is_measured(recipe, info, run, tmp_path):
    """Of the moving average, which is what is saved."""
    folder = run(recipe, options=TrainingOptions(validate_every=2))
    (last,) = entries(folder)[0]
    model = build_model(recipe, 10).eval()
    load_weights(model, folder / "weights.safetensors", recipe)
    measured = accuracy(Trained("cpu", tmp_path, 0, recipe, info, model))
    assert last["step"] == 8
    assert last["validation/top1"] == pytest.approx(measured["top1"])
    assert last["validation/top5"] == pytest.approx(measured["top5"])


def test_a_signal_is_obeyed_before_a_validation_begins(recipe, run, before_step, tmp_path):
    before_step(3, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        run(recipe, options=TrainingOptions(validate_every=1))
    assert entries(tmp_path / "run")[0] == []
    assert (tmp_path / "run" / "checkpoints" / "step-00000004.pt").exists()


def test_it_comes_each_so_many_epochs_and_at_the_end():
    due = [step for step in range(1, 24) if is_due(step, 2, 5, 23)]
    assert due == [10, 20, 23]
    assert not any(is_due(step, None, 5, 23) for step in range(1, 24))


@given(st.integers(1, 12), st.integers(2, 12), st.integers(0, 10**6))
def test_hits_are_what_a_brute_force_count_finds(batch, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, classes, generator=generator)
    labels = torch.randint(classes, (batch,), generator=generator)
    ranks = [sorted(range(classes), key=lambda c: -row[c].item()) for row in logits]
    top1 = sum(rank[0] == label for rank, label in zip(ranks, labels.tolist(), strict=True))
    top5 = sum(label in rank[:5] for rank, label in zip(ranks, labels.tolist(), strict=True))
    assert hits(logits, labels).sum(dim=0).tolist() == [top1, top5]
