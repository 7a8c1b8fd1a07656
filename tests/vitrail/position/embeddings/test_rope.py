import math

import torch
from timm.layers import RotaryEmbeddingCat, RotaryEmbeddingMixed, apply_rot_embed_cat
from torch.testing import assert_close

from vitrail.position.embeddings.auto import AutoRoPE, AutoWrappedRoPE
from vitrail.position.embeddings.rope import AxialRoPE, RoPE


def complex_pairs(x):
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


def test_products_turn_with_the_distance_of_the_tokens(layout):
    """Eq. 10, in complex numbers: Re q k* exp(i (m - n) theta) (position, Eq. 10)."""
    rope = AutoRoPE(layout(class_token=True)).double()
    torch.nn.init.normal_(rope.gamma)
    q, k = torch.randn(2, 1, 2, 16, 8, dtype=torch.float64)
    rotated_q, rotated_k = rope.rotate(q, k, 1, None)
    scores = rotated_q @ rotated_k.mT
    for head, m, n in [(0, 0, 14), (1, 14, 0), (1, 7, 3), (0, 5, 5)]:
        x, y = m % 5 - n % 5, m // 5 - n // 5
        theta = rope.gamma[1] * (rope.frequencies[1] * torch.tensor([x, y])[:, None, None]).sum(0)
        pairs = complex_pairs(q[0, head, m + 1]) * complex_pairs(k[0, head, n + 1]).conj()
        expected = (pairs * torch.exp(1j * theta[head])).real.sum()
        assert_close(scores[0, head, m + 1, n + 1], expected)
    assert torch.equal(rotated_q[:, :, 0], q[:, :, 0])
    assert torch.equal(rotated_k[:, :, 0], k[:, :, 0])


def test_frequencies_begin_as_two_axes_turned_at_random_in_every_head(layout):
    rope = RoPE(layout())
    assert rope.frequencies.shape == (2, 2, 2, 4)
    lengths = rope.frequencies.norm(dim=1)
    assert_close(lengths, torch.tensor([1.0, 10**-0.5] * 2).expand(2, 2, 4))
    first, second = rope.frequencies[..., :2], rope.frequencies[..., 2:]
    assert (first * second).sum(1).abs().max() < 1e-6  # at right angles
    turns = torch.atan2(first[:, 1], first[:, 0])
    assert_close(turns[..., 0], turns[..., 1])
    assert len(turns[..., 0].unique()) == 4
    assert turns.abs().max() <= math.pi


def test_a_layer_turns_by_its_own_gamma(layout):
    """position, App. B, Eq. 11-12."""
    rope = AutoRoPE(layout())
    assert rope.gamma.tolist() == [0.5, 0.5]
    with torch.no_grad():
        rope.gamma[1] = -3
    assert_close(rope.effective_frequencies(0), rope.frequencies[0] / 2)
    assert_close(rope.effective_frequencies(1), rope.frequencies[1] * -3)


def test_wrapped_angles_are_multiplied_as_complex_arguments_and_lose_relativity(layout):
    """The authors' code takes the argument of exp(i angle), whose range is (-pi, pi]."""
    wrapped, plain = AutoWrappedRoPE(layout()).double(), RoPE(layout()).double()
    wrapped.load_state_dict({**plain.state_dict(), "gamma": wrapped.gamma}, strict=True)
    angles = plain.angles(1)
    assert angles.abs().max() > math.pi  # else there were nothing to wrap
    arguments = torch.polar(torch.ones_like(angles), angles).angle()
    assert_close(wrapped.angles(1), 0.5 * arguments)
    q, k = torch.randn(2, 1, 2, 15, 8, dtype=torch.float64)
    with torch.no_grad():
        wrapped.gamma.fill_(1)
    for ours, theirs in zip(
        wrapped.rotate(q, k, 1, None), plain.rotate(q, k, 1, None), strict=True
    ):
        assert_close(ours, theirs)


def test_only_unwrapped_multiples_of_an_angle_grow_evenly(layout):
    coordinates = layout().coordinates()
    row = (coordinates[:, 1] == 0).nonzero().flatten()
    for kind, even in ((AutoRoPE, True), (AutoWrappedRoPE, False)):
        rope = kind(layout()).double()
        with torch.no_grad():
            rope.frequencies.fill_(1.0)
        steps = rope.angles(0)[row].diff(dim=0)
        assert torch.allclose(steps, steps[:1].expand_as(steps)) == even


def test_it_is_timms_mixed_rope(layout):
    rope, timms = RoPE(layout()), RotaryEmbeddingMixed(dim=16, depth=2, num_heads=2)
    assert timms.freqs.shape == (2, 2, 2, 4)  # axis, layer, head, pair
    with torch.no_grad():
        timms.freqs.copy_(rope.frequencies.transpose(0, 1))
    q, k = torch.randn(2, 1, 2, 15, 8)
    for layer in range(2):
        turned = [apply_rot_embed_cat(x, timms.get_embed([3, 5])[layer]) for x in (q, k)]
        assert_close(rope.rotate(q, k, layer, None), tuple(turned))


def test_axial_pairs_turn_with_x_or_with_y_by_powers_of_100(layout):
    """In complex numbers; and products of timm's axial RoPE, which orders the pairs differently."""
    rope = AxialRoPE(layout())
    assert not list(rope.parameters())
    q, k = torch.randn(2, 1, 2, 15, 8)
    rotated = rope.rotate(q, k, 1, None)
    steps = [1, 0.1, 1, 0.1]  # of d = 8: 100 ** 0 and 100 ** -1/2, in x and in y
    for n in (0, 4, 8, 14):
        place = torch.tensor([n % 5, n % 5, n // 5, n // 5])
        turns = torch.exp(1j * torch.tensor(steps) * place)
        assert_close(complex_pairs(rotated[0][0, :, n]), complex_pairs(q[0, :, n]) * turns)
    timms = RotaryEmbeddingCat(8, temperature=100, in_pixels=False, grid_indexing="xy")
    embed = timms.get_embed([3, 5])
    angles = torch.atan2(*(part[:, ::2] for part in embed.chunk(2, dim=1)))  # (N, d/2)
    wrapped = torch.atan2(rope.angles(0)[:, 0].sin(), rope.angles(0)[:, 0].cos())
    assert_close(angles.sort(dim=1).values, wrapped.sort(dim=1).values)
