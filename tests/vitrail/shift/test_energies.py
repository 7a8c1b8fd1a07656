import pytest
import torch
from timm.models.swin_transformer import PatchMerging
from torch import nn

from vitrail.shift.energies import (
    direction,
    merged_patches,
    overlapping_patches,
    projection_energies,
)
from vitrail.shift.geometry import circular_conv
from vitrail.shift.polyphase import strongest
from vitrail.shift.selection import GRIDS, PerLayerSelection

# channels, kernel, stride, padding: Swin, CvT, MViTv2, a later embedding of CvT, a 2x2 merging
TOKENIZERS = [(3, 4, 4, 0), (3, 7, 4, 2), (3, 7, 4, 3), (5, 3, 2, 1), (2, 2, 2, 0)]


def tokenizer(channels, kernel, stride, padding, dim=12, bias=True):
    torch.manual_seed(0)
    return nn.Conv2d(channels, dim, kernel, stride, padding, bias=bias).double()


def image(channels, height=16, width=24, batch=3):
    return torch.randn(batch, channels, height, width, dtype=torch.float64)


def phase_energies(x, conv):
    """Score every grid by its tokens' energy, one tokenisation each (Eq. 14)."""
    stride = range(conv.stride[0])
    tokens = [[circular_conv(x.roll((-i, -j), (2, 3)), conv) for j in stride] for i in stride]
    energies = [
        torch.stack([phase.square().sum(dim=(1, 2, 3)) for phase in row], 1) for row in tokens
    ]
    return torch.stack(energies, dim=1)


@pytest.mark.parametrize("shape", TOKENIZERS)
def test_a_circular_convolution_reads_a_periodic_image(shape):
    """shift, Eq. 5-6."""
    conv, x = tokenizer(*shape), image(shape[0])
    tiled = x.repeat(1, 1, 3, 3)  # the middle copy has neighbours on all sides
    stride = conv.stride[0]
    plain = nn.functional.conv2d(tiled, conv.weight, conv.bias, 1, conv.padding)
    middle = plain[:, :, 16:32:stride, 24:48:stride]
    torch.testing.assert_close(circular_conv(x, conv), middle, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", TOKENIZERS)
def test_projection_scores_are_the_tokens_energy_along_one_direction(shape):
    conv, x = tokenizer(*shape), image(shape[0])
    energies, stride, a = projection_energies(x, conv), conv.stride[0], direction(12, conv.weight)
    for row in range(stride):
        for column in range(stride):
            tokens = circular_conv(x.roll((-row, -column), (2, 3)), conv)
            expected = torch.einsum("bdhw,d->bhw", tokens, a).square()
            torch.testing.assert_close(energies[:, row, column], expected, rtol=1e-9, atol=1e-12)


def test_the_direction_survives_a_norm():
    """A LayerNorm removes the mean of the channels."""
    a = direction(96, torch.zeros(1, dtype=torch.float64))
    assert abs(a.sum()) < 1e-12
    assert abs(a.norm() - 1) < 1e-12


@pytest.mark.parametrize("shape", TOKENIZERS)
def test_the_chosen_grid_has_the_most_energy(shape):
    """shift, Eq. 13-14."""
    conv, x = tokenizer(*shape), image(shape[0])
    tokens, phase = PerLayerSelection()(x, conv)
    energies = phase_energies(x, conv)
    assert torch.equal(phase, strongest(energies))
    torch.testing.assert_close(
        tokens.square().sum(dim=(1, 2, 3)), energies.flatten(1).amax(dim=1), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
@pytest.mark.parametrize("shape", TOKENIZERS)
def test_tokens_of_a_shifted_image_are_the_same_tokens_shifted(shape, selection):
    """shift, Claim 1, Eq. 16."""
    conv, x = tokenizer(*shape), image(shape[0])
    stride = conv.stride[0]
    tokens, phase = GRIDS[selection]()(x, conv)
    for shift in [(1, 0), (0, 3), (7, 10), (15, 23)]:
        shifted, moved = GRIDS[selection]()(x.roll((-shift[0], -shift[1]), (2, 3)), conv)
        for b in range(len(x)):
            # Token n of the shifted image sits at pixel moved + stride n + shift of the image.
            row, column = ((moved[b] + torch.tensor(shift) - phase[b]) // stride).tolist()
            expected = tokens[b].roll((-row, -column), (0, 1))
            torch.testing.assert_close(shifted[b], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("selection", ["per_layer", "per_stage", "fixed"])
def test_tokens_are_channels_last_in_memory(selection):
    """Those that only look so are several times slower to roll and to score."""
    tokens, _ = GRIDS[selection]()(image(3).float(), tokenizer(3, 4, 4, 0).float())
    assert tokens.is_contiguous()


def test_plain_tokenisation_is_not_equivariant():
    """shift, Sec. 3, Eq. 5."""
    conv, x = tokenizer(3, 4, 4, 0), image(3)
    pooled = circular_conv(x, conv).square().sum(dim=(2, 3))
    shifted = circular_conv(x.roll((-1, -1), (2, 3)), conv).square().sum(dim=(2, 3))
    assert (pooled - shifted).abs().max() > 0.1


def test_scores_in_half_precision_are_those_of_the_full_one():
    conv, x = tokenizer(3, 4, 4, 0).float(), image(3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        energies = projection_energies(x, conv)
    assert energies.dtype == torch.float32
    assert torch.equal(energies, projection_energies(x, conv))


@pytest.mark.parametrize("shape", [(3, 4, 4, 0), (5, 3, 2, 1)])
def test_the_tokeniser_learns_through_the_choice(shape):
    conv, x = tokenizer(*shape), image(shape[0]).requires_grad_()
    PerLayerSelection()(x, conv)[0].square().sum().backward()
    assert conv.weight.grad.abs().min() > 0
    assert x.grad.abs().sum() > 0


def tokens():
    torch.manual_seed(0)
    return torch.randn(3, 8, 12, 5, dtype=torch.float64)


def projection():
    torch.manual_seed(1)
    return nn.Sequential(nn.LayerNorm(20), nn.Linear(20, 10, bias=False)).double()


def test_patches_are_merged_as_timm_merges_them():
    """shift, Eq. 10."""
    plain = PatchMerging(5, norm_layer=nn.LayerNorm).double()
    x = tokens()
    merged = plain.reduction(plain.norm(merged_patches(x)))
    assert torch.equal(merged, plain(x))


def test_dense_merging_holds_the_merging_of_every_phase():
    """shift, Claim 3, Eq. 21-22."""
    x = tokens()
    dense = overlapping_patches(x)
    for row in range(2):
        for column in range(2):
            expected = merged_patches(x.roll((-row, -column), (1, 2)))
            assert torch.equal(dense[:, row::2, column::2], expected)


def test_the_merged_phase_has_the_most_energy():
    """shift, Eq. 23."""
    x, project = tokens(), projection()
    merged, phase = PerLayerSelection().merge_patches(x, project)
    energies = torch.stack(
        [
            project(merged_patches(x.roll((-i, -j), (1, 2)))).square().sum(dim=(1, 2, 3))
            for i in range(2)
            for j in range(2)
        ],
        dim=1,
    )
    assert torch.equal(phase[:, 0] * 2 + phase[:, 1], energies.argmax(dim=1))
    torch.testing.assert_close(merged.square().sum(dim=(1, 2, 3)), energies.amax(dim=1))


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_merged_tokens_of_shifted_tokens_are_the_same_shifted(selection):
    """shift, Eq. 23, Sec. A2.1."""
    x, project = tokens(), projection()
    merged, phase = GRIDS[selection]().merge_patches(x, project)
    for shift in [(1, 0), (3, 5), (7, 11)]:
        moved, other = GRIDS[selection]().merge_patches(
            x.roll((-shift[0], -shift[1]), (1, 2)), project
        )
        for b in range(3):
            row, column = ((other[b] + torch.tensor(shift) - phase[b]) // 2).tolist()
            expected = merged[b].roll((-row, -column), (0, 1))
            torch.testing.assert_close(moved[b], expected, rtol=0, atol=1e-12)
