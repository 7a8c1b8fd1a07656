import pytest
import torch

from vitrail.octic.group import ELEMENTS


@pytest.fixture(params=ELEMENTS)
def element(request):
    return request.param


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def scrambled():
    """Make a module float64, and every parameter random, also those that begin at zero or one."""

    def scramble(module):
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return module.double()

    return scramble
