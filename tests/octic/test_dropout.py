import pytest
import torch

from vitrine.octic.dropout import OcticDropout, OcticDropPath
from vitrine.octic.group import isotypic

LAYERS = pytest.mark.parametrize("layer", [OcticDropout(0.5), OcticDropPath(0.5)])


def after(layer, x):
    torch.manual_seed(1)  # the same mask
    return layer(x)


@LAYERS
def test_the_group_does_not_see_the_mask(layer, element):
    x = torch.randn(8, 6, 5, 4, dtype=torch.float64)
    matrix = isotypic(element)
    moved, dropped = (torch.einsum("ij,jbnc->ibnc", matrix, y) for y in (x, after(layer, x)))
    torch.testing.assert_close(after(layer, moved), dropped, rtol=0, atol=1e-12)


@LAYERS
def test_what_is_kept_is_scaled_up(layer):
    y = after(layer, torch.ones(8, 40, 5, 4))
    assert set(y.unique().tolist()) == {0, 2}
    assert y.mean().item() == pytest.approx(1, abs=0.4)


@LAYERS
def test_nothing_is_dropped_in_evaluation(layer):
    x = torch.randn(8, 6, 5, 4)
    assert torch.equal(layer.eval()(x), x)
    layer.train()


def test_a_sample_keeps_all_of_its_branch_or_none():
    y = after(OcticDropPath(0.5), torch.ones(8, 40, 5, 4))
    kept = y.amax((0, 2, 3))
    assert torch.equal(y, kept[None, :, None, None].expand_as(y))
    assert set(kept.tolist()) == {0, 2}
