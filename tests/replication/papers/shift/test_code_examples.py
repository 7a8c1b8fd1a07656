"""The paper's two code examples (shift, Sec. A2.1, Sec. A2.2), by its own statements."""

from pathlib import Path

import pytest
import torch

from replication.context import Context
from replication.papers.shift.code_examples import ApmergeClassifier, EncDec, appendix_examples


def noise(side: int) -> torch.Tensor:
    return torch.randn(1, 3, side, side, dtype=torch.float64)


def test_the_papers_classifier_is_shift_invariant():
    """With its sizes: 8x8 tokens of 3 channels, stride 2, four classes, shifts of -3 to 2.

    Source: shift, Sec. A2.1.
    """
    torch.manual_seed(0)
    model, x = ApmergeClassifier().double().eval(), noise(8)
    for shift in torch.randint(-3, 3, (10, 2)).tolist():
        assert torch.norm(model(x) - model(x.roll(shift, (2, 3)))) <= 1e-15
    assert model(x).shape == (1, 4)


def test_the_papers_encoder_decoder_is_shift_equivariant():
    """With its sizes: 28x28 pixels, 3 channels, stride 2, windows of 7, shifts of -6 to 5.

    Source: shift, Sec. A2.2.
    """
    torch.manual_seed(0)
    model, x = EncDec().double().eval(), noise(28)
    for _ in range(10):
        s01, s02 = torch.randint(-6, 6, (2, 2))
        y01 = model(x.roll(tuple(s01), (-1, -2)))
        y02 = model(x.roll(tuple(s02), (-1, -2)))
        assert torch.norm(y01.roll(tuple(s02 - s01), (-1, -2)) - y02) == 0
    assert y01.shape == (1, 6, 28, 28)
    assert (y01 != 0).any(dim=1).sum() == 14 * 14


@pytest.mark.parametrize("example", ["classifier", "encoder-decoder"])
def test_the_measure_finds_no_error_in_an_example_and_one_in_its_control(example):
    values = appendix_examples(Context("cpu", Path(), 0), images=4, shifts=2)
    assert values[f"{example}/relative"] <= 1e-15
    assert values[f"{example}, fixed/relative"] > 0.1
