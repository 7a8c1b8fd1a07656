from pathlib import Path

import pytest
import torch
from torch import nn

import vitrail.models  # noqa: F401
from replication.context import Context
from replication.images.transforms import normalization
from replication.papers.shift.figure_data import (
    photo,
    relative_distances,
    token_consistency,
    tokenization_illustration,
    window_illustration,
)
from vitrail.shift.geometry import Frame, circular_conv
from vitrail.shift.selection import PerLayerSelection

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)
MODEL = "swin_tiny_patch4_window7_224"


@pytest.fixture(scope="module")
def tokenization():
    return tokenization_illustration(CONTEXT, MODEL, size=28, shift=1)


@pytest.fixture(scope="module")
def windows():
    return window_illustration(CONTEXT, MODEL, size=64, window=4, shift=1)


def energies(values, which, side=4):
    return {(i, j): values[f"{which}/energy {i}, {j}"] for i in range(side) for j in range(side)}


def test_the_photo_is_colourful_and_in_range():
    image = photo(28)
    assert image.shape == (1, 3, 28, 28)
    assert 0 <= image.min() < 0.2 < 0.8 < image.max() <= 1


@pytest.mark.parametrize("figure", ["tokenization", "windows"])
def test_a_shift_by_one_moves_every_score_by_one(figure, request):
    """shift, Lemma 1, Eq. 15."""
    values = request.getfixturevalue(figure)
    before, after = energies(values, "image"), energies(values, "shifted")
    for (i, j), energy in after.items():
        assert energy == pytest.approx(before[(i + 1) % 4, (j + 1) % 4], rel=1e-12)


@pytest.mark.parametrize("figure", ["tokenization", "windows"])
@pytest.mark.parametrize("which", ["image", "shifted"])
def test_the_strongest_is_chosen(figure, which, request):
    values = request.getfixturevalue(figure)
    scores = energies(values, which)
    chosen = [place for place in scores if values[f"{which}/chosen {place[0]}, {place[1]}"]]
    assert chosen == [max(scores, key=scores.get)] == [tuple(values[f"{which}/phase"])]
    assert scores[chosen[0]] == 1


def test_only_adaptive_tokens_survive_the_shift(tokenization):
    assert torch.tensor(tokenization["image/pixels"]).shape[2] == 3
    assert tokenization["adaptive change"] < 1e-12
    assert tokenization["plain change"] > 0.01


def test_only_linear_distances_change_under_a_shift():
    """shift, Eq. 12, Eq. 24."""
    values = relative_distances(CONTEXT, tokens=4)
    # A shift by s separates s of the 4 tokens from the others, in both directions.
    assert [values[f"linear/changed by {s}"] for s in range(4)] == [0, 6, 8, 6]
    assert [values[f"circular/changed by {s}"] for s in range(4)] == [0, 0, 0, 0]


class Tokenizer(nn.Module):
    """One stage that tokenises, with or without choosing its grid."""

    def __init__(self, adaptive):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 4, 4)
        self.adaptive = adaptive

    def forward_stages(self, images):
        frame = Frame.of(images)
        if not self.adaptive:
            phase = torch.zeros(len(images), 2, dtype=torch.long)
            tokens = circular_conv(images, self.conv).permute(0, 2, 3, 1)
        else:
            tokens, phase = PerLayerSelection()(images, self.conv)
        return [frame.sampled(phase, 4).place(tokens)]


def run(trained_on_digits, adaptive):
    return trained_on_digits(Tokenizer(adaptive))


@pytest.mark.parametrize("shift", [1, 6])
def test_tokens_of_an_adaptive_model_are_put_back_in_place(trained_on_digits, shift):
    """shift, Sec. 5.3."""
    values = token_consistency(run(trained_on_digits, adaptive=True), 32, shift)
    assert values["block 1/max"] < 1e-12
    assert torch.tensor(values["block 1/map"]).shape == (8, 8)


def test_tokens_of_a_plain_model_change(trained_on_digits):
    values = token_consistency(run(trained_on_digits, adaptive=False), 32)
    assert values["block 1/max"] > 0.01
    assert torch.tensor(values["block 1/map"]).max() > 0


def test_the_change_that_is_drawn_is_that_of_the_channel_with_the_most_energy(trained_on_digits):
    """shift, Sec. 5.3."""
    tokenizer = Tokenizer(adaptive=False)
    tokenizer.conv.bias.data[0] = 100  # the most energy, and not the largest change
    trained = trained_on_digits(tokenizer)
    values = token_consistency(trained, 32)
    model = trained.model.double()
    mean, std = (
        torch.tensor(of)[:, None, None]
        for of in normalization(trained.info, trained.recipe.data.normalization)
    )
    image = (photo(32) - mean) / std
    with torch.no_grad():
        before, after = (
            model.forward_stages(x)[0].tokens[0] for x in (image, image.roll((-1, -1), (2, 3)))
        )
    channel = before.square().sum(dim=(1, 2)).argmax()
    expected = (after - before)[channel].abs().max().item()
    assert values["block 1/drawn"] == pytest.approx(expected, rel=1e-9)
    assert expected < (after - before).abs().max()


def test_tokens_of_a_plain_model_survive_a_shift_by_its_stride(trained_on_digits):
    values = token_consistency(run(trained_on_digits, adaptive=False), 32, shift=4)
    assert values["block 1/max"] < 1e-12
