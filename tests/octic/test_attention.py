import pytest
import torch

from vitrine.errors import VitrineError
from vitrine.octic.attention import OcticAttention, merge_heads, split_heads
from vitrine.octic.features import act, to_channels

GRID = (2, 3)


def features(channels=4):
    return torch.randn(8, 2, 7, channels, dtype=torch.float64)


def test_it_commutes_with_the_group(scrambled, element):
    attention, x = scrambled(OcticAttention(32, 2)), features()
    difference = attention(act(x, element, GRID, 1)) - act(attention(x), element, GRID, 1)
    assert difference.abs().max() <= 1e-12


def test_a_head_attends_with_its_share_of_every_plane(scrambled):
    attention, x = scrambled(OcticAttention(32, 2)), features()
    qkv = attention.qkv(x).unflatten(3, (3, 2, 2))
    heads = []
    for head in range(2):
        q, k, v = (to_channels(qkv[:, :, :, part, head]) for part in range(3))
        heads.append((q @ k.mT / 4).softmax(-1) @ v)  # of 16 channels
    y = torch.stack(heads, -2).unflatten(3, (8, 2)).permute(3, 0, 1, 2, 4).flatten(3)
    torch.testing.assert_close(attention(x), attention.proj(y.contiguous()))


@pytest.mark.parametrize(("dtype", "channels"), [(torch.float32, 48), (torch.float64, 18)])
def test_heads_are_split_and_merged_back(dtype, channels):
    x = torch.randn(8, 2, 5, channels, dtype=dtype)
    heads = split_heads(x, 3, 2)
    expected = x.unflatten(3, (3, 2, -1)).permute(3, 1, 4, 2, 0, 5).flatten(4)
    assert torch.equal(heads, expected)
    assert torch.equal(merge_heads(heads), x)


def test_the_gradient_of_either_copy_is_the_other():
    x = torch.randn(8, 1, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: split_heads(x, 3, 2), x)
    assert torch.autograd.gradcheck(lambda x: merge_heads(split_heads(x, 1, 2)) ** 2, x)


def test_bfloat16_attends_as_float32_does():
    attention = OcticAttention(64, 2)
    q, k, v = torch.randn(3, 2, 2, 50, 32).bfloat16()
    expected = attention.attend(q.float(), k.float(), v.float())
    torch.testing.assert_close(attention.attend(q, k, v).float(), expected, rtol=2e-2, atol=2e-2)


def test_large_scores_do_not_overflow_in_bfloat16():
    q = torch.full((1, 1, 2, 8), 1e4).bfloat16()
    assert torch.equal(OcticAttention(8, 1).attend(q, q, q), q)


def test_heads_that_cannot_share_the_planes_are_refused():
    with pytest.raises(VitrineError, match=r"3 heads cannot share 32 .* multiple of 24"):
        OcticAttention(32, 3)
