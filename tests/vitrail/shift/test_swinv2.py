"""Where A-SwinV2 differs from A-Swin; what they have in common is in test_swin.py."""

import pytest
import timm
import torch

from tests.vitrail.shift.test_swin import spread_norms
from vitrail.shift.conversion import invariance_error

MICRO = {
    "img_size": 32,
    "patch_size": 2,
    "window_size": 4,
    "embed_dim": 12,
    "depths": (2, 2, 2),
    "num_heads": (1, 2, 4),
    "num_classes": 10,
}


def micro(**options):
    torch.manual_seed(0)
    model = timm.create_model("a_swinv2_tiny_window8_256", **{**MICRO, **options})
    return spread_norms(model).double()


def images():
    return torch.randn(8, 3, 32, 32, dtype=torch.float64)


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
@pytest.mark.parametrize("module", ["tokens", "windows"])
def test_tokens_and_windows_are_needed(module, selection):
    model = micro(selection=selection, **{f"adaptive_{module}": False})
    assert invariance_error(model, images()) > 1e-4


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_merging_is_not_as_its_stride_divides_the_windows(selection):
    """Finding: Table 6 has a loss for Swin, whose windows are odd; for SwinV2 there is none."""
    model = micro(selection=selection, adaptive_merging=False)
    assert invariance_error(model, images()) <= 1e-12


def test_odd_windows_need_adaptive_merging():
    odd = {"img_size": 24, "window_size": 3}
    x = torch.randn(8, 3, 24, 24, dtype=torch.float64)
    assert invariance_error(micro(**odd), x) <= 1e-12
    assert invariance_error(micro(**odd, adaptive_merging=False), x) > 1e-4
