import torch

from vitrail.octic.group import (
    FOURIER,
    INVERSE_FOURIER,
    act,
    from_channels,
    isotypic,
    on_planes,
    regular,
    to_channels,
    transform,
)

GRID = (2, 3)


def features(tokens=7, channels=2):
    return torch.randn(8, 2, tokens, channels, dtype=torch.float64)


def test_channels_are_the_planes_side_by_side():
    x = features()
    channels = to_channels(x)
    assert torch.equal(channels, torch.cat(list(x), dim=-1))
    assert torch.equal(from_channels(channels), x)


def test_the_transforms_undo_each_other():
    x = features()
    torch.testing.assert_close(
        on_planes(FOURIER, on_planes(INVERSE_FOURIER, x)), x, rtol=0, atol=1e-14
    )


def test_the_group_permutes_regular_features(element):
    """octic, Eq. 6, Example 3.6."""
    x = features()
    moved = torch.einsum("ij,jbnc->ibnc", isotypic(element), x)
    expected = torch.einsum("ij,jbnc->ibnc", regular(element), on_planes(INVERSE_FOURIER, x))
    torch.testing.assert_close(on_planes(INVERSE_FOURIER, moved), expected, rtol=0, atol=1e-14)


def test_an_invariant_plane_moves_as_its_image_does(element):
    """octic, Example 3.5."""
    x = features(tokens=6)
    image = x[0].unflatten(1, GRID).permute(0, 3, 1, 2)
    expected = transform(image, element).flatten(2).mT
    torch.testing.assert_close(act(x, element, GRID)[0], expected, rtol=0, atol=1e-14)


def test_prefix_tokens_keep_their_place(element):
    x = features()
    moved = act(x, element, GRID, prefix=1)
    expected = torch.einsum("ij,jbnc->ibnc", isotypic(element), x[:, :, :1])
    torch.testing.assert_close(moved[:, :, :1], expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(moved[:, :, 1:], act(x[:, :, 1:], element, GRID), rtol=0, atol=1e-14)


def test_a_quarter_turn_takes_four_to_come_home():
    x, grid = features(), GRID
    turned = x
    for _ in range(4):
        turned, grid = act(turned, "r", grid, prefix=1), grid[::-1]
    torch.testing.assert_close(turned, x, rtol=0, atol=1e-13)
