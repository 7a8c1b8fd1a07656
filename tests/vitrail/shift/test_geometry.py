import pytest
import torch
from torch.nn import functional

from vitrail.shift.geometry import Frame, circular_pad
from vitrail.shift.polyphase import roll, sample


def test_a_token_sits_where_the_frame_says():
    """Tokens carry their own pixel's coordinates through rolls and samplings."""
    height, width = 12, 24
    grid = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    tokens = torch.stack(grid, dim=-1).expand(2, -1, -1, -1)
    frame = Frame.of(torch.zeros(2, 3, height, width))
    for offset, phase in [
        ([[5, 1], [0, 3]], [[1, 0], [0, 1]]),
        ([[2, 4], [5, 0]], [[0, 1], [1, 1]]),
    ]:
        tokens = roll(tokens, torch.tensor(offset))
        frame = frame.rolled(torch.tensor(offset))
        tokens, frame = (
            sample(tokens, torch.tensor(phase), 2),
            frame.sampled(torch.tensor(phase), 2),
        )
    rows = (frame.offset[:, :1] + frame.stride * torch.arange(tokens.shape[1])) % height
    columns = (frame.offset[:, 1:] + frame.stride * torch.arange(tokens.shape[2])) % width
    assert frame.stride == 4
    assert torch.equal(tokens[..., 0], rows[:, :, None].expand_as(tokens[..., 0]))
    assert torch.equal(tokens[..., 1], columns[:, None, :].expand_as(tokens[..., 1]))


def test_placed_tokens_are_channels_first():
    frame = Frame.of(torch.zeros(2, 3, 8, 8))
    features = frame.place(torch.randn(2, 4, 2, 7))
    assert features.tokens.shape == (2, 7, 4, 2)
    assert features.offset.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (1, 1), (2, 1), (0, 3)])
def test_circular_padding_and_its_gradient_are_those_of_torch(before, after):
    x = torch.randn(2, 5, 4, 3, dtype=torch.float64, requires_grad=True)
    mine = circular_pad(x, before, after)
    sides = (before, after, before, after)
    theirs = functional.pad(x.permute(0, 3, 1, 2), sides, mode="circular").permute(0, 2, 3, 1)
    assert torch.equal(mine, theirs)
    upstream = torch.randn_like(mine)
    (gradient,) = torch.autograd.grad(mine, x, upstream)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs, x, upstream)[0])
