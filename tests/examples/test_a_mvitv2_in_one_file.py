"""A-MViTv2 is that of the example, which shares no code of the adaptive modules with it."""

import pytest
import torch
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from torch import nn

from examples import a_mvitv2_in_one_file as oracle
from tests.examples.images import noise, objects, periodic
from vitrail.shift.conversion import invariance_error, make_shift_equivariant

# Side of the images in pixels, and options of timm's configuration.
CASES = [
    (32, {}),
    (32, {"expand_attn": False, "stride_kv_adaptive": None, "stride_kv": ((4, 4), (2, 2), (1, 1))}),
    (64, {"stride_q": ((1, 1), (4, 4), (1, 1)), "stride_kv_adaptive": (2, 2)}),
    (32, {"residual_pooling": False, "embed_dim": (16, 32, 32)}),
]


def plain(side, options):
    torch.manual_seed(0)
    options = {
        "depths": (1, 2, 1),
        "embed_dim": (8, 16, 32),
        "num_heads": (1, 2, 2),
        "stride_q": ((1, 1), (2, 2), (2, 2)),
        **options,
    }
    model = MultiScaleVit(MultiScaleVitCfg(**options), img_size=side, num_classes=5)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=1.0 if "rel_pos" in name else 0.3)
    return model.double().eval()


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_logits_are_those_of_the_example(case):
    """shift, Eq. 7-8, Eq. 11, Eq. 13-14, Eq. 21-24."""
    model, images = plain(*case), noise(6, 3, case[0], case[0])
    ours, expected = make_shift_equivariant(model)(images), oracle.AMViTv2(model)(images)
    assert expected.std() > 0.05
    assert (ours - expected).abs().max() <= 1e-11 * expected.abs().max()


def test_shifted_images_have_the_same_bits():
    """shift, Eq. 3."""
    model = plain(32, {})
    adaptive = oracle.AMViTv2(model)
    for images in (noise(6, 3, 32, 32), objects(32), periodic(32)):
        assert invariance_error(adaptive, images, shifts=1) == 0
        assert invariance_error(model, images, shifts=1) > 1e-4


@pytest.fixture
def not_anchored(monkeypatch):
    """Shift by the paper's m* alone, which leaves tokens in the order of their image."""
    strongest = oracle.strongest
    monkeypatch.setattr(oracle, "strongest", lambda *args: strongest(*args) % args[-1])


@pytest.mark.parametrize("case", CASES)
def test_the_modules_alone_make_it_invariant(case, not_anchored):
    images = noise(4, 3, case[0], case[0])
    assert invariance_error(oracle.AMViTv2(plain(*case)), images, shifts=2) <= 1e-11


ROWS = oracle.embeddings


def without_offsets(attention, axis, sides, m_q, m_k):
    return ROWS(attention, axis, sides, torch.zeros_like(m_q), torch.zeros_like(m_k))


def linear(attention, axis, sides, m_q, m_k):
    """timm's own distances, which change where tokens wrap around the border."""
    tokens, queries, keys = sides
    stride_q, stride_k = tokens // queries, tokens // keys
    step, table = min(stride_q, stride_k), (attention.rel_pos_h, attention.rel_pos_w)[axis]
    p_q = m_q[:, axis, None] + stride_q * torch.arange(queries)
    p_k = m_k[:, axis, None] + stride_k * torch.arange(keys)
    rows = (p_q[:, :, None] - p_k[:, None, :]) // step + (tokens - stride_k) // step
    return table[rows.clamp(min=0)]


@pytest.mark.parametrize(
    "module", ["patches", "queries", "keys and values", "offsets", "circular distances"]
)
def test_every_module_is_needed(module, not_anchored, monkeypatch):
    """shift, Sec. 5.7."""
    model = oracle.AMViTv2(plain(32, {"stride_q": ((1, 1), (2, 2), (1, 1))}))
    images, grid = noise(6, 3, 32, 32), oracle.strongest_grid
    assert invariance_error(model, images, shifts=2) <= 1e-11
    pools = {
        "patches": {model.mvit.patch_embed.proj},
        "queries": {block.attn.pool_q for stage in model.mvit.stages for block in stage.blocks},
        "keys and values": {
            block.attn.pool_k for stage in model.mvit.stages for block in stage.blocks
        },
    }.get(module, set())

    def select(f, x, s):
        first = torch.zeros(len(x), 2, dtype=torch.int64)
        return first if f.args[0] in pools else grid(f, x, s)

    monkeypatch.setattr(oracle, "strongest_grid", select)
    replaced = {"offsets": without_offsets, "circular distances": linear}
    if module in replaced:
        monkeypatch.setattr(oracle, "embeddings", replaced[module])
    assert invariance_error(model, images, shifts=2) > 1e-5
