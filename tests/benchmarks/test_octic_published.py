import pytest
import timm
import torch

from benchmarks.octic_published import PublishedLayout, from_irreps, to_irreps


@pytest.fixture(params=[(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["float32", "float64"])
def precision(request):
    return request.param


@pytest.fixture
def models(precision):
    """Ours, every parameter random, and the same in the authors' layout."""
    torch.manual_seed(0)
    arguments = {"img_size": 64, "embed_dim": 64, "depth": 2, "num_heads": 4}
    model = timm.create_model("octic_d8_vit_small_patch16_224", **arguments).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model = model.to(precision[0])
    return model, PublishedLayout(model).to(precision[0])


def test_a_block_in_the_published_layout_computes_what_ours_does(models, precision):
    (ours, published), (dtype, tolerance) = models, precision
    x = torch.randn(8, 2, 5, 8, dtype=dtype)
    with torch.inference_mode():
        expected = ours.blocks[0](x)
        found = from_irreps(published.blocks[0](to_irreps(x)))
    assert (expected - x).std() > 0.1
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_a_model_in_the_published_layout_gives_our_logits(models, precision):
    (ours, published), (dtype, tolerance) = models, precision
    images = torch.randn(2, 3, 64, 64, dtype=dtype)
    with torch.inference_mode():
        expected, found = ours(images), published(images)
    assert expected.std() > 0.1
    scale = expected.abs().max()
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=tolerance)
