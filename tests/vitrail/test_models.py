"""Every model of ours is found by its name, in the registry and in the source."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from timm.models import _registry
from timm.models._manipulate import group_parameters

import vitrail.models  # noqa: F401
from replication.plan.code_digest import registering_modules

OCTIC = {"embed_dim": 32, "num_heads": 2, "reg_tokens": 1, "mask_token": True}
OF_TWELVE_BLOCKS = [
    ("vit_huge_patch16_224", {"embed_dim": 16, "num_heads": 2, "depth": 12}),  # timm's own class
    *((f"octic_{family}_vit_small_patch16_224", OCTIC) for family in ("d8", "h8", "i8")),
    ("octic_i8_vit_small_patch16_224", {**OCTIC, "octic_depth": 12}),
    *((f"{family}_vit_small_patch16_224", OCTIC) for family in ("d2", "h2")),
    *(
        ("position_vit", {"embedding": name, "embed_dim": 48, "depth": 12, "class_token": True})
        for name in ("ape", "irpe", "auto-rope")
    ),
    ("cvt_13", {"depths": (2, 3, 7)}),
    ("a_cvt_13", {"depths": (2, 3, 7)}),
    ("a_swin_tiny_patch4_window7_224", {"embed_dim": 24}),
    ("a_swinv2_tiny_window8_256", {"embed_dim": 24}),
]


def registered():
    """Our models in timm's registry, with the module of each entrypoint."""
    entrypoints = _registry._model_entrypoints
    return {
        name: function.__module__
        for name, function in entrypoints.items()
        if function.__module__.startswith("vitrail.")
    }


def test_every_registered_model_is_a_function_of_its_name_at_its_modules_top_level():
    for name, module in registered().items():
        assert getattr(sys.modules[module], name) is timm.model_entrypoint(name)
    assert registered().items() <= registering_modules().items()
    assert {"octic_d8_vit_22b_patch16_224", "a_swin_tiny_patch4_window7_224"} < set(registered())


@pytest.mark.parametrize(("name", "module"), sorted(registered().items()))
def test_a_search_for_a_models_name_finds_the_file_that_registers_it(name, module):
    source = Path(sys.modules[module].__file__).read_text(encoding="utf-8")
    assert re.search(rf"^(def {name}\(|{name} = )", source, re.MULTILINE)


@pytest.mark.slow
def test_of_a_name_that_timm_has_too_ours_is_made_and_timm_warns():
    program = """
import sys, types, warnings
import timm
from timm.models import register_model
module = sys.modules["timm.models.cvt"] = types.ModuleType("timm.models.cvt")
def cvt_13(pretrained=False, **kwargs): ...
cvt_13.__module__ = "timm.models.cvt"
register_model(cvt_13)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import vitrail.models  # noqa: F401
assert [w for w in caught if "cvt_13" in str(w.message) and "vitrail" in str(w.message)]
assert timm.model_entrypoint("cvt_13").__module__ == "vitrail.shift.cvt"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def layers(name, args):
    """The layer of each parameter of a model, as `layer_decay` sees it."""
    with torch.device("meta"):
        model = timm.create_model(name, **args)
    return group_parameters(model, model.group_matcher(coarse=False), reverse=True)


@pytest.mark.parametrize(("name", "args"), OF_TWELVE_BLOCKS)
def test_layer_decay_knows_stem_and_blocks_and_head(name, args):
    layer_of = layers(name, args)
    assert set(layer_of.values()) == set(range(14))
    stem = ("patch_embed", "pos_embed", "cls_token", "reg_token", "mask_token", "stages.0.embed")
    head = ("head", "invariantisation") if name.startswith("octic_d8") else ("head",)
    block, of_block = 0, None
    for parameter, layer in layer_of.items():
        if parameter.startswith(stem):
            assert layer == 0
        elif parameter.startswith(head):
            assert layer == 13
        elif parameter.startswith("norm"):
            assert layer == 12
        elif "blocks." in parameter:  # in order of the forward pass
            of_this = parameter.rpartition("blocks.")[0] + parameter.rpartition("blocks.")[2][:2]
            block += of_this != of_block
            of_block = of_this
            assert layer == block
        else:
            assert 0 < layer < 13


def test_an_invariantisation_in_the_middle_belongs_to_the_block_that_it_feeds():
    layer_of = layers("octic_i8_vit_small_patch16_224", OCTIC)
    assert layer_of["invariantisation.proj.weight"] == layer_of["blocks.6.norm1.weight"] == 7


def test_later_embeddings_of_cvt_belong_to_the_first_block_of_their_stage():
    layer_of = layers("cvt_13", {"depths": (2, 3, 7)})
    assert layer_of["stages.1.embed.conv.weight"] == layer_of["stages.1.blocks.0.norm1.weight"] == 3
    assert layer_of["stages.2.cls_token"] == layer_of["stages.2.blocks.0.norm1.weight"] == 6
