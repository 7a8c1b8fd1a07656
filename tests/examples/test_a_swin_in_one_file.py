"""A-Swin and A-SwinV2 are those of the example, which shares no code with them."""

import pytest
import timm
import torch
from torch import nn

from examples import a_swin_in_one_file as oracle
from replication.images.photos import photo_crops
from tests.examples.images import noise, objects, periodic
from vitrail.shift.conversion import invariance_error, make_shift_equivariant
from vitrail.shift.polyphase import TIE_RTOL, strongest_phase
from vitrail.shift.selection import window_offset

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
def not_anchored(monkeypatch):
    """Shift by the paper's m* alone, which leaves tokens in the order of their image."""
    strongest = oracle.strongest
    monkeypatch.setattr(
        oracle, "strongest", lambda scores, places, s, _: strongest(scores, places, s, False) % s
    )


@torch.inference_mode()
def difference(model, images):
    """Return the largest between logits of the library and of the example."""
    ours, expected = make_shift_equivariant(model)(images), oracle.ASwin(model)(images)
    assert expected.std() > 0.05
    return (ours - expected).abs().max().item()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_example(case):
    """shift, Eq. 13-14, Eq. 17-20, Eq. 21-23."""
    assert difference(plain(*case), noise(6, 3, *case[1])) <= 1e-12


def test_logits_of_photographs_are_those_of_the_example(monkeypatch):
    """The rule for ties decides nothing but the single window of the last stage."""
    crops = torch.tensor(photo_crops(12, 56, seed=0)).permute(0, 3, 1, 2)
    model, images = plain("swin", (56, 56), 7, 40), crops.double() / 255 - 0.5
    assert difference(model, images) <= 1e-12
    strongest, changed = oracle.strongest, []

    def compared(scores, places, s, in_order):
        m = strongest(scores, places, s, in_order)
        changed.append((m[:, 0] % s * s + m[:, 1] % s != scores.argmax(1)).sum().item())
        return m

    monkeypatch.setattr(oracle, "strongest", compared)
    oracle.ASwin(model)(images)
    *several_windows, one_window = changed
    assert several_windows == [0] * 5
    assert one_window > 6


@pytest.mark.parametrize("images", [objects, periodic])
@pytest.mark.parametrize(("family", "side", "window"), [("swin", 56, 7), ("swinv2", 24, 3)])
def test_logits_are_those_of_the_example_where_scores_tie(family, side, window, images):
    model = plain(family, (side, side), window, 12)
    assert difference(model, images(side)) <= 1e-12


def scores_of(energies, stride):
    """The sum over each grid of energies (B, H, W), relative to the largest: (B, s s)."""
    sums = oracle.every(lambda x: x[:, ::stride, ::stride].sum((1, 2)), energies, stride)
    return sums / sums.amax(1, keepdim=True)


def test_a_chosen_grid_has_the_largest_score():
    """shift, Eq. 14, Eq. 20."""
    tokens = noise(64, 28, 28, 12) + 4
    means = oracle.every(lambda x: x, tokens.norm(dim=-1), 7).mean(1)
    chosen = {
        2: (strongest_phase(tokens, 2), scores_of(tokens.square().sum(-1), 2)),
        7: (window_offset(tokens, (7, 7)), scores_of(means.square(), 7)),
    }
    for side, (offset, scores) in chosen.items():
        assert (scores.gather(1, offset @ torch.tensor([[side], [1]])) >= 1 - TIE_RTOL).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case[1][0] == case[1][1]])
def test_shifted_images_have_the_same_bits(case):
    """shift, Eq. 3."""
    model, side = plain(*case), case[1][0]
    adaptive = oracle.ASwin(model)
    for images in (noise(6, 3, side, side), objects(side), periodic(side)):
        assert invariance_error(adaptive, images, shifts=1) == 0
        assert invariance_error(model, images, shifts=1) > 1e-3


@pytest.mark.slow
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
        monkeypatch.setattr(oracle, "strongest_windows", lambda x, *_: unshifted(x))
    elif module == "torus":
        for stage, masked in zip(model.swin.layers, swin.layers, strict=True):
            for block, masked_block in zip(stage.blocks, masked.blocks, strict=True):
                block.attn_mask = masked_block.attn_mask
    else:
        stride = {"tokens": 4, "merging": 2}[module]
        select = lambda f, x, s, _: unshifted(x) if s == stride else grid(f, x, s, _)  # noqa: E731
        monkeypatch.setattr(oracle, "strongest_grid", select)
    assert invariance_error(model, images, shifts=2) > 1e-4
