"""The bounds on the rounding of scores, against scores in float64, and what they certify."""

import pytest
import timm
import torch

import vitrail.models  # noqa: F401
from replication.images.photos import photo_centre
from tests.vitrail.shift.test_energies import TOKENIZERS, image, tokenizer
from vitrail.measures.selection_margins import selection_margins
from vitrail.shift import polyphase
from vitrail.shift.certificate import correlation_error, gamma_n, margin, places_error
from vitrail.shift.energies import (
    correlation_energies,
    dense_energies,
    projection_energies,
    projection_errors,
)
from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import tie_break_scores

SWIN = {"swin": ("a_swin_tiny_patch4_window7_224", 7), "swinv2": ("a_swinv2_tiny_window8_256", 8)}


def test_a_margin_is_the_gap_of_the_best_two():
    scores = torch.tensor([[1.0, 5.0, 3.0], [2.0, 2.0, 0.0]])
    assert margin(scores, torch.tensor([0.25, 0.25])).tolist() == [2.0, 0.0]
    assert margin(scores[:, :1], torch.tensor([0.25, 0.25])).isinf().all()


def test_gamma_bounds_a_sum_of_rounded_terms():
    terms = torch.rand(1000, 64)
    exact, computed = terms.double().sum(1), torch.zeros(1000)
    for term in terms.T:
        computed += term
    error = (computed.double() - exact).abs() / exact
    assert 0 < error.max() <= gamma_n(63, torch.float32)


@pytest.mark.parametrize(
    "devices", [polyphase.DEVICES_WITH_FLOAT64, ()], ids=["float64", "float32"]
)
def test_places_err_by_less_than_their_bound(devices, monkeypatch):
    monkeypatch.setattr(polyphase, "DEVICES_WITH_FLOAT64", devices)
    energies = torch.rand(4, 16, 24)
    moved = torch.stack([
        tie_break_scores(energies.roll((row, column), (1, 2))).roll((-row, -column), (1, 2))
        for row in range(0, 16, 3) for column in range(0, 24, 5)
    ])  # fmt: skip
    spread = (moved - moved[0]).abs().amax(dim=(0, 2, 3))
    assert (spread > 0).any()
    assert (spread <= 2 * places_error(energies)).all()


@pytest.mark.parametrize("shape", TOKENIZERS)
def test_tokenisers_scores_err_by_less_than_their_bounds(shape):
    conv, x = tokenizer(*shape), image(shape[0])
    error = (correlation_energies(x, conv) - dense_energies(x, conv)).abs().amax(dim=(1, 2))
    assert (error <= 2 * correlation_error(x, conv)).all()
    single, exact = conv.float(), x.float()
    errors = projection_errors(exact, single)
    again = projection_energies(exact.roll((-1, -1), (2, 3)), single)
    moved = (again[:, 0, 0] - projection_energies(exact, single)[:, 1, 1]).abs()
    assert (moved <= 2 * errors[:, 1, 1]).all()
    assert (errors[:, 1, 1] < 1e-3 * again.amax()).all()


def small(family, **options):
    torch.manual_seed(0)
    name, window = SWIN[family]
    size = {"img_size": 8 * window, "patch_size": 2, "window_size": window, "embed_dim": 12}
    depths = {"depths": (2, 2, 2), "num_heads": (1, 2, 4), "num_classes": 10}
    return timm.create_model(name, **{**size, **depths, **options}).eval()


def photographs(side):
    """Return crops of a photograph, all different, ``(30, 3, side, side)``."""
    photo = torch.tensor(photo_centre("flower", 6 * side)).permute(2, 0, 1).float() / 255
    tiles = photo.unfold(1, side, side).unfold(2, side, side).flatten(1, 2).transpose(0, 1)
    return (tiles[:30] - 0.5) / 0.25


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
@pytest.mark.parametrize("family", SWIN)
def test_tiles_of_a_photograph_are_certified_before_a_small_model(family, selection):
    """Before the fast selection at full size fewer photographs are: table `shift_photographs`."""
    model, images = small(family, selection=selection), photographs(8 * SWIN[family][1])
    with selection_margins(model) as margins, torch.no_grad():
        model(images)
    summary = margins.summary()
    assert summary.certified >= 90


@pytest.mark.parametrize("family", SWIN)
def test_an_image_that_equals_its_own_shift_is_not_certified(family):
    side = 8 * SWIN[family][1]
    images = photographs(side)[:2]
    images[1, :, side // 2 :] = images[1, :, : side // 2]
    model = small(family)
    with selection_margins(model) as margins, torch.no_grad():
        model(images)
    assert (margins.smallest() > 1).tolist() == [True, False]


@pytest.mark.parametrize("option", ["adaptive_tokens", "adaptive_windows", "adaptive_merging"])
def test_a_model_without_its_anchor_is_caught(option):
    model, images = small("swin", **{option: False}), photographs(56)[:4]
    with selection_margins(model) as margins, torch.no_grad():
        model(images)
    assert margins.summary().certified == 0


def test_what_is_certified_is_chosen_alike_for_every_shift():
    model, images = small("swin"), photographs(56)[:6]
    offset = torch.randint(56, (6, 2), generator=torch.Generator().manual_seed(0))
    with selection_margins(model) as margins, torch.no_grad():
        model(images)
    before, after = model.forward_stages(images), model.forward_stages(roll_image(images, offset))
    certain = margins.smallest() > 1
    assert certain.sum() >= 4
    for stage, moved in zip(before, after, strict=True):
        assert torch.equal(stage.offset[certain], ((moved.offset + offset) % 56)[certain])
