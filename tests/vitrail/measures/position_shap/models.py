"""Models and samples that the tests of Position-SHAP share."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from vitrail.measures.position_shap.shapley import explain, position_share


class Tokens(nn.Module):
    """Mean of a nonlinear function of 16 patches plus their positions; records what it is asked."""

    positions = 16

    def __init__(self, strength=1.0, classes=4):
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weights(*shape):
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))

        self.embedding, self.table = weights(12, 16), weights(16, 16)
        self.hidden, self.head = weights(16, 32), weights(32, classes)
        self.strength = strength
        self.calls = []
        self.eval()

    def forward(self, images, permutation=None):
        self.calls.append((images, permutation))
        patches = images.unfold(2, 2, 2).unfold(3, 2, 2)  # (B, 3, 4, 4, 2, 2)
        tokens = patches.permute(0, 2, 3, 1, 4, 5).flatten(1, 2).flatten(2) @ self.embedding
        places = self.table if permutation is None else self.table[permutation]
        mixed = torch.tanh((tokens + self.strength * places) @ self.hidden / 4)
        return mixed.mean(dim=1) @ self.head

    @property
    def passes(self):
        return sum(len(images) for images, _ in self.calls)


def samples(count, seed=1, wrong=5):
    """Return noise images; labels are what `Tokens` predicts, but for one in every `wrong`."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64)
    labels = Tokens()(images).argmax(dim=1)
    labels[::wrong] = (labels[::wrong] + 1) % 4
    return TensorDataset(images, labels)


def assert_same(left, right, tolerance=0.0):
    for name in ("values", "debiased", "phi_position", "phi_image", "correct"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=0, atol=tolerance
        )
    assert left.mean == pytest.approx(right.mean, rel=0, abs=tolerance)


def population(count, generator):
    """Logits of samples as they are and averaged over permutations, and their classes."""
    classes = torch.randint(3, (count,), generator=generator)
    noise = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    clean = noise[0] + 2 * nn.functional.one_hot(classes, 3)
    permuted = 0.5 * clean + 0.5 * noise[1] + torch.tensor([0.2, 0.0, -0.2])
    return clean, permuted, classes


def uniform(count):
    """Return equal weights of so many samples."""
    return torch.full((count,), 1 / count, dtype=torch.float64)


def mean_share(clean, permuted, classes):
    """Return the mean P-SHAP of correct samples, of logits averaged over all permutations."""
    phi = explain(clean, permuted, classes, uniform(len(classes)))
    return position_share(*phi)[clean.argmax(dim=1) == classes].mean().item()


class Corners(nn.Module):
    """Logits of two classes from four pixels, each times what its corner weighs, bent."""

    positions = 4
    weights = torch.tensor([[1.8, 0.6, 1.2, 1.0], [-1.4, -0.9, -0.6, -0.7]], dtype=torch.float64)

    def forward(self, images, permutation=None):
        pixels = images[:, 0].flatten(1)  # (B, 4)
        order = torch.arange(4).expand(len(images), 4) if permutation is None else permutation
        return torch.tanh((pixels[:, None] * self.weights[:, order].transpose(0, 1)).sum(dim=2))


def corner_samples():
    """Return `Corners`, samples of it, and their mean P-SHAP over all 24 orders of four corners."""
    generator = torch.Generator().manual_seed(0)
    images = 0.3 * torch.randn(400, 1, 2, 2, generator=generator, dtype=torch.float64)
    images += torch.tensor([0.6, -0.6]).repeat(200)[:, None, None, None]
    model, orders = Corners().eval(), torch.tensor(list(itertools.permutations(range(4))))
    clean = model(images)
    labels = clean.argmax(dim=1)
    of_orders = torch.stack([model(images, order.expand(400, 4)) for order in orders]).mean(dim=0)
    return model, TensorDataset(images, labels), mean_share(clean, of_orders, labels)
