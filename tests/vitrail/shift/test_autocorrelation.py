import pytest
import torch

from tests.vitrail.shift.test_energies import TOKENIZERS, image, phase_energies, tokenizer
from vitrail.shift.energies import correlation_energies, dense_energies


@pytest.mark.parametrize("shape", TOKENIZERS)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_scores_equal_those_of_every_tokenisation(shape, bias):
    """shift, Eq. 14."""
    conv, x = tokenizer(*shape, bias=bias), image(shape[0])
    torch.testing.assert_close(dense_energies(x, conv), phase_energies(x, conv), rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", TOKENIZERS)
@pytest.mark.parametrize("bias", [True, False])
def test_correlation_scores_equal_the_dense_ones(shape, bias):
    """shift, Eq. 14."""
    conv, x = tokenizer(*shape, bias=bias), image(shape[0])
    torch.testing.assert_close(
        correlation_energies(x, conv), dense_energies(x, conv), rtol=1e-13, atol=0
    )
