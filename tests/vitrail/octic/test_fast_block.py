"""The block that models run is the block of `layers`, in whatever way it is run."""

import re
from functools import partial

import pytest
import torch
from torch import nn

from vitrail.octic.fast_block import COMPILED_FORMS, FastBlock, FastGELU, FastMlp, IrrepPair
from vitrail.octic.layers import OcticBlock, OcticGELU, OcticLayerNorm, OcticMlp

KINDS = {
    "usual": {},
    "published norm": {"norm_layer": partial(OcticLayerNorm, convention="published")},
    "no bias of queries": {"qkv_bias": False},
    "no layer scale": {"init_values": None},
    "dropped": {"proj_drop": 0.3, "attn_drop": 0.2, "drop_path": 0.4},
    "another norm": {"norm_layer": lambda dim: Halved()},
}


class Halved(nn.Module):
    """A module that nothing is known about."""

    def forward(self, x):
        return x / 2


@pytest.fixture
def blocks(scrambled):
    """Make the plain block and the one that models run, with the same weights."""

    def make(kind):
        kwargs = {"init_values": 0.1, **KINDS[kind]}
        plain, fast = OcticBlock(32, 2, **kwargs), FastBlock(32, 2, **kwargs)
        scrambled(plain)
        fast.double().load_state_dict(plain.state_dict())
        return plain, fast

    return make


def features(dtype=torch.float64, batch=3):
    return 1 + 2 * torch.randn(8, batch, 7, 4, dtype=dtype)


def compiled(module):
    torch.compiler.reset()  # it compiles one forward for a few kinds of blocks only
    return torch.compile(module, fullgraph=True, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["usual", "dropped"])  # others are the same in training
def test_a_compiled_block_is_the_plain_one(blocks, kind):
    plain, fast = (block.eval() for block in blocks(kind))
    x = features()
    with torch.no_grad():
        torch.testing.assert_close(compiled(fast)(x), plain(x), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_in_training_outputs_and_gradients_are_those_of_the_plain_one(blocks, kind):
    plain, fast = (block.train() for block in blocks(kind))
    results = [trained(block, block) for block in (plain, fast)]
    results.append(trained(compiled(fast), fast))
    for result in results[1:]:
        for found, expected in zip(result, results[0], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11)


def trained(function, block):
    """What a step of training takes of a block: its output and gradients."""
    torch.manual_seed(1)  # of the input and of what is dropped
    x = features().requires_grad_()
    y = function(x)
    return y, *torch.autograd.grad(y.square().sum(), [x, *block.parameters()])


@pytest.mark.slow
def test_in_lower_precision_a_compiled_block_is_close(blocks):
    plain, fast = (block.eval().bfloat16() for block in blocks("usual"))
    x = features(torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(fast)(x), plain(x), rtol=3e-2, atol=3e-2)


@pytest.mark.slow
def test_under_autocast_a_compiled_block_is_close(blocks):
    plain, fast = (block.eval().float() for block in blocks("usual"))
    x = features(torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(fast)(x), plain(x), rtol=3e-2, atol=3e-2)


def test_a_compiled_block_calls_none_of_its_modules(blocks):
    """Each of them has a form of its own; a call would copy all features twice."""
    _, fast = blocks("usual")
    types = {type(module) for module in fast.modules()} - {FastBlock}
    assert types - set(COMPILED_FORMS) == {nn.Dropout}  # of which the attention takes the rate


def test_irreps_are_views_of_the_planes():
    x = features()
    irreps = IrrepPair.of(x)
    assert torch.equal(irreps.joined(), x)
    for row in range(2):
        columns = torch.cat([x[4 + row], x[6 + row]], -1)  # copy 1, copy 2
        assert torch.equal(irreps.pairs[:, :, row].flatten(2), columns)


@pytest.mark.slow
def test_a_compiler_makes_one_kernel_of_the_activation():
    """It reads eight planes, activates eight times and writes; nothing else is stored."""
    from torch._inductor.utils import run_and_get_code

    layer, x = FastGELU(), torch.randn(8, 2, 5, 64)
    with torch.inference_mode():
        y, (code,) = run_and_get_code(torch.compile(layer), x)
    torch.testing.assert_close(y, OcticGELU()(x))
    assert len(set(re.findall(r"\bcpp_fused_\w+(?=\()", code))) == 1
    assert len(re.findall(r"\.erf\(\)", code)) == 8


@pytest.mark.slow
def test_the_mlp_that_is_timed_is_the_plain_one(scrambled):
    plain, fast = scrambled(OcticMlp(32, 64)), FastMlp(32, 64).double()
    fast.load_state_dict(plain.state_dict())
    x = features()
    torch.testing.assert_close(compiled(fast)(x), plain(x), rtol=0, atol=1e-12)
