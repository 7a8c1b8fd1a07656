"""Live tensors are counted on the meta device as they are where they hold numbers."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from replication.context import Context
from replication.measures.live_tensors import (
    BLOCK,
    FusedAttention,
    LiveTensors,
    counted,
    live_tensors,
)
from replication.measures.memory import MIB, run
from replication.measures.parameters import Architecture

NARROW = {"embed_dim": 64, "depth": 2, "num_heads": 2, "img_size": 64}
VIT = {"name": "vit_small_patch16_224", "args": NARROW, "image_size": 64}
OCTIC = {
    "name": "octic_d8_vit_large_patch16_224",
    "args": {**NARROW, "invariant": "power_spectrum"},
    "image_size": 64,
}


def test_a_pass_holds_weights_the_input_and_two_neighbouring_activations():
    """In closed form: a layer's input is let go of when its output exists."""
    widths = (64, 512, 128, 1024)
    model = nn.Sequential(*(nn.Linear(*pair, bias=False) for pair in pairwise(widths))).to("meta")
    images = torch.empty(32, 64, device="meta")
    with LiveTensors([*model.parameters(), images]) as tensors:
        run(model, images, "inference")
    weights = sum(parameter.numel() for parameter in model.parameters())
    activations = [32 * width for width in widths]
    pairs = [sum(pair) for pair in pairwise(activations[1:])]
    assert tensors.peak == 4 * (weights + activations[0] + max(pairs))
    assert tensors.live == 4 * (weights + activations[0])


def test_views_count_once_and_small_tensors_a_block():
    base = torch.empty(1000, device="meta")
    with LiveTensors([base]) as tensors:
        view = base[10:].view(-1, 2).T
        assert tensors.live == 8 * BLOCK
        small = view.sum()
        assert tensors.live == 9 * BLOCK
        del small
    assert (tensors.live, tensors.peak) == (8 * BLOCK, 9 * BLOCK)


def test_a_step_holds_weights_gradients_and_two_moments():
    architecture = Architecture("vit_small_patch16_224", {"img_size": 32}, 32)
    weights = 4 * 21_976_936
    assert weights < counted(architecture, "inference", 1) < 1.05 * weights
    assert 4 * weights < counted(architecture, "training", 1) < 4.5 * weights


@pytest.mark.parametrize("phase", ["training", "inference"])
@pytest.mark.parametrize("fields", [VIT, OCTIC], ids=lambda fields: fields["name"])
def test_the_meta_device_counts_what_a_cpu_does(fields, phase):
    architecture = Architecture(**fields)
    model, images = architecture.build(0), torch.zeros(32, 3, 64, 64)
    with LiveTensors([*model.parameters(), *model.buffers(), images]) as tensors:
        run(model, images, phase)
    assert counted(architecture, phase, 32) == pytest.approx(tensors.peak, rel=0.05)


def test_fused_attention_keeps_no_scores_and_gives_the_same_shapes():
    query = torch.empty(2, 3, 100, 8, device="meta")
    with LiveTensors([query]) as written_out:
        attention = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    with LiveTensors([query]) as fused, FusedAttention():
        same = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert same.shape == attention.shape
    scores = 4 * 2 * 3 * 100 * 100
    assert written_out.peak > scores > fused.peak


def test_changes_and_gains_are_relative_to_the_partner():
    models = {"vit": VIT, "octic": OCTIC}
    values = live_tensors(Context("cpu", None, 0), models, {"octic": "vit"}, 4, ["inference"])
    before, after = values["vit/inference"], values["octic/inference"]
    assert before == counted(Architecture(**VIT), "inference", 4) / MIB
    assert values["octic/inference/gain"] == pytest.approx(before / after)
    assert values["octic/inference/change"] == pytest.approx(100 * (after / before - 1))
    assert not any("training" in key for key in values)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("phase", ["training", "inference"])
def test_a_gpu_hands_out_about_as_much(phase):
    architecture = Architecture("vit_small_patch16_224")
    model, images = architecture.build(0).cuda(), torch.zeros(16, 3, 224, 224, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    run(model, images, phase)
    peak = torch.cuda.max_memory_allocated()
    assert counted(architecture, phase, 16) == pytest.approx(peak, rel=0.15)
