import pytest
import torch
from torch import nn
from torch.nn import functional

from vitrail.shift.geometry import Features, Frame, roll_image, to_pixels, unpool
from vitrail.shift.selection import PerLayerSelection


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def features(tokens: torch.Tensor, offset: list[list[int]], stride: int) -> Features:
    return Features(tokens, torch.tensor(offset), stride)


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 8])
def test_away_from_borders_it_is_torchs_interpolation(factor):
    tokens = noise(2, 3, 5, 7)
    unpooled = to_pixels(features(tokens, [[0, 0], [0, 0]], factor))
    expected = functional.interpolate(
        tokens, scale_factor=factor, mode="bilinear", align_corners=False
    )
    inside = slice(factor, -factor)
    torch.testing.assert_close(
        unpooled[:, :, inside, inside], expected[:, :, inside, inside], rtol=0, atol=1e-14
    )


def test_around_the_borders_it_interpolates_between_the_last_and_the_first():
    line = torch.tensor([0.0, 4.0, 8.0])[None, None, None].expand(1, 1, 3, 3)
    unpooled = to_pixels(features(line, [[0, 0]], 2))
    torch.testing.assert_close(unpooled[0, 0, 0], torch.tensor([2.0, 1.0, 3.0, 5.0, 7.0, 6.0]))


@pytest.mark.parametrize("mode", ["bilinear", "zero_insert"])
def test_every_token_comes_to_the_pixels_that_it_stands_for(mode):
    """Token n of an axis of stride s covers the s pixels from offset + s n on."""
    tokens = torch.zeros(2, 1, 4, 6)
    tokens[:, :, 1, 2] = 1
    grid = features(tokens, [[2, 0], [13, 21]], 4)
    for pixels, offset in zip(to_pixels(grid, mode), grid.offset, strict=True):
        mass = pixels[0].nonzero().double()
        heaviest = (pixels[0] == pixels[0].max()).nonzero()
        corner = (offset + 4 * torch.tensor([1, 2])) % torch.tensor([16, 24])
        if mode == "zero_insert":
            assert mass.tolist() == [corner.tolist()]
        else:  # the four pixels in the middle of the token's sixteen
            middle = [[(corner[0] + i) % 16, (corner[1] + j) % 24] for i in (1, 2) for j in (1, 2)]
            assert sorted(heaviest.tolist()) == sorted([[int(i), int(j)] for i, j in middle])


@pytest.mark.parametrize("mode", ["bilinear", "zero_insert"])
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_it_commutes_with_shifts_of_the_image(mode, stride):
    """Moving the features' grid and the target's by as many pixels moves the result by as many."""
    tokens = noise(3, 2, 4, 3)
    source = features(tokens, [[0, 0], [16, 8], [24, 16]], 8)
    target = torch.tensor([[0, 0], [8, 0], [0, 16]])
    unpooled = unpool(source, target, stride, mode)
    rolled = torch.tensor([[1, 2], [3, 0], [2, 1]])  # tokens
    moved = Features(roll_image(tokens, rolled), source.offset + 8 * rolled, 8)
    torch.testing.assert_close(unpool(moved, target, stride, mode), unpooled, rtol=0, atol=1e-14)
    shifted = unpool(source._replace(offset=source.offset - 8), target, stride, mode)
    torch.testing.assert_close(shifted, unpooled.roll((-8 // stride,) * 2, (2, 3)))


def test_two_steps_put_features_where_one_does():
    """Offsets are in pixels at every stage, so the way that features take does not matter."""
    tokens = torch.ones(1, 1, 3, 3)
    source = features(tokens, [[20, 12]], 8)
    between = torch.tensor([[4, 16]])
    halfway = Features(unpool(source, between, 4, "zero_insert"), between, 4)
    assert torch.equal(to_pixels(halfway, "zero_insert"), to_pixels(source, "zero_insert"))


def test_gradients_flow_to_every_token():
    tokens = noise(2, 1, 3, 3).requires_grad_()
    to_pixels(features(tokens, [[1, 5], [0, 3]], 4)).sum().backward()
    torch.testing.assert_close(tokens.grad, torch.full_like(tokens, 16))


def largest_component(dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Restate `max_p_norm` of the authors' library of 2022, for stride 2 and p = 2.

    Of the polyphase components of ``(B, H, W, C)``, each whole, it takes that of the largest l2
    norm, and of equal ones the first.
    """
    parts = [dense[:, row::2, column::2] for row in range(2) for column in range(2)]
    index = torch.stack([part.flatten(1).norm(dim=1) for part in parts], dim=1).argmax(dim=1)
    chosen = torch.stack([parts[phase][sample] for sample, phase in enumerate(index.tolist())])
    return chosen, torch.stack([index // 2, index % 2], dim=1)


def test_merging_chooses_as_the_authors_library_and_unpooling_puts_back():
    """shift, Eq. 23, Sec. A2.1: where norms differ, its rule chooses the same grid.

    Unpooling puts its tokens back between zeros (Sec. A2.2).
    """
    torch.manual_seed(0)
    x = noise(16, 12, 8, 3)
    project = nn.Linear(12, 6).double()
    dense = project(
        torch.cat([x.roll((-row, -column), (1, 2)) for column in (0, 1) for row in (0, 1)], -1)
    )
    chosen, phase = largest_component(dense)
    merged, ours = PerLayerSelection().merge_patches(x, project)
    assert len(phase.unique(dim=0)) == 4
    assert torch.equal(ours, phase)
    torch.testing.assert_close(merged, chosen, rtol=0, atol=1e-14)
    pixels = torch.zeros_like(dense)
    for sample, (row, column) in enumerate(phase.tolist()):
        pixels[sample, row::2, column::2] = chosen[sample]
    frame = Frame.of(x.permute(0, 3, 1, 2)).sampled(ours, 2)
    unpooled = to_pixels(frame.place(merged), "zero_insert").permute(0, 2, 3, 1)
    torch.testing.assert_close(unpooled, pixels, rtol=0, atol=1e-14)
