"""Choices of grids are what loops over polyphase components say, and as invariant as they claim."""

import itertools

import pytest
import timm
import torch
from timm.layers import BlurPool2d
from torch import nn

import vitrail.models  # noqa: F401
from tests.vitrail.shift.test_swin import spread_norms
from vitrail.errors import VitrailError
from vitrail.extensions import polyphase_selection as other_grids
from vitrail.extensions.polyphase_selection import (
    OTHER_GRIDS,
    TEMPERATURE,
    AnchoredGrid,
    ApsGrid,
    DrawnGrid,
    LayerGrid,
    LearnedGrid,
    LowPassGrid,
    PrintedGrid,
)
from vitrail.shift.conversion import invariance_error
from vitrail.shift.energies import merged_patches
from vitrail.shift.geometry import circular_conv, roll_image
from vitrail.shift.polyphase import roll

# Grids of 12, 6 and 3 tokens in windows of 3.
MICRO = {
    "img_size": 24,
    "patch_size": 2,
    "window_size": 3,
    "embed_dim": 12,
    "depths": (2, 2, 2),
    "num_heads": (1, 2, 4),
    "num_classes": 10,
}
INVARIANT = ("anchoring", "lps", "drawn", "every_layer")
DIM = 12


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.manual_seed(1))


def tokenizer(stride):
    torch.manual_seed(0)
    return nn.Conv2d(3, DIM, stride, stride).double()


def projection(channels=5):
    """As Swin's merging: a norm of each patch, and a matrix."""
    torch.manual_seed(0)
    return nn.Sequential(nn.LayerNorm(4 * channels), nn.Linear(4 * channels, DIM)).double()


def choice(name):
    torch.manual_seed(0)
    grid = OTHER_GRIDS[name]()
    if isinstance(grid, LearnedGrid):
        grid.fit([DIM])
    return grid.double().eval()


def model(name, **options):
    torch.manual_seed(0)
    return spread_norms(timm.create_model(name, **{**MICRO, **options})).double()


def swin(selection, **options):
    return model("polyphase_swin_tiny_patch4_window7_224", selection=selection, **options)


def phases(stride):
    return list(itertools.product(range(stride), range(stride)))


def tokens_of(x, conv):
    """The tokens ``(B, H, W, D)`` of each grid of an image, one tokenisation each."""
    each = [circular_conv(x.roll((-i, -j), (2, 3)), conv) for i, j in phases(conv.stride[0])]
    return [tokens.permute(0, 2, 3, 1) for tokens in each]


def patches_of(x, project):
    """The merged patches of each grid of tokens."""
    return [project(merged_patches(x.roll((-i, -j), (1, 2)))) for i, j in phases(2)]


def norms(each):
    return torch.stack([tokens.square().sum(dim=(1, 2, 3)) for tokens in each], dim=1)


def assert_takes(found, each, scores, stride):
    """Each sample has the tokens and the phase of the largest score."""
    tokens, phase = found
    best = scores.argmax(dim=1)
    assert len(best.unique()) > 1
    assert torch.equal(phase[:, 0] * stride + phase[:, 1], best)
    expected = torch.stack([each[k][b] for b, k in enumerate(best)])
    torch.testing.assert_close(tokens, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("stride", [2, 4])
def test_aps_takes_the_component_of_the_output_with_the_largest_norm(stride):
    x, conv = noise(6, 3, 16, 24), tokenizer(stride)
    each = tokens_of(x, conv)
    assert_takes(ApsGrid()(x, conv), each, norms(each), stride)
    x, project = noise(6, 8, 12, 5), projection()
    each = patches_of(x, project)
    assert_takes(ApsGrid().merge_patches(x, project), each, norms(each), 2)


@pytest.mark.parametrize("stride", [2, 4])
def test_anchoring_takes_the_component_of_the_input_with_the_largest_norm(stride):
    x, conv = noise(6, 3, 16, 24), tokenizer(stride)
    inputs = [x[:, :, i::stride, j::stride] for i, j in phases(stride)]
    assert_takes(AnchoredGrid()(x, conv), tokens_of(x, conv), norms(inputs), stride)
    x, project = noise(6, 8, 12, 5), projection()
    inputs = [x[:, i::2, j::2] for i, j in phases(2)]
    assert_takes(AnchoredGrid().merge_patches(x, project), patches_of(x, project), norms(inputs), 2)


def test_anchored_windows_begin_at_the_component_whose_stride_is_a_window():
    x = noise(6, 8, 12, 5)
    rows, columns = window = (4, 3)
    offset = AnchoredGrid().choose_windows(x, window, merged=True, anchored=True)
    for b in range(6):
        energy = {
            (i, j): x[b, i::rows, j::columns].square().sum().item()
            for i in range(rows)
            for j in range(columns)
        }
        assert tuple(offset[b].tolist()) == max(energy, key=energy.get)


def score(network, tokens):
    """Convolve, rectify, convolve around the border by hand, and take the mean."""
    maps = tokens.permute(0, 3, 1, 2)
    for layer in (network[0], None, network[2]):
        if layer is None:
            maps = maps.clamp_min(0)
            continue
        tiled = maps.repeat(1, 1, 3, 3)
        height, width = maps.shape[2:]
        whole = nn.functional.conv2d(tiled, layer.weight, layer.bias, padding=1)
        maps = whole[:, :, height : 2 * height, width : 2 * width]
    return maps.mean(dim=(1, 2, 3))


@pytest.mark.parametrize("stride", [2, 4])
def test_lps_takes_the_component_that_its_network_scores_highest(stride):
    x, conv, grid = noise(6, 3, 16, 24), tokenizer(stride), choice("lps")
    network, each = grid.scores[str(DIM)], tokens_of(x, conv)
    scores = torch.stack([score(network, tokens) for tokens in each], dim=1)
    assert_takes(grid(x, conv), each, scores, stride)
    x, project = noise(6, 8, 12, 5), projection()
    each = patches_of(x, project)
    scores = torch.stack([score(network, tokens) for tokens in each], dim=1)
    assert_takes(grid.merge_patches(x, project), each, scores, 2)


def shares(index, count):
    return torch.bincount(index, minlength=count).double() / len(index)


def test_lps_draws_by_the_softmax_of_the_scores_in_training_and_learns_them():
    conv, grid = tokenizer(2), choice("lps")
    with torch.no_grad():
        grid.scores[str(DIM)][2].weight.mul_(30)  # scores that differ
    x = noise(1, 3, 8, 8).expand(1500, -1, -1, -1)
    each = tokens_of(x[:1], conv)
    scores = torch.cat([score(grid.scores[str(DIM)], tokens) for tokens in each])
    expected = scores.softmax(dim=0).detach()
    assert expected.max() < 0.9
    tokens, phase = grid.train()(x, conv)
    index = phase[:, 0] * 2 + phase[:, 1]
    assert (shares(index, 4) - expected).abs().max() < 0.04
    chosen = torch.stack([each[k][0] for k in index])
    torch.testing.assert_close(tokens, chosen, rtol=0, atol=1e-12)
    tokens[..., 0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in [grid.scores[str(DIM)][0].weight])


def standardised(scores):
    z = (scores - scores.mean()) / scores.std(correction=0)
    return (z / TEMPERATURE).softmax(dim=0)


def test_in_training_grids_are_drawn_by_their_standardised_energies():
    conv, project, grid = tokenizer(2), projection(), DrawnGrid().train()
    x = noise(1, 3, 8, 8)
    _, phase = grid(x.expand(4000, -1, -1, -1), conv)
    expected = standardised(norms(tokens_of(x, conv))[0])
    assert (shares(phase[:, 0] * 2 + phase[:, 1], 4) - expected).abs().max() < 0.03
    x = noise(1, 8, 8, 5)
    _, phase = grid.merge_patches(x.expand(4000, -1, -1, -1), project)
    expected = standardised(norms(patches_of(x, project))[0])
    assert (shares(phase[:, 0] * 2 + phase[:, 1], 4) - expected).abs().max() < 0.03
    offset = grid.choose_windows(x.expand(4000, -1, -1, -1), (2, 4), merged=True, anchored=True)
    length = x.norm(dim=3)[0]
    energies = []
    for i, j in itertools.product(range(2), range(4)):
        windows = length.roll((-i, -j), (0, 1)).view(4, 2, 2, 4)
        energies.append(windows.mean(dim=(1, 3)).square().sum())
    expected = standardised(torch.stack(energies))
    assert (shares(offset[:, 0] * 4 + offset[:, 1], 8) - expected).abs().max() < 0.03


def test_equal_scores_are_drawn_equally_often():
    place = other_grids.drawn(torch.ones(4000, 2, 2))
    assert (shares(place[:, 0] * 2 + place[:, 1], 4) - 0.25).abs().max() < 0.03


def test_in_evaluation_drawn_grids_are_the_papers():
    drawn, paper = swin("drawn"), model("a_swin_tiny_patch4_window7_224", selection="paper")
    paper.load_state_dict({k: v for k, v in drawn.state_dict().items() if k != "_extra_state"})
    x = noise(4, 3, 24, 24)
    assert torch.equal(drawn(x), paper(x))
    assert not torch.equal(drawn.train()(x), paper(x))


def test_the_low_pass_of_stride_2_is_timms_blur_around_the_border():
    x, project = noise(2, 8, 12, 5), projection()
    blur = BlurPool2d(filt_size=3, stride=2, pad_mode="circular").double()
    dense = torch.zeros(2, DIM, 8, 12, dtype=torch.float64)
    for (i, j), merged in zip(phases(2), patches_of(x, project), strict=True):
        dense[:, :, i::2, j::2] = merged.permute(0, 3, 1, 2)
    merged, phase = LowPassGrid().merge_patches(x, project)
    torch.testing.assert_close(merged.permute(0, 3, 1, 2), blur(dense), rtol=0, atol=1e-12)
    assert not phase.any()


@pytest.mark.parametrize("stride", [2, 4])
def test_low_passed_tokens_are_means_of_the_tokens_around(stride):
    x, conv = noise(2, 3, 16, 24), tokenizer(stride)
    tokens, phase = LowPassGrid()(x, conv)
    steps = range(1 - stride, stride)
    weights = {(i, j): (stride - abs(i)) * (stride - abs(j)) for i in steps for j in steps}
    expected = sum(
        weight * circular_conv(x.roll((-i, -j), (2, 3)), conv) for (i, j), weight in weights.items()
    )
    expected = expected.permute(0, 2, 3, 1) / sum(weights.values())
    torch.testing.assert_close(tokens, expected, rtol=0, atol=1e-12)
    assert not phase.any()


def test_without_its_blur_the_low_passed_swin_is_timms(monkeypatch):
    low_passed = swin("low_pass", attention_mask=True)
    plain = model("swin_tiny_patch4_window7_224")
    plain.load_state_dict({k: v for k, v in low_passed.state_dict().items() if k != "_extra_state"})
    x = noise(2, 3, 24, 24)
    assert (low_passed(x) - plain(x)).abs().max() > 0.01
    monkeypatch.setattr(other_grids, "blurred", lambda x, stride: x)
    torch.testing.assert_close(low_passed(x), plain(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("selection", OTHER_GRIDS)
def test_logits_are_invariant_to_whole_shifts_or_are_not(selection):
    error = invariance_error(swin(selection), noise(8, 3, 24, 24))
    # A tie changes which of the relative positions' small initial biases is used, and nothing else.
    changes = 1e-5 if selection == "printed" else 1e-3
    assert error <= 1e-12 if selection in INVARIANT else error > changes


def test_the_first_maximum_fails_in_the_stage_of_a_single_window_alone(monkeypatch):
    """shift, Eq. 17, Eq. 20: the energy of its window is the same at every offset."""
    x, printed = noise(8, 3, 24, 24), PrintedGrid.choose_windows
    assert invariance_error(swin("printed"), x) > 1e-5

    def choose_windows(self, tokens, window, merged, anchored):
        if tuple(tokens.shape[1:3]) == tuple(window):
            return LayerGrid().choose_windows(tokens, window, merged, anchored)
        return printed(self, tokens, window, merged, anchored)

    monkeypatch.setattr(PrintedGrid, "choose_windows", choose_windows)
    assert invariance_error(swin("printed"), x) <= 1e-12


def test_every_attention_layer_lays_windows_by_the_tokens_it_is_given(monkeypatch):
    """shift, Eq. 19."""
    model, x, given, chosen = swin("every_layer"), noise(2, 3, 24, 24), [], []
    windows = LayerGrid.choose_windows

    def recorded(self, tokens, *args, **options):
        chosen.append(roll(tokens, offset := windows(self, tokens, *args, **options)))
        return offset

    monkeypatch.setattr(LayerGrid, "choose_windows", recorded)
    for block in (block for stage in model.layers for block in stage.blocks):
        block.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    model(x)
    assert len(chosen) == len(given) == 6
    for index in (1, 3, 5):  # a stage's second layer: no norm between
        assert torch.equal(chosen[index], given[index])


def test_features_of_offsets_in_every_layer_sit_where_the_model_says():
    model, x = swin("every_layer"), noise(3, 3, 24, 24)
    for shift in [(1, 0), (5, 17)]:
        moved = model.forward_stages(x.roll((-shift[0], -shift[1]), (2, 3)))
        for before, after in zip(model.forward_stages(x), moved, strict=True):
            rolled = (before.offset - torch.tensor(shift) - after.offset) % 24 // before.stride
            expected = roll_image(before.tokens, -rolled)
            torch.testing.assert_close(after.tokens, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("selection", ["aps", "anchoring", "lps"])
def test_tokens_and_merged_patches_shift_with_the_image(selection):
    conv, project, grid = tokenizer(4), projection(), choice(selection)
    x, tokens = noise(3, 3, 16, 24), noise(3, 8, 12, 5)
    for operation, inputs, dims, stride in (
        (lambda x: grid(x, conv), x, (2, 3), 4),
        (lambda x: grid.merge_patches(x, project), tokens, (1, 2), 2),
    ):
        still, phase = operation(inputs)
        for shift in [(1, 0), (3, 5), (7, 11)]:
            moved, other = operation(inputs.roll((-shift[0], -shift[1]), dims))
            for b in range(3):
                row, column = ((other[b] + torch.tensor(shift) - phase[b]) // stride).tolist()
                expected = still[b].roll((-row, -column), (0, 1))
                torch.testing.assert_close(moved[b], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("selection", OTHER_GRIDS)
def test_training_gives_every_parameter_a_gradient(selection):
    trained = swin(selection).train()
    trained(noise(8, 3, 24, 24)).square().mean().backward()
    lacking = [n for n, p in trained.named_parameters() if p.grad is None or not p.grad.any()]
    # The mean over tokens and channels takes the last bias out of all differences of scores.
    assert [name for name in lacking if not name.endswith(".2.bias")] == []


@pytest.mark.parametrize("of", ["lps", "paper"])
def test_weights_of_another_choice_are_refused(of):
    other = swin(of) if of in OTHER_GRIDS else model("a_swin_tiny_patch4_window7_224")
    weights = {k: v for k, v in other.state_dict().items() if not k.startswith("grid.")}
    with pytest.raises(VitrailError, match="selection"):
        swin("aps").load_state_dict(weights)
