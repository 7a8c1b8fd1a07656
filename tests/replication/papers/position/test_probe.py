"""A linear probe finds position where tokens have it, and in shuffled places nothing."""

from dataclasses import replace

import pytest
import timm
import torch
from torch import nn

from replication.images.loading import EvaluationSamples
from replication.images.opening import build
from replication.images.transforms import eval_transform
from replication.papers.position.probe import RIDGE, position_probe
from tests.trained_on_digits import trained_on_digits
from vitrail.errors import VitrailError

__all__ = ["trained_on_digits"]


@pytest.fixture
def run(micro, trained_on_digits):
    """A micro model of images of 8 pixels, a grid of 4 x 4 patches, on the digits."""

    def make(embedding, **kwargs):
        model = micro(embedding, img_size=8, patch_size=2, num_classes=10, **kwargs)
        return trained_on_digits(model.eval())

    return make


def test_it_is_ridge_regression_on_held_out_images(run):
    """With all tokens at hand, and the two halves of the images exchanged."""
    trained = run("sin")
    values = position_probe(trained, images=60, batch_size=7)
    dataset = build(trained.info, "val", trained.data_root)
    chosen = [index * len(dataset) // 60 for index in range(60)]
    samples = EvaluationSamples(dataset, eval_transform(trained.recipe, trained.info))
    images = torch.stack([samples[index][0] for index in chosen])
    with torch.inference_mode():
        tokens = trained.model.forward_features(images).double()  # (60, 16, D)
    places = torch.tensor([divmod(n, 4) for n in range(16)]).double()
    scores = []
    for half in (0, 1):
        fit, judge = tokens[half::2].flatten(0, 1), tokens[1 - half :: 2].flatten(0, 1)
        target = places.repeat(30, 1)
        mean, std = fit.mean(0), fit.std(0, correction=0)
        x = (fit - mean) / std
        penalty = RIDGE * len(x) * torch.eye(x.shape[1], dtype=torch.float64)
        weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (target - target.mean(0)))
        error = target - target.mean(0) - (judge - mean) / std @ weights
        scores.append(1 - error.square().mean(0) / target.var(0, correction=0))
    row, column = (sum(scores) / 2).tolist()
    assert values["row"] == pytest.approx(row, abs=1e-6)
    assert values["column"] == pytest.approx(column, abs=1e-6)
    assert values["r2"] == pytest.approx((row + column) / 2, abs=1e-6)
    assert values["images"] == 60
    assert row != pytest.approx(column, abs=1e-3)


class Telling(nn.Module):
    """A last norm that forgets the image: each token has its row and column, and noise."""

    def forward(self, x):
        places = torch.tensor([divmod(n, 4) for n in range(x.shape[1] - 1)]).float()
        noise = torch.rand(*x.shape[:2], x.shape[2] - 2)
        return torch.cat([torch.cat([torch.zeros(1, 2), places]).expand(len(x), -1, -1), noise], 2)


def test_places_that_tokens_have_are_found_and_shuffled_ones_are_not(run):
    trained = run("ape", class_token=True)
    trained.model.norm = Telling()
    values = position_probe(trained, images=100)
    assert values["row"] == pytest.approx(1, abs=1e-4)
    assert values["column"] == pytest.approx(1, abs=1e-4)
    for name in ("shuffled/row", "shuffled/column", "shuffled/r2"):
        assert -0.1 < values[name] < 0.02


def test_a_vit_of_timms_is_probed_and_another_model_refused(trained_on_digits):
    sizes = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", **sizes, num_classes=10).eval()
    trained = trained_on_digits(model)
    small, large = (position_probe(trained, images=20, batch_size=size) for size in (3, 20))
    assert small == pytest.approx(large, abs=1e-5)
    with pytest.raises(VitrailError, match="a ResNet cannot be probed for position"):
        position_probe(replace(trained, model=timm.create_model("resnet10t").eval()))
    with pytest.raises(VitrailError, match="a probe of 1 images"):
        position_probe(trained, images=1)
