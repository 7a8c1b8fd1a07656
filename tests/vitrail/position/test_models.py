import math

import pytest
import timm
import torch

import vitrail.models  # noqa: F401
from replication.config.recipes.classification import ClassificationRecipe
from replication.training.model_factory import build_model, check_image_size
from replication.training.optimizer import build_optimizer
from replication.training.weights import load_weights, save_weights

D, DEPTH, HEADS, HIDDEN, SIDE, CLASSES = 192, 9, 12, 384, 8, 10
N, HEAD = SIDE**2, D // HEADS
LAYER = 4 * D + (3 * D * D + 3 * D) + (D * D + D) + (D * HIDDEN + HIDDEN) + (HIDDEN * D + D)
TRUNK = (3 * 4 * 4 * D + D) + DEPTH * LAYER + 2 * D + D * CLASSES + CLASSES
FOURIER = 2 * D // 2 + (D * 4 * D + 4 * D) + (4 * D * D + D)
ROTARY = DEPTH * HEADS * HEAD - DEPTH * 3 * D  # two for each pair of channels; no biases


def recipe(optimizer=None, **args):
    return ClassificationRecipe.model_validate(
        {
            "model": {"name": "position_vit", "args": args},
            "data": {"dataset": "digits", "image_size": 32},
            "optimizer": {"name": "adam", "lr": 1e-3, "weight_decay": 0, **(optimizer or {})},
            "schedule": {"epochs": 1},
            "batch": {"size": 8, "micro": 8},
        }
    )


@pytest.mark.parametrize(
    ("embedding", "own", "with_class_token"),
    [
        ("none", 0, 0),
        ("ape", N * D, D),
        ("sin", 0, 0),
        ("sin-tuned", N * D, D),
        ("rpe", 2 * (2 * SIDE - 1) * HEAD, 0),
        ("ff", FOURIER, 0),
        ("cape", 0, 0),
        ("irpe", HEADS * HEAD * 49, HEADS * HEAD),
        ("rope", ROTARY, 0),
        ("rope-axial", -DEPTH * 3 * D, 0),  # no biases
        ("alibi", 0, 0),
        ("auto-ape", N * D + 1, D),
        ("auto-rope", ROTARY + DEPTH, 0),
        ("auto-rope-shared", ROTARY + 1, 0),
    ],
)
def test_the_papers_models_have_so_many_parameters(embedding, own, with_class_token):
    with torch.device("meta"):
        plain = timm.create_model("position_vit", embedding=embedding, num_classes=CLASSES)
        cls = timm.create_model("position_vit", embedding=embedding, class_token=True)
    assert sum(p.numel() for p in plain.parameters()) == TRUNK + own
    assert sum(p.numel() for p in cls.parameters()) == TRUNK + own + D + with_class_token


def test_a_recipe_builds_the_model_and_its_weights_come_back(tmp_path):
    micro = recipe(embedding="auto-rope", embed_dim=16, depth=2, num_heads=2, class_token=True)
    model, other = build_model(micro, 7), build_model(micro, 7)
    check_image_size(model, micro, torch.device("cpu"))
    save_weights(model.state_dict(), tmp_path / "model.safetensors", micro, seed=0)
    load_weights(other, tmp_path / "model.safetensors", micro)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model.eval()(images), other.eval()(images))
    assert model(images).shape == (2, 7)


@pytest.mark.parametrize(
    "embedding", ["auto-ape", "auto-cape", "irpe", "rope", "rope-axial", "alibi"]
)
def test_a_micro_model_learns_from_a_few_steps(embedding):
    micro = recipe(embedding=embedding, embed_dim=32, depth=2, num_heads=4, drop_rate=0.0)
    torch.manual_seed(0)
    model = build_model(micro, 8).train()
    optimizer = build_optimizer(model, micro)
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8)
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(8), rel=0.3)
    assert losses[-1] < losses[0] - 0.2


@pytest.mark.parametrize("embedding", ["auto-ape", "auto-ff", "auto-rope", "auto-rope-shared"])
def test_the_factors_of_auto_pe_and_nothing_else_get_their_own_rate(embedding):
    """position, Sec. 5.6."""
    args = {"embedding": embedding, "embed_dim": 16, "depth": 2, "num_heads": 2, "drop_rate": 0.0}
    automatic = recipe({"group_lr": {"*.gamma": 0.1}}, **args)
    model = build_model(automatic, 5)
    optimizer = build_optimizer(model, automatic)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(torch.randn(4, 3, 32, 32)).square().sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        step = (parameter - before[name]).abs().max().item()  # Adam's first is the rate itself
        expected = 0.1 if name == "pos_embed.gamma" else 1e-3
        assert step == pytest.approx(expected, rel=0.01), name


def test_positions_and_class_token_are_not_decayed():
    args = {"embedding": "irpe", "embed_dim": 16, "depth": 1, "num_heads": 2, "class_token": True}
    decayed = recipe({"weight_decay": 0.1}, **args)
    model = build_model(decayed, 5)
    groups = build_optimizer(model, decayed).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        free = parameter.ndim == 1 or name in ("cls_token", "pos_embed.weight")
        assert decay[id(parameter)] == (0 if free else 0.1), name


def test_the_head_can_be_replaced():
    model = timm.create_model("position_vit", embed_dim=16, depth=1, num_heads=2)
    model.reset_classifier(3)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 3)
    assert model.get_classifier().out_features == 3
    model.reset_classifier(0)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 16)
