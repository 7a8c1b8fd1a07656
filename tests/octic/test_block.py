from functools import partial

import pytest
import torch

from vitrine.octic.block import OcticBlock
from vitrine.octic.features import act
from vitrine.octic.mlp import OcticMlp
from vitrine.octic.norm import OcticLayerNorm

GRID = (2, 3)


def features():
    return torch.randn(8, 2, 7, 4, dtype=torch.float64)


@pytest.fixture
def block(scrambled):
    return scrambled(OcticBlock(32, 2, init_values=0.1))


def test_the_mlp_commutes_with_the_group(scrambled, element):
    mlp, x = scrambled(OcticMlp(32, 48)), features()
    difference = mlp(act(x, element, GRID, 1)) - act(mlp(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


@pytest.mark.parametrize("norm", ["total", "published"])
def test_it_commutes_with_the_group(scrambled, element, norm):
    block, x = (
        scrambled(
            OcticBlock(32, 2, init_values=0.1, norm_layer=partial(OcticLayerNorm, convention=norm))
        ),
        features(),
    )
    difference = block(act(x, element, GRID, 1)) - act(block(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


def test_its_dropout_does_not_break_the_group(scrambled):
    """Tokens stay in place, so that they meet the same masks; only channels are moved."""
    block = scrambled(OcticBlock(32, 2, init_values=0.1, proj_drop=0.3, drop_path=0.3)).train()
    x, grid = features()[:, :, :1], (0, 0)
    torch.manual_seed(1)
    expected = act(block(x), "mr", grid, 1)
    torch.manual_seed(1)
    difference = block(act(x, "mr", grid, 1)) - expected
    assert difference.abs().max() <= 1e-12


def test_evaluation_computes_what_training_does(block):
    x = features()
    with torch.inference_mode():
        y = block(x)
    torch.testing.assert_close(y, block(x), rtol=0, atol=1e-12)


def test_all_of_its_parameters_learn(block):
    block(features()).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in block.parameters())


def test_a_compiled_block_computes_the_same(block):
    x = features()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    y = compiled(x)
    torch.testing.assert_close(y, block(x), rtol=0, atol=1e-12)
    gradients = torch.autograd.grad(y.square().sum(), list(block.parameters()))
    expected = torch.autograd.grad(block(x).square().sum(), list(block.parameters()))
    for gradient, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)


def test_without_layer_scale_it_has_none():
    assert not [name for name in OcticBlock(32, 2).state_dict() if name.startswith("ls")]
