import math

import pytest

from vitrine.position.embeddings.sin import Sinusoid


def test_the_first_half_is_of_x_and_the_second_of_y_sine_and_cosine_by_turns(layout):
    table = Sinusoid(layout()).table(1)
    assert table.shape == (15, 16)
    x, y = 4, 2
    row = table[y * 5 + x].tolist()
    for pair in range(4):
        frequency = 1e4 ** (-2 * pair / 8)
        expected = [math.sin(x * frequency), math.cos(x * frequency)]
        assert row[2 * pair : 2 * pair + 2] == pytest.approx(expected, abs=1e-6)
        expected = [math.sin(y * frequency), math.cos(y * frequency)]
        assert row[8 + 2 * pair : 10 + 2 * pair] == pytest.approx(expected, abs=1e-6)
