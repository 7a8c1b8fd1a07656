import math

import pytest
import torch

from replication.training.model_factory import build_model
from replication.training.optimizer import build_optimizer, build_scheduler
from vitrail.errors import VitrailError


def names_by_decay(model, optimizer) -> dict[str, float]:
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    return {name: decay[id(p)] for name, p in model.named_parameters()}


def rates(recipe, steps_per_epoch: int, steps: list[int]) -> list[float]:
    optimizer = build_optimizer(build_model(recipe, 10), recipe)
    scheduler = build_scheduler(optimizer, recipe, steps_per_epoch)
    seen = []
    for step in steps:
        scheduler.step_update(step)
        seen.append(optimizer.param_groups[0]["lr"])
    return seen


def test_biases_norms_and_what_the_model_lists_are_not_decayed(recipe):
    model = build_model(recipe, 10)
    decays = names_by_decay(model, build_optimizer(model, recipe))
    for name, decay in decays.items():
        weights = name.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight"))
        assert decay == (0.05 if weights or name == "head.weight" else 0.0), name
    assert decays["pos_embed"] == decays["cls_token"] == 0.0


def test_layer_decay_scales_each_layer_by_its_depth_from_the_top(make_recipe):
    recipe = make_recipe({"optimizer": {"layer_decay": 0.5}})
    model = build_model(recipe, 10)
    optimizer = build_optimizer(model, recipe)
    scale = {id(p): g["lr_scale"] for g in optimizer.param_groups for p in g["params"]}
    # embedding, two blocks, head
    for name, expected in [
        ("patch_embed.proj.weight", 0.125),
        ("blocks.0.mlp.fc1.weight", 0.25),
        ("blocks.1.mlp.fc1.weight", 0.5),
        ("head.weight", 1.0),
    ]:
        assert scale[id(model.get_parameter(name))] == expected


def test_parameters_of_a_pattern_have_a_peak_of_their_own_under_the_same_schedule(make_recipe):
    own = {"blocks.*": 1.0, "blocks.1.mlp.*": 0.1, "pos_embed": 0.01}
    recipe = make_recipe(
        {
            "optimizer": {"group_lr": own},
            "schedule": {"epochs": 10, "warmup_epochs": 2, "warmup_lr": 0.0},
        }
    )
    model = build_model(recipe, 10)
    optimizer = build_optimizer(model, recipe)
    scheduler = build_scheduler(optimizer, recipe, steps_per_epoch=4)
    peaks = {
        "head.weight": 1e-3,
        "blocks.1.attn.qkv.weight": 1.0,
        "blocks.1.mlp.fc1.weight": 0.1,
        "blocks.1.mlp.fc1.bias": 0.1,
        "pos_embed": 0.01,
    }
    for step, share in [(4, 0.5), (20, 0.5), (30, (1 + math.cos(0.75 * math.pi)) / 2)]:
        scheduler.step_update(step)
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        for name, peak in peaks.items():
            assert rates[id(model.get_parameter(name))] == pytest.approx(peak * share)


def test_a_rate_of_its_own_moves_a_parameter_and_takes_nothing_else_from_it(make_recipe):
    recipe = make_recipe({"optimizer": {"group_lr": {"blocks.*": 0.1}, "layer_decay": 0.5}})
    plain = make_recipe({"optimizer": {"layer_decay": 0.5}})
    model = build_model(recipe, 10)
    one, other = build_optimizer(model, recipe), build_optimizer(model, plain)

    def options(optimizer):
        return {
            id(p): {key: group[key] for key in group if key not in ("params", "lr")}
            for group in optimizer.param_groups
            for p in group["params"]
        }

    assert options(one) == options(other)
    assert len(options(one)) == len(list(model.parameters()))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    one.step()
    change = {name: (p - before[name]).abs().mean().item() for name, p in model.named_parameters()}
    assert change["blocks.0.attn.qkv.bias"] == pytest.approx(0.1, rel=1e-4)
    assert change["head.bias"] == pytest.approx(1e-3, rel=1e-4)


def test_a_pattern_that_matches_nothing_is_refused(make_recipe):
    recipe = make_recipe({"optimizer": {"group_lr": {"*.gama": 0.1}}})
    with pytest.raises(VitrailError, match=r"names '\*.gama', which matches no parameter"):
        build_optimizer(build_model(recipe, 10), recipe)


@pytest.mark.parametrize("name", ["adamw", "lamb", "sgd"])
def test_the_optimisers_of_the_papers_start_from_the_peak_rate(make_recipe, name):
    recipe = make_recipe({"optimizer": {"name": name}})
    model = build_model(recipe, 10)
    optimizer = build_optimizer(model, recipe)
    before = model.head.bias.detach().clone()
    model.head.bias.grad = torch.ones_like(before)
    optimizer.step()
    assert not torch.equal(model.head.bias, before)
    assert all(group["lr"] == 0.001 for group in optimizer.param_groups)


def test_betas_and_eps_reach_the_optimiser_and_are_timms_own_where_not_given(make_recipe):
    given = make_recipe({"optimizer": {"betas": [0.8, 0.9], "eps": 1e-5}})
    model = build_model(given, 10)
    assert build_optimizer(model, given).defaults["betas"] == (0.8, 0.9)
    assert build_optimizer(model, given).defaults["eps"] == 1e-5
    assert build_optimizer(model, make_recipe()).defaults["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("ratio", ["representation", "weight"])
def test_lamb_moves_by_a_share_of_each_representation_or_of_all_that_a_weight_stacks(
    make_recipe, ratio
):
    """octic, Table 6."""
    args = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 1, "num_heads": 2}
    recipe = make_recipe(
        {
            "model": {"name": "octic_d8_vit_small_patch16_224", "args": args},
            "optimizer": {"name": "lamb", "trust_ratio": ratio},
        }
    )
    model = build_model(recipe, 10)
    before = model.blocks[0].attn.qkv.weight.detach().clone()  # (4, c', c)
    before *= torch.arange(1, 5).view(4, 1, 1)  # so that shares differ
    with torch.no_grad():
        model.blocks[0].attn.qkv.weight.copy_(before)
    optimizer = build_optimizer(model, recipe)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    moved, rate = model.blocks[0].attn.qkv.weight.detach() - before, recipe.optimizer.lr
    shares = [moved[irrep].norm() / before[irrep].norm() for irrep in range(4)]
    assert moved.norm() / before.norm() == pytest.approx(rate, rel=1e-3)
    assert (shares == pytest.approx([rate] * 4, rel=1e-3)) == (ratio == "representation")


def test_a_trust_ratio_is_refused_of_an_optimiser_that_has_none(make_recipe):
    with pytest.raises(ValueError, match="trust_ratio is of the optimizer lamb, and name is 'ad"):
        make_recipe({"optimizer": {"name": "adamw", "trust_ratio": "weight"}})


def test_an_unknown_optimiser_is_named_with_the_closest_one(make_recipe):
    recipe = make_recipe({"optimizer": {"name": "adamww"}})
    with pytest.raises(VitrailError, match="optimizer 'adamww' is unknown; did you mean 'adamw'"):
        build_optimizer(build_model(recipe, 10), recipe)


def test_the_cosine_schedule_has_its_closed_form_at_its_borders(make_recipe):
    epochs, warmup, per_epoch, peak, low, start = 10, 2, 7, 1e-3, 1e-5, 1e-6
    recipe = make_recipe(
        {
            "schedule": {
                "epochs": epochs,
                "warmup_epochs": warmup,
                "warmup_lr": start,
                "min_lr": low,
            }
        }
    )
    ramp, total = warmup * per_epoch, epochs * per_epoch

    def cosine(step: int) -> float:
        return low + (peak - low) * (1 + math.cos(math.pi * step / total)) / 2

    seen = rates(recipe, per_epoch, [0, 1, ramp - 1, ramp, total // 2, total - 1])
    expected = [
        start,
        start + (peak - start) / ramp,
        peak - (peak - start) / ramp,
        cosine(ramp),
        (peak + low) / 2,
        cosine(total - 1),
    ]
    assert seen == pytest.approx(expected, rel=1e-12)


def test_the_constant_schedule_stays_at_the_peak_after_its_warm_up(make_recipe):
    recipe = make_recipe({"schedule": {"name": "constant", "epochs": 5, "warmup_epochs": 1}})
    assert rates(recipe, 4, [0, 2]) == pytest.approx([1e-6, 1e-6 + (1e-3 - 1e-6) / 2])
    assert rates(recipe, 4, [4, 11, 19]) == [1e-3] * 3


def test_the_rate_of_a_step_does_not_depend_on_the_steps_before(make_recipe):
    recipe = make_recipe({"schedule": {"epochs": 5, "warmup_epochs": 1}})
    assert rates(recipe, 4, [13]) == rates(recipe, 4, list(range(14)))[-1:]
