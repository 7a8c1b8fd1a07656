import pytest
import torch

from vitrine.errors import VitrineError
from vitrine.octic.features import act
from vitrine.octic.norm import OcticLayerNorm, OcticLayerScale

GRID = (2, 3)


def features(channels=4):
    return 3 + 2 * torch.randn(8, 2, 7, channels, dtype=torch.float64)


@pytest.mark.parametrize("convention", ["total", "published"])
def test_layer_norm_commutes_with_the_group(scrambled, element, convention):
    norm, x = scrambled(OcticLayerNorm(32, convention=convention)), features()
    difference = norm(act(x, element, GRID, 1)) - act(norm(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


@pytest.mark.parametrize(("convention", "weight_of_e"), [("total", 2), ("published", 1 / 2)])
def test_layer_norm_divides_by_its_conventions_norm(scrambled, convention, weight_of_e):
    norm, x = scrambled(OcticLayerNorm(32, eps=0.1, convention=convention)), features()
    rows = torch.stack([torch.cat([x[4], x[6]], -1), torch.cat([x[5], x[7]], -1)])  # of 2c columns
    variance = x[:4].var(-1, correction=0).sum(0)
    variance = variance + weight_of_e * rows.var(-1, correction=0).sum(0)
    scale = (8 / (variance + 0.1)).sqrt()[..., None]

    y = norm(x)
    for plane in range(4):
        expected = (x[plane] - x[plane].mean(-1, keepdim=True)) * scale * norm.weight[plane]
        torch.testing.assert_close(y[plane], expected + (norm.bias if plane == 0 else 0))
    expected = (rows - rows.mean(-1, keepdim=True)) * scale * norm.weight[4:].flatten()
    torch.testing.assert_close(torch.cat([y[4], y[6]], -1), expected[0])
    torch.testing.assert_close(torch.cat([y[5], y[7]], -1), expected[1])


def test_layer_norm_makes_the_variance_of_all_channels_one():
    y = OcticLayerNorm(32).double()(features())
    torch.testing.assert_close(y.square().mean((0, 3)), torch.ones(2, 7, dtype=torch.float64))


def test_layer_norm_has_statistics_of_full_precision():
    x = (100 + torch.randn(8, 2, 7, 64)).bfloat16()
    norm = OcticLayerNorm(512)
    y = norm(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), norm(x.float()), rtol=1e-2, atol=1e-3)


def test_an_unknown_convention_is_refused():
    with pytest.raises(VitrineError, match=r"unknown norm convention 'publish'.*'published'"):
        OcticLayerNorm(32, convention="publish")


def test_layer_scale_commutes_with_the_group(scrambled, element):
    scale, x = scrambled(OcticLayerScale(32)), features()
    difference = scale(act(x, element, GRID, 1)) - act(scale(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


def test_layer_scale_begins_at_its_initial_value():
    x = features()
    torch.testing.assert_close(OcticLayerScale(32, 1e-4).double()(x), 1e-4 * x)


@pytest.mark.parametrize("layer", [OcticLayerNorm, OcticLayerScale])
def test_channels_that_are_no_multiple_of_eight_are_refused(layer):
    with pytest.raises(VitrineError, match="12 channels; give a multiple of 8"):
        layer(12)
