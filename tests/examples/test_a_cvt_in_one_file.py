"""A-CvT is that of the example, which shares no code of the adaptive modules with it."""

import pytest
import torch
from torch import nn

from examples import a_cvt_in_one_file as oracle
from tests.examples.images import noise, objects, periodic
from vitrail.shift.conversion import invariance_error, make_shift_equivariant
from vitrail.shift.cvt import CvT

# Images and width. From 30 channels on the library scores the grids of its first embedding by
# correlation.
CASES = [((32, 32), 8), ((32, 64), 8), ((32, 32), 40)]


def plain(size, width, **options):
    torch.manual_seed(0)
    options |= {"embed_dims": (width, width, 2 * width), "num_heads": (1, 1, 2), "num_classes": 5}
    model = CvT(img_size=size, depths=(1, 1, 2), **options).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


@pytest.fixture
def not_anchored(monkeypatch):
    """Shift by the paper's m* alone, which leaves tokens in the order of their image."""
    strongest = oracle.strongest
    monkeypatch.setattr(oracle, "strongest", lambda *args: strongest(*args) % args[-1])


@torch.inference_mode()
def difference(model, images):
    """Return the largest between logits of the library and of the example."""
    ours, expected = make_shift_equivariant(model)(images), oracle.ACvT(model)(images)
    assert expected.std() > 0.05
    return (ours - expected).abs().max().item()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_example(case):
    """shift, Eq. 7-8, Eq. 13-14, Eq. 21-23."""
    assert difference(plain(*case), noise(6, 3, *case[0])) <= 1e-12


def test_logits_are_those_of_the_example_with_any_strides():
    model = plain((48, 48), 8, strides=(2, 3, 2), kv_strides=(2, 1, 4))
    assert difference(model, noise(6, 3, 48, 48)) <= 1e-12


@pytest.mark.parametrize("images", [objects, periodic])
def test_logits_are_those_of_the_example_where_scores_tie(images):
    assert difference(plain((32, 32), 8), images(32)) <= 1e-12


def test_shifted_images_have_the_same_bits():
    """shift, Eq. 3."""
    model = plain((32, 32), 8)
    adaptive = oracle.ACvT(model)
    for images in (noise(6, 3, 32, 32), objects(32), periodic(32)):
        assert invariance_error(adaptive, images, shifts=1) == 0
        assert invariance_error(model, images, shifts=1) > 1e-4


@pytest.mark.parametrize("case", CASES)
def test_the_modules_alone_make_it_invariant(case, not_anchored):
    model, side = oracle.ACvT(plain(*case)), case[0][0]
    assert invariance_error(model, noise(6, 3, *case[0]), shifts=2) <= 1e-12
    if case[0][1] == side:
        assert invariance_error(model, objects(side), shifts=1) <= 1e-12
        assert invariance_error(model, periodic(side), shifts=1) <= 1e-12


STRIDES = {"the first embedding": 4, "later embeddings": 3, "keys and values": 2}


@pytest.mark.parametrize("module", STRIDES)
def test_every_selection_is_needed(module, not_anchored, monkeypatch):
    """shift, Sec. 5.7."""
    model = oracle.ACvT(plain((72, 72), 8, strides=(4, 3, 3)))
    images, grid = noise(6, 3, 72, 72), oracle.strongest_grid
    assert invariance_error(model, images, shifts=2) <= 1e-12

    def select(f, x, s):
        first = torch.zeros(len(x), 2, dtype=torch.int64)
        return first if s == STRIDES[module] else grid(f, x, s)

    monkeypatch.setattr(oracle, "strongest_grid", select)
    assert invariance_error(model, images, shifts=2) > 1e-5
