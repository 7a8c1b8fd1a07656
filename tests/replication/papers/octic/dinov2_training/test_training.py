"""Backbones are trained under the rules of classifiers: resumed to the same bits, and shared."""

import json
import math

import pytest
import torch
import torch.multiprocessing
from safetensors.torch import load_file

from replication.config.settings import TrainingOptions
from replication.images.loading import MicroBatch
from replication.papers.octic.dinov2 import training as engine
from replication.papers.octic.dinov2.network import Network, build_model, teacher_file
from replication.papers.octic.dinov2.training import (
    SelfSupervisionTrainer,
    collapse,
    diversity,
    train,
)
from replication.training.dispatch import TrainingRun
from replication.training.distributed import Team
from replication.training.run_folder import read_finished
from replication.training.weights import load_weights
from vitrail.errors import VitrailError

STEPS = 6


@pytest.fixture
def run(info, tmp_path):
    def run(recipe, name="run", seed=0, **options):
        train(TrainingRun(recipe, seed, tmp_path / name, info, tmp_path, **options))
        return tmp_path / name

    return run


@pytest.fixture(scope="module")
def straight(recipe, info, tmp_path_factory):
    """A run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    train(TrainingRun(recipe, 0, folder, info, folder))
    return folder


def same_weights(one, other):
    return (one / "weights.safetensors").read_bytes() == (
        other / "weights.safetensors"
    ).read_bytes()


def test_a_run_leaves_the_teachers_backbone_and_earlier_teachers(straight, recipe):
    model = build_model(recipe, 10)
    load_weights(model, straight / "weights.safetensors", recipe)
    saved = sorted(file.name for file in (straight / "teachers").iterdir())
    assert saved == [teacher_file(straight, step).name for step in (0, 3, 6)]
    first, _, last = (load_file(straight / "teachers" / name) for name in saved)
    final = load_file(straight / "weights.safetensors")
    assert all(torch.equal(final[name], last[name]) for name in final)
    assert not all(torch.equal(first[name], last[name]) for name in final)
    facts = read_finished(straight)
    assert (facts["steps"], facts["recipe_hash"]) == (STEPS, recipe.hash)


def test_timm_makes_the_teachers_backbone_again_from_the_run_folder(straight):
    import timm  # after vitrail, also in the processes of these tests

    model = timm.create_model(f"local-dir:{straight}", pretrained=True).eval()
    weights = load_file(straight / "weights.safetensors")
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, model.num_features)


def test_the_log_tells_the_parts_of_the_loss_and_how_far_collapse_is(straight):
    (entry,) = [json.loads(line) for line in (straight / "log.jsonl").read_text().splitlines()]
    assert {"dino_global", "dino_local", "ibot", "koleo"} < entry.keys()
    assert 0 < entry["teacher_entropy"] < entry["marginal_entropy"] < math.log(12) + 1e-3
    assert 1 < entry["effective_rank"] < 8.001
    assert -1 < entry["mean_cosine"] < 1


@pytest.mark.parametrize("centering", ["sinkhorn", pytest.param("softmax", marks=pytest.mark.slow)])
def test_a_stopped_run_resumes_to_the_same_bits(make_recipe, straight, recipe, run, centering):
    chosen = make_recipe({"teacher": {"centering": centering}})
    whole = straight if chosen == recipe else run(chosen, "whole")
    run(chosen, stop_after=2)
    run(chosen, stop_after=5)
    folder = run(chosen)
    assert same_weights(whole, folder)
    for step in (0, 3, 6):
        assert teacher_file(whole, step).read_bytes() == teacher_file(folder, step).read_bytes()


@pytest.mark.slow
def test_another_seed_is_another_run_and_a_head_for_patches_another_recipe(
    straight, make_recipe, recipe, run
):
    assert not same_weights(straight, run(recipe, "other", seed=1))
    assert not same_weights(straight, run(make_recipe({"head": {"separate": True}}), "separate"))


def _process(rank, port, recipe, info, folder):
    import os

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    train(TrainingRun(recipe, 0, folder, info, folder))


@pytest.mark.slow
@pytest.mark.parametrize("centering", ["sinkhorn", "softmax"])
def test_two_processes_take_the_steps_of_one_with_as_many_micro_batches(
    make_recipe, straight, recipe, run, info, tmp_path, centering, free_port
):
    chosen = make_recipe({"teacher": {"centering": centering}})
    alone = straight if chosen == recipe else run(chosen, "alone")
    given = (free_port, chosen, info, tmp_path / "shared")
    torch.multiprocessing.spawn(_process, given, nprocs=2)
    shared = load_file(tmp_path / "shared" / "weights.safetensors")
    for name, value in load_file(alone / "weights.safetensors").items():
        other = shared[name]
        if name.endswith(
            "qkv.bias"
        ):  # without the keys', whose gradient is rounding (test_network)
            value, other = (torch.cat([x.chunk(3)[0], x.chunk(3)[2]]) for x in (value, other))
        assert torch.allclose(value, other, rtol=1e-3, atol=2e-5), name


def test_training_starts_from_another_runs_backbone(straight, recipe, run):
    model = recipe.model.model_copy(update={"weights_from": "straight-0a1b2c3d"})
    started = recipe.model_copy(update={"model": model})
    folder = run(started, initial=straight / "weights.safetensors", stop_after=1)
    first = load_file(teacher_file(folder, 0))
    begun = load_file(straight / "weights.safetensors")
    assert all(torch.equal(first[name], begun[name]) for name in begun)
    with pytest.raises(VitrailError, match=r"straight-0a1b2c3d and was given none"):
        run(started, "other")


def norm_of_gradients(module):
    """Over all parameters together."""
    return torch.stack([p.grad.norm() for p in module.parameters()]).norm().item()


def test_a_step_clips_backbone_and_head_apart_and_then_the_teacher_follows(make_recipe):
    recipe = make_recipe({"optimizer": {"clip_grad": 1e-3}, "batch": {"size": 4, "micro": 4}})
    torch.manual_seed(0)
    network = Network(recipe, build_model(recipe, 10))
    trainer = SelfSupervisionTrainer(network, recipe, 0, Team(0, 1, torch.device("cpu")))
    begun = [parameter.clone() for parameter in trainer.student.parameters()]
    crops = [torch.randn(4, 2, 3, 16, 16), torch.randn(4, 2, 3, 8, 8)]
    trainer.step(3, [MicroBatch(3, 0, crops, torch.zeros(4, dtype=torch.long))])
    assert norm_of_gradients(trainer.student.backbone) == pytest.approx(1e-3, rel=1e-2)
    assert norm_of_gradients(trainer.student.head) == pytest.approx(1e-3, rel=1e-2)
    momentum = 1 - 0.1 * (1 + math.cos(math.pi * 3 / 6)) / 2  # from 0.9 to 1 over six steps
    moved = list(trainer.student.parameters())
    assert not all(map(torch.equal, begun, moved))
    for old, new, followed in zip(begun, moved, trainer.teacher.parameters(), strict=True):
        assert torch.allclose(followed, momentum * old + (1 - momentum) * new, atol=1e-7)


def test_a_loss_that_is_not_finite_stops_the_run(recipe, run, monkeypatch):
    step = engine.SelfSupervisionTrainer.step

    def poisoned(self, at, batches):
        loss = step(self, at, batches)
        return loss * float("nan") if at == 3 else loss

    monkeypatch.setattr(engine.SelfSupervisionTrainer, "step", poisoned)
    with pytest.raises(VitrailError, match=r"loss is nan at step 4 .*step-00000003\.pt: lower"):
        run(recipe, options=TrainingOptions(checkpoint_minutes=0))


def test_diversity_of_known_features_and_targets():
    sure = torch.eye(4)
    spread = diversity(sure, torch.eye(3))
    assert spread == pytest.approx(
        {
            "teacher_entropy": 0,
            "marginal_entropy": math.log(4),
            "effective_rank": 3,
            "mean_cosine": 0,
        },
        abs=1e-6,
    )
    assert collapse(spread, prototypes=4) is None
    alike = diversity(sure[:1].repeat(4, 1), torch.eye(3))
    assert collapse(alike, 4) == "all targets are alike"
    uniform = diversity(torch.full((4, 4), 0.25), torch.eye(3))
    assert collapse(uniform, 4) == "the targets are uniform"
    assert collapse(diversity(sure, torch.ones(3, 2)), 4) == "all features are alike"


def test_a_collapse_is_told(make_recipe, run, capsys, monkeypatch):
    monkeypatch.setattr(engine, "collapse", lambda signs, prototypes: "all features are alike")
    run(make_recipe())
    assert "the features collapse: all features are alike; raise" in capsys.readouterr().err
