import copy

import pytest
import torch
from torch import nn

from replication.images.loading import MicroBatch, TrainingSamples, micro_batches
from replication.images.opening import build
from replication.images.transforms import train_transform
from replication.training.distributed import Team
from replication.training.model_factory import build_model
from replication.training.step import ClassifierTrainer
from vitrail.errors import VitrailError
from vitrail.seeding import seed_everything

CPU = Team(rank=0, world=1, device=torch.device("cpu"))
# Nothing random and nothing mixed: the step is a function of weights and images alone.
SOBER = {
    "model": {"args": {"drop_path_rate": 0.0}},
    "augmentation": {"mixup": 0.0, "cutmix": 0.0},
    "optimizer": {"clip_grad": None},
}


def make_trainer(recipe, seed=0) -> ClassifierTrainer:
    seed_everything("initial weights", seed)
    return ClassifierTrainer(build_model(recipe, 10), recipe, seed, 10, 4, CPU)


@pytest.fixture
def batches(info, tmp_path, recipe) -> list[MicroBatch]:
    """The two micro-batches of 128 images of the first step."""
    images = build(info, "train", tmp_path)
    samples = TrainingSamples(images, train_transform(recipe, info), seed=0)
    return list(micro_batches(samples, size=256, micro=128, start=0, stop=1))


def changed(batches: list[MicroBatch]) -> list[MicroBatch]:
    """Copies, since mixing works in place."""
    return copy.deepcopy(batches)


def test_accumulated_micro_batches_give_the_gradient_of_the_whole_batch(make_recipe, batches):
    recipe = make_recipe(SOBER)
    trainer = make_trainer(recipe)
    loss = trainer.step(5, changed(batches))
    whole = make_trainer(recipe)
    images = torch.cat([batch.images for batch in batches])
    labels = torch.cat([batch.labels for batch in batches])
    expected = whole.loss(whole.model(images), labels)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, whole.model.get_parameter(name).grad, rtol=1e-4, atol=1e-6
        )


def test_a_micro_batch_draws_the_same_whichever_process_runs_it_and_when(recipe, batches):
    alone, later = make_trainer(recipe), make_trainer(recipe)
    alone.accumulation = later.accumulation = 1
    torch.rand(5)
    first = alone.step(3, changed(batches)[1:])
    second = later.step(3, changed(batches)[1:])
    assert torch.equal(first, second)


def test_the_moving_average_follows_its_closed_form(make_recipe, batches):
    recipe = make_recipe({"ema_decay": 0.7})
    trainer = make_trainer(recipe)
    history = [copy.deepcopy(trainer.model.state_dict())]
    for step in range(3):
        trainer.step(step + 4, changed(batches))
        history.append(copy.deepcopy(trainer.model.state_dict()))
    for name, average in trainer.result.state_dict().items():
        # d^3 w0 + (1 - d) (d^2 w1 + d w2 + w3)
        w0, w1, w2, w3 = (weights[name] for weights in history)
        expected = 0.7**3 * w0 + 0.3 * (0.7**2 * w1 + 0.7 * w2 + w3)
        torch.testing.assert_close(average, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(trainer.result.state_dict()["head.weight"], history[-1]["head.weight"])


def test_without_a_moving_average_the_weights_themselves_are_saved(make_recipe, batches):
    trainer = make_trainer(make_recipe({"ema_decay": None}))
    trainer.step(4, changed(batches))
    assert torch.equal(trainer.result.state_dict()["head.weight"], trainer.model.head.weight)


def test_the_gradient_is_clipped_to_the_recipes_norm(make_recipe, batches):
    free = make_trainer(make_recipe({"optimizer": {"clip_grad": None}}))
    clipped = make_trainer(make_recipe({"optimizer": {"clip_grad": 0.01}}))
    norms = []
    for trainer in (free, clipped):
        trainer.step(4, changed(batches))
        gradients = [parameter.grad for parameter in trainer.model.parameters()]
        norms.append(nn.utils.get_total_norm(gradients).item())
    assert norms[0] > 0.02
    assert norms[1] == pytest.approx(0.01, rel=1e-3)


def test_gradient_checkpointing_changes_no_gradient(make_recipe, batches):
    plain = make_trainer(make_recipe())
    checkpointed = make_trainer(make_recipe({"grad_checkpointing": True}))
    for trainer in (plain, checkpointed):
        trainer.step(4, changed(batches))
    assert checkpointed.model.grad_checkpointing
    for mine, theirs in zip(plain.parameters, checkpointed.parameters, strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def test_a_model_without_gradient_checkpointing_is_refused(make_recipe):
    recipe = make_recipe({"grad_checkpointing": True})
    with pytest.raises(VitrailError, match="has no gradient checkpointing"):
        ClassifierTrainer(nn.Linear(2, 2), recipe, 0, 10, 4, CPU)


def test_bf16_computes_in_half_precision_and_keeps_full_precision_weights(make_recipe, batches):
    full, half = make_trainer(make_recipe()), make_trainer(make_recipe({"precision": "bf16"}))
    seen = []
    half.model.head.register_forward_hook(lambda module, inputs, logits: seen.append(logits.dtype))
    losses = [trainer.step(4, changed(batches)) for trainer in (full, half)]
    assert set(seen) == {torch.bfloat16}
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters)
    assert losses[1] != losses[0]
    torch.testing.assert_close(losses[1], losses[0], rtol=0.02, atol=0)


def test_fp16_needs_a_gpu(make_recipe):
    with pytest.raises(VitrailError, match="fp16' needs a CUDA device"):
        make_trainer(make_recipe({"precision": "fp16"}))


def test_a_compiled_model_keeps_its_names_in_the_state_dict(make_recipe):
    recipe = make_recipe({"compile": True})
    compiled = make_trainer(recipe)
    assert compiled.model._compiled_call_impl is not None
    assert list(compiled.state()["model"]) == list(build_model(recipe, 10).state_dict())
    assert list(compiled.result.state_dict()) == list(build_model(recipe, 10).state_dict())


def test_a_step_after_restoring_is_that_of_an_uninterrupted_training(recipe, batches):
    straight = make_trainer(recipe)
    straight.step(4, changed(batches))
    state = copy.deepcopy(straight.state())
    straight.step(5, changed(batches))
    resumed = make_trainer(recipe, seed=1)
    resumed.seed = 0
    resumed.restore(state)
    resumed.step(5, changed(batches))
    for name, value in straight.result.state_dict().items():
        assert torch.equal(value, resumed.result.state_dict()[name]), name


def test_the_rate_of_a_step_is_that_of_parameters_without_one_of_their_own(make_recipe, batches):
    recipe = make_recipe(SOBER, {"optimizer": {"group_lr": {"blocks.*": 0.1}}})
    trainer = make_trainer(recipe)
    trainer.step(4, changed(batches))
    assert trainer.lr == pytest.approx(0.0005)  # half of the way down
    restored = make_trainer(recipe, seed=1)
    restored.restore(trainer.state())
    assert restored.lr == trainer.lr


def test_weights_that_are_not_finite_are_found(recipe):
    trainer = make_trainer(recipe)
    assert trainer.fault(3) is None
    with torch.no_grad():
        trainer.model.head.bias[2] = float("inf")
    assert "after step 3" in (trainer.fault(3) or "")
