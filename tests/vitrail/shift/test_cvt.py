"""CvT and A-CvT, at full size for what the paper prints, else of a few channels."""

import itertools

import pytest
import timm
import torch
from torch import nn

from vitrail.errors import VitrailError
from vitrail.shift import selection as grids
from vitrail.shift.adaptive_cvt import AdaptiveConvAttention, AdaptiveCvT
from vitrail.shift.conversion import invariance_error, make_shift_equivariant
from vitrail.shift.cvt import ConvAttention, CvT, Mlp
from vitrail.shift.geometry import roll_image, wrap
from vitrail.shift.polyphase import sample, strongest_phase
from vitrail.shift.selection import window_offsets

PARAMETERS = 19_997_480
SELECTIONS = ["per_layer", "per_stage"]
SMALL = {
    "embed_dims": (8, 12, 16),
    "depths": (1, 1, 2),
    "num_heads": (1, 2, 4),
    "strides": (2, 2, 2),
    "mlp_ratio": 2,
    "num_classes": 5,
    "img_size": 32,
}


def trained_looking(model):
    """Give the norms other weights than 1 and 0, and statistics that are not the data's."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.2)
            nn.init.uniform_(module.running_var, 0.1, 2)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, module.in_features**-0.5)
    return model


def plain(**kwargs):
    return trained_looking(timm.create_model("cvt_13", **{**SMALL, **kwargs})).eval()


def adaptive(selection, **kwargs):
    model = timm.create_model("a_cvt_13", selection=selection, **{**SMALL, **kwargs})
    return trained_looking(model).eval()


def noise(count, height=32, width=32, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, height, width, generator=generator).to(dtype)


def offsets(count, height=32, width=32):
    generator = torch.Generator().manual_seed(2)
    draws = (torch.randint(side, (count,), generator=generator) for side in (height, width))
    return torch.stack(list(draws), dim=1)


@pytest.mark.parametrize("name", ["cvt_13", "a_cvt_13"])
def test_cvt_13_has_the_printed_number_of_parameters(name):
    model = timm.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS


@pytest.mark.slow
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("size", [(224, 224), (224, 448)])
def test_a_cvt_13_is_invariant_to_circular_shifts(selection, size):
    model = trained_looking(timm.create_model("a_cvt_13", selection=selection)).double()
    assert invariance_error(model, noise(2, *size), shifts=1) <= 1e-12


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_plain_cvt_is_not_invariant(padding_mode):
    assert invariance_error(plain(padding_mode=padding_mode).double(), noise(2)) > 1e-2


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(
    ("strides", "kv_strides"),
    [((4, 2, 1), (1, 3, 2)), ((1, 2, 2), (4, 2, 1)), ((2, 1, 3), (2, 2, 2))],
)
def test_any_strides_are_invariant(selection, strides, kv_strides):
    size = (48, 96)
    model = adaptive(selection, strides=strides, kv_strides=kv_strides, img_size=size).double()
    assert invariance_error(model, noise(2, *size), shifts=2) <= 1e-12


@pytest.mark.parametrize("selection", SELECTIONS)
def test_float32_predictions_never_change_under_circular_shifts(selection):
    images = noise(512, dtype=torch.float32)
    model = adaptive(selection)
    with torch.inference_mode():
        predictions = model(images).argmax(dim=1)
        shifted = model(roll_image(images, offsets(512))).argmax(dim=1)
    assert len(predictions.unique()) > 1
    assert torch.equal(predictions, shifted)


class ValuesWithTheirOwnPhase(AdaptiveConvAttention):
    def keys_and_values(self, grid, padding):
        key, value = (part.convolve(grid, padding, stride=1) for part in (self.key, self.value))
        return sample(key, strongest_phase(key, 2), 2), sample(value, strongest_phase(value, 2), 2)


class NotAligned(AdaptiveCvT):
    def make_adaptive(self, selection):
        super().make_adaptive(selection)
        self.periods = [1, 1, 1]


@pytest.fixture
def not_anchored(monkeypatch):
    """Leave tokens in the order of their image: beyond their modules, all models depend on it."""
    monkeypatch.setattr(grids, "window_offsets", lambda x, sizes, *_: window_offsets(x, sizes))


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_modules_alone_make_it_invariant(selection, not_anchored):
    assert 0 < invariance_error(adaptive(selection).double(), noise(2)) <= 1e-12


def test_values_must_share_the_phase_of_the_keys(not_anchored):
    model = adaptive("per_layer").double()
    for block in (block for stage in model.stages for block in stage.blocks):
        block.attn.__class__ = ValuesWithTheirOwnPhase
    assert invariance_error(model, noise(2)) > 1e-2


def test_a_fast_stage_must_be_aligned(not_anchored):
    model = adaptive("per_stage").double()
    model.__class__ = NotAligned
    model.make_adaptive("per_stage")
    assert invariance_error(model, noise(2)) > 1e-2


def brute_force_attention(attention, x, size):
    """Attend as CvT's Eq. 2-3 read, one token, tap and head at a time, with padding of zeros."""
    height, width = size
    grid = x[1:].view(height, width, -1)

    def projection(part, stride):
        rows = [part.linear(x[0])]
        for row, column in itertools.product(range(0, height, stride), range(0, width, stride)):
            y = torch.zeros_like(grid[0, 0])
            for i, j in itertools.product(range(3), repeat=2):
                down, right = row + i - 1, column + j - 1
                if 0 <= down < height and 0 <= right < width:
                    y = y + part.conv.weight[:, 0, i, j] * grid[down, right]
            norm = part.norm
            y = (y - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
            rows.append(part.linear(y * norm.weight + norm.bias))
        return torch.stack(rows).chunk(attention.heads, dim=1)

    parts = (projection(attention.query, 1), projection(attention.key, 2))
    heads = zip(*parts, projection(attention.value, 2), strict=True)
    attended = [(q @ k.T / x.shape[1] ** 0.5).softmax(dim=1) @ v for q, k, v in heads]
    return attention.proj(torch.cat(attended, dim=1))


def test_attention_is_that_of_the_paper():
    """shift, Eq. 7-8."""
    torch.manual_seed(0)
    attention = trained_looking(ConvAttention(dim=6, heads=2, kv_stride=2)).double().eval()
    x = torch.randn(2, 1 + 4 * 6, 6, dtype=torch.float64)
    expected = torch.stack([brute_force_attention(attention, sample, (4, 6)) for sample in x])
    torch.testing.assert_close(attention(x, (4, 6)), expected, rtol=0, atol=1e-13)


def test_the_mlp_has_a_quick_gelu():
    mlp = Mlp(dim=6, hidden=12).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    hidden = mlp.fc1(x)
    expected = mlp.fc2(hidden * torch.sigmoid(1.702 * hidden))
    torch.testing.assert_close(mlp(x), expected, rtol=0, atol=1e-14)


def test_embeddings_are_torch_convolutions_and_circular_ones_too():
    images = noise(2)
    for padding_mode in ("zeros", "circular"):
        embed = plain(padding_mode=padding_mode, strides=(4, 2, 2)).double().stages[0].embed
        embed.conv.padding_mode = padding_mode
        conv = nn.Conv2d(3, 8, 7, 4, 2, padding_mode=padding_mode).double()
        conv.load_state_dict(embed.conv.state_dict())
        tokens = embed.convolve(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(tokens, conv(images), rtol=0, atol=1e-13)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_stage_features_of_shifted_images_are_the_same_at_the_same_pixels(selection):
    """shift, Eq. 2."""
    images, shift, size = noise(3, 32, 64), offsets(3, 32, 64), (32, 64)
    model = adaptive(selection).double()
    before = model.forward_stages(images)
    after = model.forward_stages(roll_image(images, shift))
    assert [features.stride for features in before] == [2, 4, 8]
    for was, now in zip(before, after, strict=True):
        moved = wrap(now.offset + shift - was.offset, size)  # pixel p of now is p + shift of was
        assert not (moved % was.stride).any()
        expected = roll_image(was.tokens, moved // was.stride)
        torch.testing.assert_close(now.tokens, expected, rtol=0, atol=1e-12)


def test_fast_features_are_plain_ones_of_images_that_begin_at_their_offset():
    images = noise(3)
    model = adaptive("per_stage").double()
    circular = plain(padding_mode="circular").double()
    for index, features in enumerate(model.forward_stages(images)):
        expected = circular.forward_stages(roll_image(images, features.offset))[index]
        assert not expected.offset.any()
        torch.testing.assert_close(features.tokens, expected.tokens, rtol=0, atol=1e-12)


def test_paper_features_are_plain_ones_of_images_that_begin_at_their_offset():
    images = noise(3)
    dense = {"kv_strides": (1, 1, 1)}  # keys have no phase then
    model = adaptive("per_layer", **dense).double()
    circular = plain(padding_mode="circular", **dense).double()
    for index, features in enumerate(model.forward_stages(images)):
        expected = circular.forward_stages(roll_image(images, features.offset))[index]
        torch.testing.assert_close(features.tokens, expected.tokens, rtol=0, atol=1e-12)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_weights_go_both_ways(selection):
    source, images = plain(), noise(2, dtype=torch.float32)
    model = AdaptiveCvT.of(source, selection)
    back = plain(num_classes=5)
    nn.init.zeros_(back.head.weight)
    weights = model.state_dict()
    del weights["_extra_state"]  # the selection, which a plain model has not
    back.load_state_dict(weights)
    assert torch.equal(back(images), source(images))
    twin = timm.create_model("a_cvt_13", selection=selection, **SMALL).eval()
    twin.load_state_dict(source.state_dict())
    assert torch.equal(twin(images), model(images))


def test_adapting_copies_the_model_with_its_head_precision_and_mode():
    source = plain()
    source.reset_classifier(3)
    source.double().train()
    model = AdaptiveCvT.of(source, "per_stage")
    assert isinstance(model, AdaptiveCvT)
    assert type(source) is CvT
    assert source.padding_mode == "zeros"
    assert model.training
    model.eval()
    assert model(noise(2)).shape == (2, 3)
    assert invariance_error(model, noise(2)) <= 1e-12
    paper = AdaptiveCvT.of(model, "per_layer")
    assert torch.equal(paper(noise(2)), AdaptiveCvT.of(source.eval(), "per_layer")(noise(2)))


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_parameter_learns(selection):
    # The class token passes the convolution of the last queries by, so all tokens are pooled; and
    # with batch statistics a norm's bias, which moves all tokens alike, would vanish.
    model = adaptive(selection, global_pool="avg").double()
    model(noise(4)).logsumexp(dim=1).sum().backward()
    idle = {name for name, p in model.named_parameters() if not p.grad.abs().max() > 1e-12}
    # What adds the same to all keys adds the same to all scores of a query: softmax ignores it.
    ignored = {name for name in idle if name.endswith(("key.norm.bias", "key.linear.bias"))}
    assert idle == ignored


@pytest.mark.parametrize("selection", SELECTIONS)
def test_recomputing_blocks_changes_neither_gradients_nor_statistics(selection):
    def trained(checkpointing):
        model = adaptive(selection).train()
        model.set_grad_checkpointing(checkpointing)
        model(noise(4, dtype=torch.float32)).logsumexp(dim=1).sum().backward()
        gradients = {f"{name}.grad": p.grad for name, p in model.named_parameters()}
        return {**model.state_dict(), **gradients}

    with_it, without = trained(True), trained(False)
    assert all(torch.equal(with_it[name], without[name]) for name in without)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_half_precision_leaves_shifted_images_alike(selection):
    model, images = adaptive(selection), noise(64, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        logits, shifted = model(images), model(roll_image(images, offsets(64)))
    assert logits.dtype == torch.bfloat16
    agree = (logits.argmax(dim=1) == shifted.argmax(dim=1)).double().mean()
    assert agree > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("selection", SELECTIONS)
def test_it_compiles_as_one_graph(selection):
    model, images = adaptive(selection).double(), noise(2)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images), rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", [plain, lambda **kwargs: adaptive("per_stage", **kwargs)])
def test_it_keeps_to_timms_conventions(model):
    images = noise(2, dtype=torch.float32)
    built = model(drop_path_rate=0.2, drop_rate=0.1, depths=(1, 2, 3))
    assert built.get_classifier().out_features == built.num_classes == 5
    assert built.forward_features(images).shape == (2, 1 + 4 * 4, built.num_features)
    assert built.forward_head(built.forward_features(images), pre_logits=True).shape == (2, 16)
    rates = [
        getattr(b.drop_path1, "drop_prob", 0.0) for stage in built.stages for b in stage.blocks
    ]
    assert rates == pytest.approx([0, 0, 0, 0, 0.1, 0.2])
    assert built.no_weight_decay() == {"stages.2.cls_token"}
    assert timm.data.resolve_model_data_config(built)["input_size"] == (3, 224, 224)
    built.reset_classifier(0, "avg")
    assert built(images).shape == (2, 16)
    assert model(in_chans=1)(images[:, :1]).shape == (2, 5)


def test_a_pruned_model_has_the_features_of_the_whole():
    whole = adaptive("per_stage", strides=(2, 2, 2), kv_strides=(1, 1, 1)).double()
    pruned = timm.create_model(
        "a_cvt_13",
        selection="per_stage",
        features_only=True,
        out_indices=(1,),
        **{**SMALL, "kv_strides": (1, 1, 1)},
    )
    pruned.model.load_state_dict(whole.state_dict(), strict=False)
    (features,) = pruned.double().eval().forward_stages(noise(2))
    expected = whole.forward_stages(noise(2))[1]
    assert torch.equal(features.offset, expected.offset)
    assert torch.equal(features.tokens, expected.tokens)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"img_size": (32, 40)}, "32 x 40 .* multiples of 16"),
        ({"selection": "quick"}, "selection 'quick'"),
        ({"global_pool": "max"}, "global_pool 'max'"),
    ],
)
def test_what_does_not_fit_is_refused(mistake, message):
    with pytest.raises(VitrailError, match=message):
        timm.create_model("a_cvt_13", **{**SMALL, **mistake})


def test_an_image_that_does_not_fit_is_refused_only_where_it_must():
    images = noise(1, 32, 36, torch.float32)
    assert plain()(images).shape == (1, 5)
    with pytest.raises(VitrailError, match="multiples of 16"):
        adaptive("per_stage")(images)
    with pytest.raises(VitrailError, match="padding_mode 'mirror'"):
        plain(padding_mode="mirror")


@pytest.mark.parametrize(("kwargs", "std"), [({}, 0.02), ({"init_std": 0.1}, 0.1)])
def test_linear_layers_begin_as_wide_as_they_are_told(kwargs, std):
    model = timm.create_model("cvt_13", **{**SMALL, "embed_dims": (16, 32, 64), **kwargs})
    weight = model.stages[2].blocks[0].mlp.fc1.weight
    assert weight.std().item() == pytest.approx(std, rel=0.1)


def test_cvt_21_is_deeper():
    for name in ("cvt_21", "a_cvt_21"):
        model = timm.create_model(name, **{k: v for k, v in SMALL.items() if k != "depths"})
        assert [len(stage.blocks) for stage in model.stages] == [1, 4, 16]


PUBLISHED = {
    # ours: the authors', transformers'
    "stages.{i}.embed.conv": (
        "stage{i}.patch_embed.proj",
        "cvt.encoder.stages.{i}.embedding.convolution_embeddings.projection",
    ),
    "stages.{i}.embed.norm": (
        "stage{i}.patch_embed.norm",
        "cvt.encoder.stages.{i}.embedding.convolution_embeddings.normalization",
    ),
    "stages.{i}.cls_token": ("stage{i}.cls_token", "cvt.encoder.stages.{i}.cls_token"),
    **{
        f"stages.{{i}}.blocks.{{j}}.{ours}": (
            f"stage{{i}}.blocks.{{j}}.{authors}",
            f"cvt.encoder.stages.{{i}}.layers.{{j}}.{copied}",
        )
        for ours, authors, copied in (
            *(
                each
                for word in ("query", "key", "value")
                for each in (
                    (
                        f"attn.{word}.conv",
                        f"attn.conv_proj_{word[0]}.conv",
                        f"attention.attention.convolution_projection_{word}"
                        ".convolution_projection.convolution",
                    ),
                    (
                        f"attn.{word}.norm",
                        f"attn.conv_proj_{word[0]}.bn",
                        f"attention.attention.convolution_projection_{word}"
                        ".convolution_projection.normalization",
                    ),
                    (
                        f"attn.{word}.linear",
                        f"attn.proj_{word[0]}",
                        f"attention.attention.projection_{word}",
                    ),
                )
            ),
            ("attn.proj", "attn.proj", "attention.output.dense"),
            ("mlp.fc1", "mlp.fc1", "intermediate.dense"),
            ("mlp.fc2", "mlp.fc2", "output.dense"),
            ("norm1", "norm1", "layernorm_before"),
            ("norm2", "norm2", "layernorm_after"),
        )
    },
    "norm": ("norm", "layernorm"),
    "head": ("head", "classifier"),
}


def under_published_names(weights, column):
    """The weights as the authors (0) or transformers (1) publish them, or as ours (None)."""
    if column is None:
        return weights
    names = {
        ours.format(i=i, j=j): published[column].format(i=i, j=j)
        for ours, published in PUBLISHED.items()
        for i in range(3)
        for j in range(3)
    }
    modules = [name if name in names else name.rpartition(".")[0] for name in weights]
    return {
        names[module] + name.removeprefix(module): weight
        for module, (name, weight) in zip(modules, weights.items(), strict=True)
    }


@pytest.mark.parametrize("column", [0, 1, None])
@pytest.mark.parametrize("name", ["cvt_13", "a_cvt_13"])
def test_published_weights_load_by_their_own_names(name, column, tmp_path):
    sizes = {
        "embed_dims": (8, 12, 16),
        "depths": (1, 2, 3),
        "num_heads": (1, 1, 2),
        "img_size": 32,
        "num_classes": 5,
    }
    torch.manual_seed(0)
    source = CvT(**sizes).eval()
    for parameter in source.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    published = under_published_names(source.state_dict(), column)
    torch.save(published, tmp_path / "published.pth")
    overlay = {"file": str(tmp_path / "published.pth"), "num_classes": 5}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **sizes).eval()
    expected = make_shift_equivariant(source) if name == "a_cvt_13" else source
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(model(images), expected(images))
