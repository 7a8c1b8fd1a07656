import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.octic.embeddings import OcticPatchEmbed, OcticPositionEmbedding, unfold_quadrants
from vitrail.octic.group import ELEMENTS, act, irrep, isotypic, on_planes, transform


@pytest.mark.parametrize(
    "build",
    [
        lambda: OcticPatchEmbed(embed_dim=12),
        lambda: OcticPositionEmbedding(grid=6, dim=12),
    ],
)
def test_channels_that_are_no_multiple_of_eight_are_refused(build):
    with pytest.raises(VitrailError, match="cannot share 12 channels; give a multiple of 8"):
        build()


def quarters():
    return torch.randn(6, 2, 3, 3, dtype=torch.float64)


def test_unfolded_planes_turn_as_the_isotypic_matrix_says(element):
    planes = unfold_quadrants(quarters())
    assert planes.shape == (8, 2, 6, 6)
    turned = on_planes(isotypic(element), transform(planes, element))
    assert torch.equal(turned, planes)


def test_a_plane_sums_the_images_of_its_quarter_weighed_by_the_irrep():
    free = quarters()
    planes = unfold_quadrants(free)
    corner = torch.nn.functional.pad(free, (0, 3, 0, 3))
    for index, name in enumerate(("A1", "A2", "B1", "B2")):
        images = [irrep(name, g)[0, 0] * transform(corner[index], g) for g in ELEMENTS]
        torch.testing.assert_close(planes[index], sum(images))
    for copy in (0, 1):
        images = [irrep("E", g)[0, 0] * transform(corner[4 + copy], g) for g in ELEMENTS]
        torch.testing.assert_close(planes[4 + 2 * copy], sum(images))


@pytest.fixture
def embed(scrambled):
    return scrambled(OcticPatchEmbed(img_size=16, patch_size=4, in_chans=3, embed_dim=24))


def images(height=16, width=24):
    return torch.randn(2, 3, height, width, dtype=torch.float64)


def test_patch_features_turn_with_the_image(embed, element):
    """octic, Example 3.7, Sec. 3.3.1."""
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
    with pytest.raises(VitrailError, match="15 pixels; give an even patch_size"):
        OcticPatchEmbed(patch_size=15)


@pytest.fixture
def position(scrambled):
    return scrambled(OcticPositionEmbedding(grid=6, dim=16))


@pytest.mark.parametrize("grid", [(6, 6), (4, 4), (10, 10), (4, 8)])
def test_the_encoding_turns_with_the_grid(position, grid, element):
    """octic, Sec. 3.3.1, Eq. 10."""
    turned = grid[::-1] if element.count("r") % 2 else grid
    assert position(grid).shape == (8, 1, grid[0] * grid[1], 2)
    torch.testing.assert_close(
        act(position(grid), element, grid), position(turned), rtol=0, atol=1e-12
    )


def test_the_grid_of_the_weights_is_the_usual_one(position):
    assert torch.equal(position(), position((6, 6)))


def test_no_two_tokens_have_one_encoding(position):
    tokens = position().flatten(1, 2).movedim(1, 0).flatten(1)[:, :16]
    everywhere = position().squeeze(1).transpose(0, 1).flatten(1)
    assert len(tokens) == 36
    assert torch.pdist(everywhere).min() > 0.1


@pytest.mark.parametrize("grid", [(5, 6), (6, 5)])
def test_an_odd_grid_is_refused_in_a_sentence(position, grid):
    message = f"a grid of {grid[0]} x {grid[1]} patches has an odd side; give images"
    with pytest.raises(VitrailError, match=message):
        position(grid)
