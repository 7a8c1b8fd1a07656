"""A-Swin and A-SwinV2 are those of the example, which shares no code with them."""

import pytest
import timm
import torch
from torch import nn

from examples import a_swin_in_one_file as oracle
from tests.examples.images import noise, objects, periodic
from vitrail.shift import polyphase
from vitrail.shift.equivariance import invariance_error, make_shift_equivariant
from vitrail.shift.polyphase import strongest_phase
from vitrail.shift.windows import window_offset

NAMES = {"swin": "swin_tiny_patch4_window7_224", "swinv2": "swinv2_tiny_window8_256"}
# Family, images, window, width. The last stage has one window, or two beside each other. From 30
# channels on the library scores the grids of its tokeniser by correlation.
CASES = [
    ("swin", (56, 56), 7, 12),
    ("swin", (64, 64), 8, 12),
    ("swin", (24, 48), 3, 12),
    ("swin", (56, 56), 7, 40),
    ("swinv2", (56, 56), 7, 12),
    ("swinv2", (64, 64), 8, 40),
    ("swinv2", (24, 48), 3, 12),
]


def plain(family, size, window, width, patch_size=2):
    torch.manual_seed(0)
    options = {"img_size": size, "window_size": window, "embed_dim": width}
    options |= {"depths": (2, 2, 2), "num_heads": (1, 2, 4), "num_classes": 5}
    options["patch_size"] = patch_size
    model = timm.create_model(NAMES[family], **options).double().eval()
    for parameter in model.parameters():  # some begin at zero, which would hide them
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def exact(monkeypatch):
    """Leave to the rule for ties only what rounding can make of equal scores in float64."""
    monkeypatch.setattr(polyphase, "TIE", oracle.TIE)


@pytest.fixture
def not_anchored(monkeypatch):
    """Shift by the paper's m* alone, which leaves tokens in the order of their image."""
    strongest = oracle.strongest
    monkeypatch.setattr(oracle, "strongest", lambda *args: strongest(*args) % args[-1])


@torch.inference_mode()
def difference(model, images):
    """Return the largest between logits of the library and of the example."""
    ours, expected = make_shift_equivariant(model)(images), oracle.ASwin(model)(images)
    assert expected.std() > 0.05
    return (ours - expected).abs().max().item()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_example(case, exact):
    """shift, Eq. 13-14, Eq. 17-20, Eq. 21-23."""
    assert difference(plain(*case), noise(6, 3, *case[1])) <= 1e-12


def test_logits_are_those_of_the_example_where_no_two_scores_are_close(monkeypatch):
    """The library's own margin of ties then decides nothing but exact ties."""
    model, images = plain("swin", (24, 24), 3, 12), noise(24, 3, 24, 24)
    strongest, gaps = oracle.strongest, []

    def measured(scores, *args):
        first, second = scores.topk(2).values.T
        gaps.append(1 - second / first)
        return strongest(scores, *args)

    monkeypatch.setattr(oracle, "strongest", measured)
    oracle.ASwin(model)(images)
    *several_windows, one_window = torch.stack(gaps)
    assert one_window.max() < 1e-14
    clear = torch.stack(several_windows).amin(0) > 2 * polyphase.TIE
    assert clear.sum() >= 8
    assert difference(model, images[clear]) <= 1e-12


@pytest.mark.parametrize("images", [objects, periodic])
@pytest.mark.parametrize(("family", "side", "window"), [("swin", 56, 7), ("swinv2", 24, 3)])
def test_logits_are_those_of_the_example_where_scores_tie(family, side, window, images, exact):
    model = plain(family, (side, side), window, 12)
    assert difference(model, images(side)) <= 1e-12


def scores_of(energies, stride):
    """The sum over each grid of energies (B, H, W), relative to the largest: (B, s s)."""
    sums = oracle.every(lambda x: x[:, ::stride, ::stride].sum((1, 2)), energies, stride)
    return sums / sums.amax(1, keepdim=True)


def test_a_chosen_grid_has_the_largest_score_but_for_the_margin_of_ties():
    """shift, Eq. 14, Eq. 20: in float64 the margin is wider than rounding asks for."""
    tokens = noise(64, 28, 28, 12) + 4
    means = oracle.every(lambda x: x, tokens.norm(dim=-1), 7).mean(1)
    chosen = {
        2: (strongest_phase(tokens, 2), scores_of(tokens.square().sum(-1), 2)),
        7: (window_offset(tokens, (7, 7)), scores_of(means.square(), 7)),
    }
    missed = {}
    for side, (offset, scores) in chosen.items():
        score = scores.gather(1, offset @ torch.tensor([[side], [1]]))
        assert (score > 1 - polyphase.TIE).all()
        missed[side] = (score < 1).sum().item()
    assert missed[2] < 4 < missed[7]  # of 64 images


@pytest.mark.parametrize("case", [case for case in CASES if case[1][0] == case[1][1]])
def test_shifted_images_have_the_same_bits(case):
    """shift, Eq. 3."""
    model, side = plain(*case), case[1][0]
    adaptive = oracle.ASwin(model)
    for images in (noise(6, 3, side, side), objects(side), periodic(side)):
        assert invariance_error(adaptive, images, shifts=1) == 0
        assert invariance_error(model, images, shifts=1) > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_the_modules_alone_make_it_invariant(case, not_anchored):
    model, side = oracle.ASwin(plain(*case)), case[1][0]
    assert invariance_error(model, noise(6, 3, *case[1]), shifts=2) <= 1e-12
    if case[1][1] == side:
        assert invariance_error(model, objects(side), shifts=1) <= 1e-12
        assert invariance_error(model, periodic(side), shifts=1) <= 1e-12


def unshifted(x):
    return torch.zeros(len(x), 2, dtype=torch.int64)


@pytest.mark.parametrize("module", ["tokens", "merging", "windows", "torus"])
def test_every_module_is_needed(module, not_anchored, monkeypatch):
    """shift, Sec. 5.7."""
    swin, images = plain("swin", (48, 48), 3, 12, patch_size=4), noise(6, 3, 48, 48)
    model, grid = oracle.ASwin(swin), oracle.strongest_grid
    assert invariance_error(model, images, shifts=2) <= 1e-12
    if module == "windows":
        monkeypatch.setattr(oracle, "strongest_windows", lambda x, w: unshifted(x))
    elif module == "torus":
        for stage, masked in zip(model.swin.layers, swin.layers, strict=True):
            for block, masked_block in zip(stage.blocks, masked.blocks, strict=True):
                block.attn_mask = masked_block.attn_mask
    else:
        stride = {"tokens": 4, "merging": 2}[module]
        select = lambda f, x, s: unshifted(x) if s == stride else grid(f, x, s)  # noqa: E731
        monkeypatch.setattr(oracle, "strongest_grid", select)
    assert invariance_error(model, images, shifts=2) > 1e-4
