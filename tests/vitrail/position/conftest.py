import pytest
import timm
import torch

import vitrail.models  # noqa: F401
from vitrail.position.embeddings import Layout

MICRO = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def micro():
    """A micro model as created, of a grid of 4 x 4 patches, by its embedding."""

    def make(embedding, **kwargs):
        kwargs = {**MICRO, "drop_rate": 0.0, "num_classes": 5, **kwargs}
        return timm.create_model("position_vit", embedding=embedding, **kwargs)

    return make


@pytest.fixture
def scrambled(micro):
    """A micro model in float64 whose parameters are all random, in evaluation."""

    def make(embedding, **kwargs):
        model = micro(embedding, **kwargs)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return model.double().eval()

    return make


@pytest.fixture
def images():
    return torch.randn(3, 3, 16, 16, dtype=torch.float64)


@pytest.fixture
def layout():
    """Three rows of five patches, so that a confusion of the axes shows."""

    def make(class_token=False):
        return Layout((3, 5), class_token, embed_dim=16, depth=2, num_heads=2)

    return make
