import pytest
import torch

from vitrine.errors import VitrineError
from vitrine.octic.features import act
from vitrine.octic.position import OcticPositionEmbedding


@pytest.fixture
def position(scrambled):
    return scrambled(OcticPositionEmbedding(grid=6, dim=16))


@pytest.mark.parametrize("grid", [(6, 6), (4, 4), (10, 10), (4, 8)])
def test_the_encoding_turns_with_the_grid(position, grid, element):
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


@pytest.mark.parametrize("grid", [(5, 6), (6, 5), (7, 7)])
def test_an_odd_grid_is_refused_in_a_sentence(position, grid):
    message = f"a grid of {grid[0]} x {grid[1]} patches has an odd side; give images of an even"
    with pytest.raises(VitrineError, match=message):
        position(grid)


def test_weights_of_an_odd_grid_are_refused():
    with pytest.raises(VitrineError, match="7 x 7"):
        OcticPositionEmbedding(grid=7, dim=16)
