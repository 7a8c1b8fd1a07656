from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import vitrail.models  # noqa: F401
from replication.context import Context
from replication.images.photos import photo_centre
from replication.papers.octic.figure_data import (
    BANKS,
    block_planes,
    cayley,
    distinct,
    intertwiner,
    learned_filters,
    matrix_of,
)
from vitrail.errors import VitrailError
from vitrail.octic.embeddings import OcticPatchEmbed
from vitrail.octic.group import ELEMENTS, INVERSE_FOURIER, irrep, on_planes
from vitrail.octic.layers import OcticLinear

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)


@pytest.fixture(scope="module")
def dense():
    return intertwiner(CONTEXT, channels=24)


@pytest.fixture(scope="module")
def diagram():
    return cayley(CONTEXT, image_size=16, patch_size=4)


@pytest.fixture(scope="module")
def planes():
    names = {family: f"octic_{family}_vit_small_patch16_224" for family in ("d8", "i8", "h8")}
    models = {label: {"name": name} for label, name in names.items()}
    return block_planes(CONTEXT, models, batch_size=2)


def columns(x):
    """``(8, 1, N, c)`` as ``(8c, N)``."""
    return x[:, 0].transpose(1, 2).flatten(0, 1)


@pytest.mark.parametrize(
    ("basis", "to_basis"),
    [
        (torch.eye(8, dtype=torch.float64), lambda x: x),
        (INVERSE_FOURIER, partial(on_planes, INVERSE_FOURIER)),
    ],
    ids=["isotypic", "regular"],
)
def test_the_matrix_does_what_the_layer_does(basis, to_basis):
    layer = OcticLinear(16, 24, bias=False).double()
    x = torch.randn(8, 1, 5, 2, dtype=torch.float64)
    matrix = matrix_of(layer, basis)
    expected = columns(to_basis(layer(x)))
    assert torch.allclose(matrix @ columns(to_basis(x)), expected, atol=1e-14)


@pytest.mark.parametrize("basis", ["isotypic", "regular"])
def test_the_matrix_commutes_with_the_group_in_both_bases(dense, basis):
    assert dense[f"{basis}/error"] < 1e-12


def test_only_twelve_of_sixty_four_blocks_are_not_zero_in_the_isotypic_basis(dense):
    assert dense["isotypic/multiplications"] == 12 * 3 * 3
    assert dense["isotypic/share"] == 100 * 12 / 64
    assert dense["regular/share"] == 100
    assert dense["fewer/multiplications"] == 16 / 3


def test_the_layer_has_an_eighth_of_the_parameters_in_both_bases(dense):
    assert dense["regular/parameters"] == dense["isotypic/parameters"] == 8 * 3 * 3
    assert dense["fewer/parameters"] == 8


def test_both_rows_of_e_have_one_matrix_on_the_diagonal(dense):
    matrix = np.array(dense["isotypic/matrix"])
    row_0, row_1 = matrix[12:18, 12:18], matrix[18:, 18:]
    assert (row_0 == row_1).all()
    assert np.count_nonzero(row_0) == 36


def test_numbers_that_rounding_separates_are_not_different():
    assert distinct(torch.tensor([0.1 + 0.2, 0.3, -0.3, 0.3001], dtype=torch.float64)) == 3


def test_a_turned_photograph_is_seen_from_its_own_pixels(diagram):
    photograph = photo_centre("china", 16)
    assert (np.array(diagram["e/pixels"]) == photograph).all()
    assert (np.array(diagram["r/pixels"]) == np.rot90(photograph)).all()
    assert (np.array(diagram["mr/pixels"]) == np.rot90(photograph)[:, ::-1]).all()


def test_features_turn_with_the_photograph(diagram):
    """octic, App. C."""
    assert all(diagram[f"{element}/error"] < 1e-12 for element in ELEMENTS)
    assert all(diagram[f"{element}/change"] > 0.1 for element in ELEMENTS[1:])
    assert diagram["e/change"] == 0


def test_features_are_what_the_filters_make_of_the_patches(diagram):
    photograph = photo_centre("china", 16) / 255
    corner = (photograph - photograph.mean((0, 1)))[:4, :4]
    expected = (np.array(diagram["filters"]) * corner).sum((1, 2, 3))
    assert np.array(diagram["e/features"])[:, 0, 0] == pytest.approx(expected)


class Patches(nn.Module):
    """A model with an octic patch embedding whose filters are mixtures of two."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch_embed = OcticPatchEmbed(16, 8, embed_dim=40)
        basis = torch.randn(6, 2, 3, 4, 4)
        weight = torch.einsum("bnk,bkixy->bnixy", torch.randn(6, 5, 2), basis)
        self.patch_embed.weight.data.copy_(weight)


@pytest.fixture
def learned(trained_on_digits):
    return learned_filters(trained_on_digits(Patches()), components=4)


@pytest.mark.parametrize("bank", BANKS)
def test_the_components_of_a_bank_are_as_many_as_its_filters_span(learned, bank):
    assert np.array(learned[f"{bank}/components"]).shape == (2, 8, 8, 3)
    assert learned[f"{bank}/explained"] == pytest.approx(100)
    assert 50 < learned[f"{bank}/first"] < 100


@pytest.mark.parametrize("bank", ["A1", "A2", "B1", "B2"])
def test_a_component_transforms_as_the_filters_of_its_bank_do(learned, bank):
    """octic, App. C.1."""
    for component in np.array(learned[f"{bank}/components"]):
        assert component.max() == pytest.approx(1) == np.abs(component).max()
        turned, mirrored = np.rot90(component), component[:, ::-1]
        assert turned == pytest.approx(component * irrep(bank, "r").item(), abs=1e-5)
        assert mirrored == pytest.approx(component * irrep(bank, "m").item(), abs=1e-5)


def test_no_more_components_are_shown_than_asked_for(trained_on_digits):
    values = learned_filters(trained_on_digits(Patches()), components=1)
    assert len(values["A1/components"]) == 1
    assert values["A1/explained"] == values["A1/first"]


def test_the_share_of_high_frequencies_is_that_of_a_constant_and_of_noise(trained_on_digits):
    """Of eight frequencies on an axis five, of 0, 1 and 2 cycles in 8 pixels, are not high."""
    high = {}
    for name, quarter in {
        "constant": torch.ones(4, 4),
        "noise": torch.randn(6, 400, 3, 4, 4),
    }.items():
        model = Patches()
        model.patch_embed = OcticPatchEmbed(16, 8, embed_dim=3200)
        with torch.no_grad():
            model.patch_embed.weight.copy_(quarter.expand(6, 400, 3, 4, 4))
        high[name] = learned_filters(trained_on_digits(model), components=1)
    assert high["constant"]["A1/high"] == pytest.approx(0, abs=1e-9)
    assert 0 < high["constant"]["all/high"] < 100
    assert high["noise"]["all/high"] == pytest.approx(100 * (1 - 25 / 64), abs=1)


def test_filters_of_another_patch_embedding_are_refused(trained_on_digits):
    with pytest.raises(VitrailError, match="'vit_tiny_patch16_224' is not octic"):
        learned_filters(trained_on_digits(nn.Linear(2, 2)))


def test_the_families_differ_in_where_they_leave_octic_features(planes):
    depths = {
        family: (planes[f"{family}/octic blocks"], planes[f"{family}/standard blocks"])
        for family in ("d8", "i8", "h8")
    }
    assert depths == {"d8": (12, 0), "i8": (6, 6), "h8": (6, 6)}
    invariants = [planes[f"{family}/invariants"] for family in ("d8", "i8", "h8")]
    assert invariants == [6 * 48, 6 * 48, 0]
    assert (planes["d8/tokens"], planes["d8/channels"]) == (197, 384)


def test_a_block_keeps_eight_planes_and_an_eighth_of_the_linear_parameters(planes):
    widths = {"norm1": 48, "qkv": 144, "proj": 48, "norm2": 48, "fc1": 192, "GELU": 192, "fc2": 48}
    for stage, width in widths.items():
        assert planes[f"{stage}/shape"] == [8, 2, 197, width]
        assert planes[f"{stage}/channels"] == width
    assert all(planes[f"{stage}/share"] == 12.5 for stage in ("qkv", "proj", "fc1", "fc2"))
    assert (planes["norm1/share"], planes["GELU/share"]) == (100 * 7 / 16, None)
