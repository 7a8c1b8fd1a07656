"""Operations of architectures and runs are those that the papers print, and those of torch."""

import pytest
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from replication.context import Context
from replication.measures.flops import flops, flops_of_trained
from vitrail.errors import VitrailError


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context("cpu", tmp_path_factory.mktemp("data"), 0)


@pytest.fixture(scope="module")
def printed(context):
    """The DeiT III models of the octic paper's Table 2."""
    names = {"H": "deit3_huge_patch14_224", "L": "deit3_large_patch16_224"}
    return flops(context, {label: {"name": name} for label, name in names.items()})


def test_the_printed_number_of_vit_h_has_attention_without_its_softmax(printed):
    """octic, App. E.4."""
    assert printed["H/gmacs"] == pytest.approx(167.8, abs=0.05)
    assert printed["H/gmacs_unfused"] > 167.9
    assert round(printed["H/millions"], 1) == 632.1


def test_the_printed_number_of_vit_l_has_the_softmax_in_it(printed):
    assert printed["L/gmacs_unfused"] == pytest.approx(61.9, abs=0.05)
    assert printed["L/gmacs"] < 61.8
    assert round(printed["L/millions"], 1) == 304.4


def test_a_run_is_counted_at_the_size_of_its_images_and_stays_as_it_is(trained_on_digits):
    """A convolution of 3x3 from 3 to 2 channels on 8x8 pixels, and the head's bias is free."""
    model = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(128, 10))
    values = flops_of_trained(trained_on_digits(model))
    assert values == {"gmacs": (27 * 2 * 64 + 128 * 10) / 1e9}
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 10)


def test_products_are_the_linear_layers_the_patches_and_attention(printed):
    width, depth, tokens = 1024, 24, 197
    block = 12 * tokens * width**2 + 2 * tokens**2 * width
    expected = depth * block + 196 * 3 * 16**2 * width + 1000 * width
    assert printed["L/gmacs_matmul"] * 1e9 == expected


def test_gflops_are_those_of_torchs_counter(context):
    """Convolutions, windows and explicit attention among them."""
    name = "swin_tiny_patch4_window7_224"
    values = flops(context, {"swin": {"name": name}})
    with torch.device("meta"):
        model, images = timm.create_model(name).eval(), torch.empty(1, 3, 224, 224)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    assert values["swin/gflops"] * 1e9 == counter.get_total_flops()


def test_images_have_the_size_asked_for(context):
    model = {"name": "resnet18"}
    values = flops(context, {"own": model, "half": {**model, "image_size": 112}})
    assert 0.24 < values["half/gmacs"] / values["own/gmacs"] < 0.27


def test_an_unknown_model_is_refused(context):
    with pytest.raises(VitrailError, match="there is no model 'vitt'"):
        flops(context, {"a": {"name": "vitt"}})
