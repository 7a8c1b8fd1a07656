import torch
from torch import nn

from vitrine.octic.equivariance import invariance_error


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=(2, 3))


class Asymmetry(nn.Module):
    """Zero under every element but one, which turns this triangle onto itself."""

    def forward(self, x):
        return x.triu().sum(dim=(2, 3))


def images():
    return torch.randn(4, 3, 8, 8, dtype=torch.float64)


def test_a_mean_over_the_image_is_invariant():
    assert invariance_error(Mean(), images()) < 1e-15


def test_a_triangle_of_the_image_is_not():
    assert invariance_error(Asymmetry(), images()) > 0.1


def test_the_largest_change_counts():
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 0, 1] = 3
    assert invariance_error(Asymmetry(), x) == 3


def test_the_model_is_judged_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Dropout(0.5), Mean())
    assert invariance_error(model, images()) < 1e-15
    assert model.training
