import math

import pytest
import torch

from replication.papers.octic.dinov2.network import Network, build_model
from replication.papers.octic.dinov2.optimizer import (
    Schedules,
    build_optimizer,
    cosine,
    follow,
    ramp,
)


@pytest.fixture
def decayed(make_recipe):
    """DINOv2's own rules on a short schedule."""
    return make_recipe(
        {
            "optimizer": {
                "lr": 4e-3,
                "weight_decay": [0.04, 0.4],
                "layer_decay": 0.9,
                "patch_embed_scale": 0.2,
            },
            "schedule": {
                "steps": 100,
                "warmup_steps": 10,
                "min_lr": 1e-6,
                "freeze_last_layer_steps": 3,
            },
            "teacher": {
                "momentum": [0.992, 1.0],
                "temperature": [0.04, 0.07],
                "temperature_steps": 31,
            },
        }
    )


@pytest.fixture
def schedules(decayed):
    network = Network(decayed, build_model(decayed, 10))
    return Schedules(decayed, build_optimizer(network, decayed))


def test_the_learning_rate_is_exact_at_the_borders_of_its_schedule(schedules):
    found = {}
    for step in (0, 1, 9, 10, 55, 99):
        schedules.step_update(step)
        found[step] = schedules.lr
    assert found[0] == 0
    assert found[1] == pytest.approx(4e-3 / 9)
    assert found[9] == found[10] == 4e-3
    assert found[55] == pytest.approx((4e-3 + 1e-6) / 2)
    last = 1e-6 + (4e-3 - 1e-6) * (1 + math.cos(math.pi * 89 / 90)) / 2
    assert found[99] == pytest.approx(last)


def test_weight_decay_momentum_and_temperature_begin_and_end_as_they_are_given(schedules):
    for step, decay in ((0, 0.04), (50, pytest.approx(0.22)), (100, 0.4)):
        schedules.step_update(step)
        kinds = {group["weight_decay"] for group in schedules.optimizer.param_groups}
        assert sorted(kinds) == [0, decay]
    momenta = [schedules.momentum(step) for step in (0, 50, 100)]
    assert momenta == [0.992, pytest.approx(0.996), 1]
    temperatures = [schedules.teacher_temperature(step) for step in (0, 15, 30, 31, 99)]
    assert temperatures == [0.04, pytest.approx(0.055), 0.07, 0.07, 0.07]


def test_a_ramp_and_a_cosine_of_one_step_are_at_their_end():
    assert ramp(0, 0.1, 0.2, 1) == 0.2
    assert cosine(1, 0.1, 0.2, 1) == 0.2


def test_the_last_layer_stands_still_at_first(schedules):
    for step, frozen in ((2, True), (3, False)):
        schedules.step_update(step)
        groups = schedules.optimizer.param_groups
        assert [g["lr"] == 0 for g in groups if g["last_layer"]] == [frozen]
        assert not any(g["lr"] == 0 for g in groups if not g["last_layer"])


def test_each_parameter_has_the_rate_of_its_layer_and_the_decay_of_its_kind(decayed):
    """Of two blocks: n + 1 is 3; embeddings are layer 0, block 0 is layer 1."""
    network = Network(decayed, build_model(decayed, 10))
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = {
        names[id(parameter)]: (round(group["lr_scale"], 6), group["wd_scale"])
        for group in build_optimizer(network, decayed).param_groups
        for parameter in group["params"]
    }
    assert found.keys() == set(names.values())
    first, second = 0.9**2, 0.9
    expected = {
        "backbone.cls_token": (0.9**3, 1),
        "backbone.mask_token": (0.9**3, 1),
        "backbone.pos_embed.weight": (0.9**3, 1),
        "backbone.patch_embed.weight": (0.9**3 * 0.2, 1),
        "backbone.patch_embed.bias": (0.9**3 * 0.2, 0),
        "backbone.blocks.0.attn.qkv.weight_e": (first, 1),
        "backbone.blocks.0.norm1.weight": (first, 0),
        "backbone.blocks.0.ls1.gamma": (first, 0),
        "backbone.blocks.1.mlp.fc1.weight": (second, 1),
        "backbone.blocks.1.mlp.fc1.bias": (second, 0),
        "backbone.norm.weight": (1, 0),
        "backbone.invariantisation.proj.weight": (1, 1),
        "head.mlp.0.weight": (1, 1),
        "head.mlp.0.bias": (1, 0),
        "head.last_layer.parametrizations.weight.original0": (1, 1),
    }
    assert {name: found[name] for name in expected} == {
        name: (round(scale, 6), decay) for name, (scale, decay) in expected.items()
    }


def test_layer_scales_of_octic_blocks_alone_are_decayed_if_asked_for(make_recipe):
    """Of I8's two blocks the first is octic."""
    recipe = make_recipe({"optimizer": {"decay_layer_scale": True}})
    network = Network(recipe, build_model(recipe, 10))
    (decayed, kept) = (
        {id(p) for group in groups for p in group["params"]}
        for groups in (
            [g for g in build_optimizer(network, recipe).param_groups if g["wd_scale"] == scale]
            for scale in (1, 0)
        )
    )
    first, second = network.backbone.blocks
    assert {id(first.ls1.gamma), id(first.ls2.gamma)} <= decayed
    assert {id(second.ls1.gamma), id(second.ls2.gamma), id(first.norm1.weight)} <= kept


def test_a_training_that_is_cut_short_has_the_schedules_of_the_whole(make_recipe):
    """As DinoBloom's: 4,000 of 100,000 steps, all of them in the warm-up."""
    found = []
    for schedule in ({"steps": 100}, {"steps": 6, "planned_steps": 100}):
        recipe = make_recipe({"schedule": {**schedule, "warmup_steps": 10}})
        schedules = Schedules(
            recipe, build_optimizer(Network(recipe, build_model(recipe, 10)), recipe)
        )
        schedules.step_update(5)
        decays = [group["weight_decay"] for group in schedules.optimizer.param_groups]
        found.append((schedules.lr, schedules.momentum(5), decays))
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx(2e-3 * 5 / 9)
    for wrong, message in (
        ({"steps": 6, "planned_steps": 5}, "planned_steps must not be below steps"),
        ({"steps": 6, "planned_steps": 8, "warmup_steps": 8}, "must be below planned_steps"),
    ):
        with pytest.raises(ValueError, match=message):
            make_recipe({"schedule": wrong})


def test_the_teacher_follows_exactly():
    teacher, student = torch.nn.Linear(3, 2).double(), torch.nn.Linear(3, 2).double()
    before = [parameter.clone() for parameter in teacher.parameters()]
    follow(teacher, student, 0.992)
    for parameter, old, new in zip(teacher.parameters(), before, student.parameters(), strict=True):
        assert torch.allclose(parameter, 0.992 * old + 0.008 * new, rtol=1e-14)
    follow(teacher, student, 0.0)
    assert all(map(torch.equal, teacher.parameters(), student.parameters()))
