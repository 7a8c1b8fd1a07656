"""Ten optimiser steps of the papers' classifiers against a restatement in plain torch.

The restatement is written from the papers' recipes: losses, clipping, parameter groups, LAMB,
Adam, AdamW and schedules. It shares the model's forward pass with ours. All is in float64, so that
rounding does not grow; nothing is drawn by chance.
"""

import math

import pytest
import torch
from torch.nn import functional

from replication.images.loading import MicroBatch
from replication.training.distributed import Team
from replication.training.model_factory import build_model
from replication.training.step import ClassifierTrainer
from tests.conftest import catalog_of

STEPS, CLASSES, SIDE, SIZE, MICRO = 10, 5, 16, 6, 2
SMALL = {
    "octic": {"img_size": SIDE, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}
    | {"octic_depth": 1, "init_std": 0.1},
    "shift": {"img_size": SIDE, "patch_size": 2, "embed_dim": 16, "depths": (1, 1)}
    | {"num_heads": (2, 2), "window_size": 4},
    "position": {
        "img_size": SIDE,
        "patch_size": 4,
        "embed_dim": 32,
        "depth": 2,
        "num_heads": 2,
        "drop_rate": 0.0,
    },
}


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def small(paper, name):
    """The recipe of full scale, for a small model, without what is drawn by chance."""
    recipe = catalog_of("full").paper(paper).run(name).recipe
    args = {**recipe.model.args, **SMALL[paper]}
    args |= {name: 0.0 for name in args if name in ("drop_path_rate", "drop_rate")}
    part = {
        "model": recipe.model.model_copy(update={"args": args}),
        "data": recipe.data.model_copy(update={"image_size": SIDE}),
        "augmentation": recipe.augmentation.model_copy(update={"mixup": 0.0, "cutmix": 0.0}),
        "batch": recipe.batch.model_copy(update={"size": SIZE, "micro": MICRO}),
        "precision": "fp32",
        "compile": False,
    }
    return recipe.model_copy(update=part)


def batches_of(step):
    torch.manual_seed(step)
    images = torch.randn(SIZE // MICRO, MICRO, 3, SIDE, SIDE, dtype=torch.float64)
    labels = torch.randint(CLASSES, (SIZE // MICRO, MICRO))
    return [MicroBatch(step, i, *pair) for i, pair in enumerate(zip(images, labels, strict=True))]


def ours(recipe, first, steps_per_epoch):
    """Return the parameters before and after our steps, by name."""
    torch.manual_seed(0)
    model = build_model(recipe, CLASSES).double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = ClassifierTrainer(
        model, recipe, 0, CLASSES, steps_per_epoch, Team(0, 1, torch.device("cpu"))
    )
    for step in range(first, first + STEPS):
        trainer.step(step, batches_of(step))
    return model, before, dict(model.named_parameters())


def restated(model, before, first, rate, loss, clip, update):
    """Take the steps again: `update` gives a parameter's change for its name and gradient."""
    after = {name: value.clone() for name, value in before.items()}
    for step in range(first, first + STEPS):
        model.zero_grad()
        model.load_state_dict({**model.state_dict(), **after})
        for batch in batches_of(step):
            (loss(model(batch.images), batch.labels) * MICRO / SIZE).backward()
        grads = {name: p.grad for name, p in model.named_parameters()}
        length = math.sqrt(sum(g.square().sum().item() for g in grads.values()))
        share = min(1.0, clip / (length + 1e-6)) if clip else 1.0
        for name, value in after.items():
            value -= update(name, value, share * grads[name], step - first + 1, rate(step, name))
    return after


def compare(found, expected, before):
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0, atol=1e-6), name
    moved = sum(not torch.allclose(found[name], before[name], atol=1e-5) for name in found)
    assert moved > len(found) / 2


def moments(state, name, gradient, time):
    """Adam's quotient of both moments (Kingma & Ba, 2015, Alg. 1), with epsilon `1e-8`."""
    m, v = state.get(name, (0.0, 0.0))
    m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
    state[name] = m, v
    return (m / (1 - 0.9**time)) / ((v / (1 - 0.999**time)).sqrt() + 1e-8)


def test_deit_iii_by_lamb():
    """octic, Table 6(a), App. E.1, and You et al., 2020, Alg. 2; 5 of 400 epochs warm up.

    Each representation's weights are a tensor of their own; norms, layer scales, positions, tokens
    and biases are neither decayed nor rescaled.
    """
    recipe, state = small("octic", "h8-l"), {}

    def rate(step, name):
        if step < 10:
            return 1e-6 + step * (3e-3 - 1e-6) / 10
        return 1e-5 + (3e-3 - 1e-5) * (1 + math.cos(math.pi * step / 800)) / 2

    def loss(logits, labels):
        hot = functional.one_hot(labels, CLASSES).double()
        p = logits.sigmoid()
        return -(hot * p.log() + (1 - hot) * (1 - p).log()).mean()

    def update(name, value, gradient, time, lr):
        change = moments(state, name, gradient, time)
        free = ("norm", ".ls", "bias", "pos_embed", "cls_token")
        if any(part in name for part in free):
            return lr * change
        change = change + 0.02 * value
        stacked = name.startswith("patch_embed") or (
            name.startswith("blocks.0.") and name.endswith(".weight")
        )
        pairs = zip(value, change, strict=True) if stacked else [(value, change)]
        scaled = [lr * w.norm() / u.norm() * u for w, u in pairs]
        return torch.stack(scaled) if stacked else scaled[0]

    model, before, found = ours(recipe, 5, steps_per_epoch=2)
    found = {name: p.detach().clone() for name, p in found.items()}
    compare(found, restated(model, before, 5, rate, loss, 1.0, update), before)


def smoothed(logits, labels):
    """Cross-entropy with 0.1 of each label spread over all classes."""
    targets = 0.9 * functional.one_hot(labels, CLASSES) + 0.1 / CLASSES
    return -(targets * logits.log_softmax(-1)).sum(-1).mean()


def test_swin_by_adamw():
    """shift, Table A3: 20 of 300 epochs warm up from 1e-6; the cosine ends at 1e-5; clipped at 5.

    Biases, norms and relative positions are not decayed, as in Swin's published code.
    """
    recipe, state = small("shift", "swin_t-imagenet-standard"), {}

    def rate(step, name):
        if step < 20:
            return 1e-6 + step * (1e-3 - 1e-6) / 20
        return 1e-5 + (1e-3 - 1e-5) * (1 + math.cos(math.pi * step / 300)) / 2

    def update(name, value, gradient, time, lr):
        decayed = value.ndim > 1 and "relative_position_bias_table" not in name
        return lr * (moments(state, name, gradient, time) + 0.05 * decayed * value)

    model, before, found = ours(recipe, 15, steps_per_epoch=1)
    found = {name: p.detach().clone() for name, p in found.items()}
    compare(found, restated(model, before, 15, rate, smoothed, 5.0, update), before)


def test_a_vit_with_learned_position_gains_by_adam():
    """position, Appx. G: a cosine of 400 epochs to zero, no decay, no clipping; gains at 0.1."""
    recipe, state = small("position", "cifar10-auto-ape"), {}

    def rate(step, name):
        peak = 0.1 if name.endswith(".gamma") else 1e-3
        return peak * (1 + math.cos(math.pi * step / 1600)) / 2

    def update(name, value, gradient, time, lr):
        return lr * moments(state, name, gradient, time)

    model, before, found = ours(recipe, 700, steps_per_epoch=4)
    found = {name: p.detach().clone() for name, p in found.items()}
    assert any(name.endswith(".gamma") for name in found)
    compare(found, restated(model, before, 700, rate, smoothed, None, update), before)
