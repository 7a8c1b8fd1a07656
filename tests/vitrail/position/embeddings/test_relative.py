import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from vitrail.errors import VitrailError
from vitrail.position.embeddings.relative import IRPE, RPE, AcrossOnly, ALiBi, piecewise_index


@pytest.mark.parametrize("kind", [RPE, IRPE])
def test_it_acts_in_the_first_layer_only(layout, kind):
    assert kind(layout()).bias(torch.randn(1, 2, 15, 8), 1, None) is None


@pytest.mark.parametrize("class_token", [False, True])
def test_a_query_scores_the_offsets_down_and_across(layout, class_token):
    rpe = RPE(layout(class_token))
    q = torch.randn(1, 2, 15 + class_token, 8)
    bias = rpe.bias(q, 0, None)
    for head, i, j in [(0, 0, 14), (1, 14, 0), (1, 7, 3), (0, 5, 5)]:
        down, across = j // 5 - i // 5, j % 5 - i % 5
        vector = rpe.height[down + 2] + rpe.width[across + 4]
        expected = q[0, head, i + class_token] @ vector
        assert_close(bias[0, head, i + class_token, j + class_token], expected)
    if class_token:
        assert not bias[:, :, 0].any()
        assert not bias[:, :, :, 0].any()


def test_its_vectors_begin_with_expected_squared_length_1(layout):
    squares = torch.stack([RPE(layout()).width.square().sum(1).mean() for _ in range(100)])
    assert squares.mean().item() == pytest.approx(1, abs=0.1)


def test_as_published_it_does_not_see_offsets_down(layout):
    square = replace(layout(), grid=(4, 4))
    rpe, q = AcrossOnly(square), torch.randn(1, 2, 16, 8)
    bias = rpe.bias(q, 0, None)[0]
    columns = torch.arange(16) % 4
    for i, j in ((0, 5), (6, 12), (15, 15)):
        across = int(columns[j] - columns[i]) + 3
        vector = rpe.height[across] + rpe.width[across]
        assert_close(bias[:, i, j], q[0, :, i] @ vector)
    same = columns[:, None] == columns[None]
    assert all(bias[0, i, same[i]].unique().numel() == 1 for i in range(16))
    with pytest.raises(VitrailError, match="'rpe-as-published' needs a square grid, not"):
        AcrossOnly(layout())


def test_offsets_fall_into_coarser_buckets_the_longer_they_are():
    """By hand, of Eq. 18: 1.9 + 1.9 ln(k / 1.9) / ln 8 is 1.95, 2.32, 2.58, 2.78, 2.95, ... ."""
    offsets = torch.arange(-16, 17)
    expected = [0, 1, 2, 2] + [3] * 13
    assert piecewise_index(offsets).tolist() == [-b for b in expected[:0:-1]] + expected


@pytest.mark.parametrize("class_token", [False, True])
def test_a_query_scores_the_bucket_of_the_offset(layout, class_token):
    irpe = IRPE(layout(class_token))
    assert irpe.weight.shape == (2, 8, 49 + class_token)
    assert not irpe.weight.any()
    torch.nn.init.normal_(irpe.weight)
    q = torch.randn(1, 2, 15 + class_token, 8)
    bias = irpe.bias(q, 0, None)
    bucket = {0: 0, 1: 1, 2: 2, 3: 2, 4: 3}
    for head, i, j in [(0, 0, 14), (1, 14, 0), (1, 7, 3), (0, 5, 5)]:
        down, across = j // 5 - i // 5, j % 5 - i % 5
        row = (3 + bucket[abs(down)] * (1 if down > 0 else -1)) * 7
        row += 3 + bucket[abs(across)] * (1 if across > 0 else -1)
        expected = q[0, head, i + class_token] @ irpe.weight[head, :, row]
        assert_close(bias[0, head, i + class_token, j + class_token], expected)
    if class_token:
        assert_close(bias[0, 1, 0, 9], q[0, 1, 0] @ irpe.weight[1, :, 49])
        assert_close(bias[0, 1, 9, 0], q[0, 1, 9] @ irpe.weight[1, :, 49])


@pytest.mark.parametrize("class_token", [False, True])
def test_alibi_penalises_the_distance_of_two_patches_by_the_slope_of_the_head(layout, class_token):
    alibi = ALiBi(layout(class_token))
    permutation = torch.stack([torch.randperm(15) for _ in range(3)])
    q = torch.randn(3, 2, 15 + class_token, 8)
    for layer in range(2):
        plain, permuted = alibi.bias(q, layer, None), alibi.bias(q, layer, permutation)
        for image, head, i, j in [(0, 0, 0, 14), (1, 1, 14, 0), (2, 1, 7, 3), (0, 0, 5, 5)]:
            slope = 2.0 ** (-8 * (head + 1) / 2)  # 1/16 and 1/256 of two heads
            at = i + class_token, j + class_token
            distance = math.dist(divmod(i, 5), divmod(j, 5))
            assert plain[0, head, *at].item() == pytest.approx(-slope * distance)
            moved = [divmod(int(permutation[image, n]), 5) for n in (i, j)]
            assert permuted[image, head, *at].item() == pytest.approx(-slope * math.dist(*moved))
    if class_token:
        assert not plain[:, :, 0].any()
        assert not plain[:, :, :, 0].any()
    assert not list(alibi.parameters())
