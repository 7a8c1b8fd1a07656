import pytest
import torch

from vitrine.errors import VitrineError
from vitrine.octic.features import act
from vitrine.octic.group import transform
from vitrine.octic.patch_embed import OcticPatchEmbed


@pytest.fixture
def embed(scrambled):
    return scrambled(OcticPatchEmbed(img_size=16, patch_size=4, in_chans=3, embed_dim=24))


def images(height=16, width=24):
    return torch.randn(2, 3, height, width, dtype=torch.float64)


def test_features_turn_with_the_image(embed, element):
    x = images()
    features = embed(x)
    assert features.shape == (8, 2, 4 * 6, 3)
    torch.testing.assert_close(
        embed(transform(x, element)), act(features, element, (4, 6)), rtol=0, atol=1e-12
    )


def test_filters_of_all_irreps_have_the_length_of_the_quarters():
    embed = OcticPatchEmbed(patch_size=32, embed_dim=256)
    torch.nn.init.normal_(embed.weight)
    # A2's and B1's quarters cancel on their diagonals.
    lengths = embed.filters().square().mean(dim=(1, 2, 3, 4))
    torch.testing.assert_close(lengths, torch.full((8,), 0.25), rtol=0.1, atol=0)


def test_gradients_reach_the_quarters(embed):
    embed.eval()
    embed(images()).square().sum().backward()
    assert embed.weight.grad.abs().flatten(1).sum(1).amin() > 1


def test_odd_patches_are_refused():
    with pytest.raises(VitrineError, match="15 pixels; give an even patch_size"):
        OcticPatchEmbed(patch_size=15)


def test_channels_that_eight_planes_cannot_share_are_refused():
    with pytest.raises(VitrineError, match="multiple of 8"):
        OcticPatchEmbed(embed_dim=36)
