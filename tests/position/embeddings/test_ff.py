import math

import pytest
import torch
from torch.testing import assert_close

from vitrine.position.embeddings.ff import FourierFeatures


def test_an_mlp_sees_sines_and_cosines_of_mixtures_of_x_and_y(layout):
    ff = FourierFeatures(layout())
    seen = []
    ff.mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    assert ff.table(1).shape == (15, 16)
    x, y = 4, 2
    phase = ff.frequencies.weight @ torch.tensor([x, y], dtype=torch.float32)
    expected = torch.cat([phase.cos(), phase.sin()]) / math.sqrt(16)
    assert_close(seen[0][y * 5 + x], expected)


def test_the_mixtures_begin_with_the_std_of_gamma_to_the_minus_2(layout):
    weights = torch.cat([FourierFeatures(layout()).frequencies.weight for _ in range(100)])
    assert weights.std().item() == pytest.approx(0.16, rel=0.1)
