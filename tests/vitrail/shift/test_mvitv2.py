import copy

import pytest
import timm
import torch
from timm.models.mvitv2 import (
    MultiScaleAttention,
    MultiScaleVit,
    MultiScaleVitCfg,
    cal_rel_pos_type,
    checkpoint_filter_fn,
)
from torch import nn
from torch.nn import functional

from vitrail.errors import VitrailError
from vitrail.shift import adaptive_mvitv2
from vitrail.shift import selection as grids
from vitrail.shift.adaptive_mvitv2 import (
    AdaptiveAttention,
    AdaptiveBlock,
    AdaptiveMultiScaleVit,
    adaptive_filter,
    circular_distance,
    fold,
)
from vitrail.shift.conversion import invariance_error
from vitrail.shift.geometry import Frame, roll_image
from vitrail.shift.polyphase import sample, strongest, strongest_phase, token_norms
from vitrail.shift.selection import PerLayerSelection, window_offsets

SELECTIONS = ["per_layer", "per_stage"]
MICRO = {
    "img_size": 32,
    "num_classes": 10,
    "depths": [1, 2, 1],
    "embed_dim": [8, 16, 32],
    "num_heads": [1, 2, 2],
    "stride_q": [[1, 1], [2, 2], [2, 2]],
}


def randomised(model):
    """At timm's initialisation norms do nothing and the position embedding hardly anything."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            if "rel_pos" in name:
                parameter.copy_(noise)
            elif parameter.ndim == 1:
                parameter.add_(0.3 * noise)
    return model


def made(name="a_mvitv2_tiny", **options):
    torch.manual_seed(0)
    return randomised(timm.create_model(name, **{**MICRO, **options}).double().eval())


def noise(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=dtype)


def offsets(batch, size):
    generator = torch.Generator().manual_seed(3)
    return torch.stack([torch.randint(side, (batch,), generator=generator) for side in size], 1)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(224, 224), (224, 448)])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_full_model_does_not_see_circular_shifts(selection, size):
    depths = (1, 2, 5, 2) if size == (224, 224) else (1, 2, 1, 1)
    tiny = {"img_size": size, "depths": depths, "embed_dim": 96, "num_heads": 1}
    tiny["stride_q"] = ((1, 1), (2, 2), (2, 2), (2, 2))
    model = made(selection=selection, **tiny)
    image = noise(1, 3, *size)
    with torch.inference_mode():
        logits = model(roll_image(image.expand(2, -1, -1, -1), offsets(2, size)))
    assert (logits[0] - logits[1]).abs().max() <= 1e-12
    assert logits.std() > 0.1


@pytest.mark.parametrize("size", [(32, 32), (32, 64), (96, 32)])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_small_model_does_not_see_circular_shifts(selection, size):
    model = made(selection=selection, img_size=size)
    assert invariance_error(model, noise(4, 3, *size), shifts=3) <= 1e-12


@pytest.mark.parametrize("selection", SELECTIONS)
def test_all_images_keep_their_class_in_single_precision(selection):
    model = made(selection=selection).float()
    images = noise(512, 3, 32, 32, dtype=torch.float32)
    with torch.inference_mode():
        # Noise is all of one class, until the logits are centred.
        model.head.fc.bias -= model(images).mean(dim=0)
        classes = model(images).argmax(1)
        shifted = model(roll_image(images, offsets(512, (32, 32))))
    assert (shifted.argmax(1) == classes).all()
    assert len(classes.unique()) == 10


def test_the_plain_models_do_see_circular_shifts():
    for name in ("mvitv2_tiny_circular", "mvitv2_tiny_zeros"):
        assert invariance_error(made(name), noise(4, 3, 32, 32)) > 1e-3


@pytest.mark.parametrize("selection", SELECTIONS)
def test_features_move_with_the_image(selection):
    model = made(selection=selection, img_size=(32, 64))
    images, shift = noise(3, 3, 32, 64), offsets(3, (32, 64))
    with torch.inference_mode():
        stages = model.forward_stages(images)
        shifted = model.forward_stages(roll_image(images, shift))
    assert [features.stride for features in stages] == [4, 8, 16]
    for before, after in zip(stages, shifted, strict=True):
        # Feature n sits at pixel offset + stride n; rolled images have pixel i at i - shift.
        pixels = after.offset + shift - before.offset
        assert (pixels % before.stride == 0).all()
        realigned = roll_image(before.tokens, pixels // before.stride)
        torch.testing.assert_close(after.tokens, realigned, rtol=0, atol=1e-12)


def test_the_offset_of_features_is_where_they_are_computed():
    """A bright pixel is nearest to the feature of the patch that it makes."""
    model = made(selection="per_layer", depths=[1, 1, 1])
    images = noise(8, 3, 32, 32) * 1e-3
    place = offsets(8, (32, 32))
    images[torch.arange(8), :, place[:, 0], place[:, 1]] = 100
    tokens, phase = PerLayerSelection()(images, model.patch_embed.proj)
    frame = Frame.of(images).sampled(phase, 4)
    brightest = strongest(token_norms(tokens))
    distance = (frame.rolled(brightest).offset - place + 16) % 32 - 16
    assert distance.abs().max() <= 3


def test_intermediates_are_the_stages():
    model, images = timm.create_model("a_mvitv2_tiny", **MICRO).eval(), torch.randn(2, 3, 32, 32)
    final, taken = model.forward_intermediates(images, indices=2, norm=True)
    stages = model.forward_stages(images)
    assert torch.equal(final, model.forward_features(images))
    last = stages[-1]._replace(tokens=final.mT.unflatten(2, (2, 2)))
    assert torch.equal(taken[0], stages[-2].aligned().tokens)
    assert torch.equal(taken[1], last.aligned().tokens)


def attention(size, stride_q, stride_kv, **options):
    torch.manual_seed(0)
    plain = MultiScaleAttention(
        8, 8, (size, size), num_heads=2, kernel_q=(3, 3), kernel_kv=(3, 3),
        stride_q=(stride_q, stride_q), stride_kv=(stride_kv, stride_kv), has_cls_token=False,
        **options,
    )  # fmt: skip
    plain = randomised(plain.double())
    adaptive = copy.deepcopy(plain)
    adaptive.__class__ = AdaptiveAttention
    adaptive.make_adaptive((size, size), PerLayerSelection())
    adaptive.load_state_dict(plain.state_dict())
    return plain, randomised(adaptive)


def as_the_paper_says(attn, x):
    """Loop: pool densely, keep the strongest grids, look up distances on the circle (Eq. 24)."""
    batch, height, width, _ = x.shape
    heads, size = attn.num_heads, (height, width)

    def dense(part, conv):
        maps = part.permute(0, 3, 1, 2).reshape(batch * heads, -1, height, width)
        padded = functional.pad(maps, (1, 1, 1, 1), mode="circular")
        maps = functional.conv2d(padded, conv.weight, groups=conv.groups)
        return maps.unflatten(0, (batch, heads)).movedim(2, 4)  # (B, heads, H, W, d)

    def strongest(dense, stride):
        phases = [(row, column) for row in range(stride) for column in range(stride)]
        return max(phases, key=lambda p: dense[:, p[0] :: stride, p[1] :: stride].square().sum())

    q, k, v = attn.qkv(x).chunk(3, dim=-1)
    q, k, v = dense(q, attn.pool_q), dense(k, attn.pool_k), dense(v, attn.pool_v)
    stride_q, stride_kv = attn.pool_q.stride[0], attn.pool_k.stride[0]
    step = min(stride_q, stride_kv)
    outputs = []
    for image in range(batch):
        row_q, column_q = strongest(q[image], stride_q)
        row_k, column_k = strongest(k[image], stride_kv)
        queries = list(torch.cartesian_prod(*(torch.arange(0, side, stride_q) for side in size)))
        keys = list(torch.cartesian_prod(*(torch.arange(0, side, stride_kv) for side in size)))
        attended = []
        for i, j in queries:
            i, j = i + row_q, j + column_q
            query = attn.norm_q(q[image, :, i, j])
            scores, values = [], []
            for m, n in keys:
                m, n = m + row_k, n + column_k
                rows = attn.rel_pos_h[((i - m) % height) // step]
                columns = attn.rel_pos_w[((j - n) % width) // step]
                key = attn.norm_k(k[image, :, m, n])
                scores.append((query * (attn.scale * key + rows + columns)).sum(-1))
                values.append(attn.norm_v(v[image, :, m, n]))
            weights = torch.stack(scores).softmax(0)
            attended.append((weights[:, :, None] * torch.stack(values)).sum(0) + query)
        outputs.append(torch.stack(attended).flatten(1))
    side = (height // stride_q, width // stride_q)
    return attn.proj(torch.stack(outputs)).unflatten(1, side)


STRIDES = [(1, 4), (2, 2), (1, 2), (2, 1), (1, 1)]


@pytest.mark.parametrize(("stride_q", "stride_kv"), STRIDES)
def test_attention_is_that_of_the_paper(stride_q, stride_kv):
    """shift, Eq. 11, Eq. 24."""
    _, attn = attention(8, stride_q, stride_kv)
    x = noise(2, 8, 8, 8)
    with torch.inference_mode():
        attended, phase = attn(x)
        torch.testing.assert_close(attended, as_the_paper_says(attn, x))
    assert (phase.expand(2, 2) < stride_q).all()


@pytest.mark.parametrize(("stride_q", "stride_kv"), STRIDES)
def test_near_tokens_keep_the_position_embedding_of_the_plain_model(stride_q, stride_kv):
    plain, _ = attention(16, stride_q, stride_kv)
    adaptive = copy.deepcopy(plain)
    adaptive.__class__ = AdaptiveAttention
    adaptive.make_adaptive((16, 16), PerLayerSelection())
    adaptive.load_state_dict(plain.state_dict())
    queries, keys = 16 // stride_q, 16 // stride_kv
    q = noise(1, 1, queries**2, 4)
    zeros = q.new_zeros(1, 1, queries**2, keys**2)
    expected = cal_rel_pos_type(
        zeros, q, False, [queries] * 2, [keys] * 2, plain.rel_pos_h, plain.rel_pos_w
    ).view(queries, queries, keys, keys)
    rows, columns = adaptive._embeddings(torch.zeros(1, 2, dtype=torch.int64))
    grid = q.view(queries, queries, 4)
    scores = torch.einsum("yxc,ykc->yxk", grid, rows[0])[..., None] + torch.einsum(
        "yxc,xkc->yxk", grid, columns[0]
    ).unsqueeze(2)
    distance = torch.arange(0, 16, stride_q)[:, None] - torch.arange(0, 16, stride_kv)
    near = distance.abs() < 8
    both = near[:, None, :, None] & near[None, :, None, :]
    torch.testing.assert_close(scores[both], expected[both])
    assert not torch.allclose(scores, expected) or keys == queries == 1


def values_on_their_own_grid(self, qkv):
    q, k, _, q_phase, k_phase = pooled(self, qkv)
    v = self._convolved(qkv, (self.pool_q, self.pool_k, self.pool_v), stride=1).chunk(3, -1)[2]
    phase = strongest_phase(v, self.stride_kv)
    return q, k, sample(v, phase, self.stride_kv), q_phase, k_phase


def shortcut_on_its_own_grid(self, x, phase):
    pool = self.shortcut_pool_attn
    phase = phase if pool is None else strongest_phase(x, pool.stride[0])
    return pooled_shortcut(self, x, phase)


def not_anchored(tokens, sizes, *_):
    return window_offsets(tokens, sizes)


def linear_distance(queries, keys, period):
    return (queries[:, None] - keys[None, :]).abs()


pooled = AdaptiveAttention._pooled
pooled_shortcut = AdaptiveBlock._pooled_shortcut


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "selections"),
    [
        (AdaptiveAttention, "_pooled", values_on_their_own_grid, ["per_layer"]),
        (AdaptiveBlock, "_pooled_shortcut", shortcut_on_its_own_grid, ["per_layer"]),
        (adaptive_mvitv2, "circular_distance", linear_distance, SELECTIONS),
    ],
    ids=["values apart from keys", "skip apart from queries", "linear distances"],
)
def test_what_breaks_equivariance_is_seen(monkeypatch, owner, name, wrong, selections):
    images = noise(4, 3, 32, 32)
    monkeypatch.setattr(grids, "window_offsets", not_anchored)
    assert all(
        0 < invariance_error(made(selection=selection), images) <= 1e-12 for selection in selections
    )
    monkeypatch.setattr(owner, name, wrong)
    for selection in selections:
        assert invariance_error(made(selection=selection), images) > 1e-6


def test_parameters_are_as_many_as_the_specification_says():
    def count(name):
        model = timm.create_model(name)
        return sum(parameter.numel() for parameter in model.parameters())

    assert count("mvitv2_tiny_circular") == 24_173_320
    assert count("a_mvitv2_tiny") == 24_133_576


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_parameter_learns_and_checkpointing_changes_no_gradient(selection):
    model, images = made(selection=selection).train(), noise(3, 3, 32, 32)

    def gradients():
        model.zero_grad()
        model(images).square().sum().backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    whole = gradients()
    assert all(gradient.abs().sum() > 0 for gradient in whole.values())
    model.set_grad_checkpointing()
    torch.testing.assert_close(gradients(), whole)


def test_the_plain_models_differ_from_timm_by_padding_only():
    images = noise(2, 3, 32, 32)
    circular, zeros = made("mvitv2_tiny_circular"), made("mvitv2_tiny_zeros")
    fields = {name: MICRO[name] for name in ("depths", "embed_dim", "num_heads", "stride_q")}
    theirs = MultiScaleVit(MultiScaleVitCfg(**fields), img_size=32, num_classes=10).double().eval()
    theirs.load_state_dict(circular.state_dict())
    with torch.inference_mode():
        expected = theirs(images)
        assert torch.equal(zeros(images), expected)
        assert not torch.allclose(circular(images), expected)
        convs = [module for module in circular.modules() if isinstance(module, nn.Conv2d)]
        assert {conv.padding_mode for conv in convs} == {"circular"}
        for conv in convs:
            conv.padding_mode = "zeros"
        assert torch.equal(circular(images), expected)


def test_a_model_whose_first_stage_strides_is_adapted_for_its_own_images():
    plain = made("mvitv2_tiny_zeros", stride_q=[[2, 2], [2, 2], [1, 1]])
    adaptive = AdaptiveMultiScaleVit.of(plain)
    assert adaptive.img_size == (32, 32)
    assert invariance_error(adaptive, noise(2, 3, 32, 32)) <= 1e-12


def test_published_checkpoints_load_under_timm_s_names_and_under_their_own():
    plain, expected = made("mvitv2_tiny_zeros").float(), None
    native = plain.state_dict()
    number, original = 0, {}
    for stage, depth in enumerate(MICRO["depths"]):
        for block in range(depth):
            prefix = f"stages.{stage}.blocks.{block}."
            for name in [name for name in native if name.startswith(prefix)]:
                rest = name.removeprefix(prefix).replace("shortcut_proj_attn", "proj")
                original[f"blocks.{number}.{rest}"] = native[name]
            number += 1
    for name in [name for name in native if not name.startswith("stages.")]:
        original[name.replace("head.fc", "head.projection")] = native[name]
    expected = AdaptiveMultiScaleVit.of(plain).state_dict()
    for checkpoint in (native, {"model_state": original}, expected):
        model = made().float()
        model.load_state_dict(adaptive_filter(dict(checkpoint), model))
        torch.testing.assert_close(model.state_dict(), expected, rtol=0, atol=0)


def test_checkpoints_of_another_image_size_are_resized_as_timm_does():
    plain = made("mvitv2_tiny_zeros")
    model, theirs = made(img_size=64), made("mvitv2_tiny_zeros", img_size=64)
    model.load_state_dict(adaptive_filter(plain.state_dict(), model))
    theirs.load_state_dict(checkpoint_filter_fn(plain.state_dict(), theirs))
    torch.testing.assert_close(model.state_dict(), AdaptiveMultiScaleVit.of(theirs).state_dict())


@pytest.mark.slow
def test_reduced_precision_other_layouts_and_compilation_change_rounding_only():
    model = made(selection="per_stage", depths=[1, 1, 1], drop_path_rate=0.1)
    images = noise(4, 3, 32, 32)
    with torch.inference_mode():
        logits = model(images)
        channels_last = copy.deepcopy(model).to(memory_format=torch.channels_last)
        torch.testing.assert_close(
            channels_last(images.to(memory_format=torch.channels_last)), logits
        )
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), logits)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        half = model.float()(images.float())
    assert half.dtype == torch.bfloat16
    assert (half - logits).abs().max() < 0.1 * logits.abs().max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"img_size": (32, 40)}, "img_size 32x40 does not fit .* use multiples of 16"),
        ({"selection": "per_stge"}, "selection 'per_stge' is unknown; did you mean 'per_stage'"),
        ({"use_cls_token": True}, "take one without a class token"),
        ({"pool_first": True}, "cannot be made shift-equivariant"),
    ],
)
def test_what_cannot_be_equivariant_is_refused(options, message):
    with pytest.raises(VitrailError, match=message):
        timm.create_model("a_mvitv2_tiny", **{**MICRO, **options})


def test_images_of_another_size_are_refused():
    with pytest.raises(VitrailError, match=r"64x32 pixels do not fit .* built for 32x32"):
        made()(noise(1, 3, 64, 32))


def test_the_circular_distance_of_figure_3_does_not():
    """shift, Eq. 24."""
    p = torch.arange(4)
    distance = circular_distance(p, p, 4)
    assert distance.tolist() == [[0, 3, 2, 1], [1, 0, 3, 2], [2, 1, 0, 3], [3, 2, 1, 0]]  # Fig. 3c
    for shift in range(4):
        shifted = (p + shift) % 4
        assert torch.equal(circular_distance(shifted, shifted, 4), distance)


def test_a_folded_table_keeps_the_nearest_distance():
    table = torch.arange(-3.0, 4.0)[:, None]  # the embedding of distance d is d
    assert fold(table, 4).flatten().tolist() == [0, 1, 0, -1]  # of 2 and -2 the mean
    odd = torch.arange(-4.0, 5.0)[:, None]
    assert fold(odd, 5).flatten().tolist() == [0, 1, 2, -2, -1]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_gradients_lie_in_memory_as_their_parameters(selection):
    """Distributed training copies others once more."""
    model = made(selection=selection)
    model(torch.randn(2, 3, 32, 32, dtype=torch.float64)).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.stride() == parameter.stride()
