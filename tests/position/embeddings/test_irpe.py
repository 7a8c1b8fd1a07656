import pytest
import torch
from torch.testing import assert_close

from vitrine.position.embeddings.irpe import IRPE, piecewise_index


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


def test_it_acts_in_the_first_layer_only(layout):
    assert IRPE(layout()).bias(torch.randn(1, 2, 15, 8), 1, None) is None
