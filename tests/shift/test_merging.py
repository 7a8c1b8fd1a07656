import pytest
import torch
from timm.models.swin_transformer import PatchMerging
from torch import nn

from vitrine.shift.merging import adaptive_merge, merged_patches, overlapping_patches


def tokens():
    torch.manual_seed(0)
    return torch.randn(3, 8, 12, 5, dtype=torch.float64)


def projection():
    torch.manual_seed(1)
    return nn.Sequential(nn.LayerNorm(20), nn.Linear(20, 10, bias=False)).double()


def test_patches_are_merged_as_timm_merges_them():
    plain = PatchMerging(5, norm_layer=nn.LayerNorm).double()
    x = tokens()
    merged = plain.reduction(plain.norm(merged_patches(x)))
    assert torch.equal(merged, plain(x))


def test_dense_merging_holds_the_merging_of_every_phase():
    x = tokens()
    dense = overlapping_patches(x)
    for row in range(2):
        for column in range(2):
            expected = merged_patches(x.roll((-row, -column), (1, 2)))
            assert torch.equal(dense[:, row::2, column::2], expected)


def test_the_merged_phase_has_the_most_energy():
    x, project = tokens(), projection()
    merged, phase = adaptive_merge(x, project, "paper")
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


@pytest.mark.parametrize("selection", ["paper", "fast"])
def test_merged_tokens_of_shifted_tokens_are_the_same_shifted(selection):
    x, project = tokens(), projection()
    merged, phase = adaptive_merge(x, project, selection)
    for shift in [(1, 0), (3, 5), (7, 11)]:
        moved, other = adaptive_merge(x.roll((-shift[0], -shift[1]), (1, 2)), project, selection)
        for b in range(3):
            row, column = ((other[b] + torch.tensor(shift) - phase[b]) // 2).tolist()
            expected = merged[b].roll((-row, -column), (0, 1))
            torch.testing.assert_close(moved[b], expected, rtol=0, atol=1e-12)
