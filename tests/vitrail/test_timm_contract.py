"""timm's contract, by the patterns of its own tests: every cell of the table in docs/timm.md."""

import copy
import re
import tempfile
from pathlib import Path

import pytest
import timm
import torch
from timm.models import get_notrace_functions, get_notrace_modules, save_for_hf
from timm.models._manipulate import group_parameters, reinit_non_persistent_buffers
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

import vitrail.models  # noqa: F401
from tests.exporting import exported
from tests.vitrail.test_models import registered
from vitrail.errors import VitrailError
from vitrail.position.embeddings import EMBEDDINGS
from vitrail.shift.adaptive_mvitv2 import _resized_circle
from vitrail.shift.conversion import make_shift_equivariant

DOCS = Path(__file__).parents[2] / "docs" / "timm.md"
SIDE, LARGER, CLASSES = 16, 32, 5

SWIN = {"patch_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}
CVT = {
    "embed_dims": (8, 12),
    "depths": (1, 2),
    "num_heads": (1, 2),
    "kernels": (3, 3),
    "strides": (2, 2),
    "kv_strides": (2, 2),
}
MVIT = {
    "embed_dim": 8,
    "depths": (1, 1),
    "patch_kernel": (3, 3),
    "patch_stride": (2, 2),
    "patch_padding": (1, 1),
}
VIT = {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}
STEERABLE = {**VIT, "embed_dim": 32, "init_std": 0.1, "mlp_ratio": 2.0}
SIZES = {  # by how a name begins
    "a_swin": SWIN,
    "harmonic_swin": SWIN,
    "polyphase_swin": SWIN,
    "cvt": CVT,
    "a_cvt": CVT,
    "mvitv2": MVIT,
    "a_mvitv2": MVIT,
    "octic": STEERABLE,
    "d2": STEERABLE,
    "h2": STEERABLE,
    "": VIT,
}
FAMILIES = {
    "A-Swin": "a_swin_tiny_patch4_window7_224",
    "A-SwinV2": "a_swinv2_tiny_window8_256",
    "polyphase Swin": "polyphase_swin_tiny_patch4_window7_224",
    "CvT": "cvt_13",
    "A-CvT": "a_cvt_13",
    "A-MViTv2": "a_mvitv2_tiny",
    "MViTv2 circular": "mvitv2_tiny_circular",
    "MViTv2 zeros": "mvitv2_tiny_zeros",
    "D8": "octic_d8_vit_small_patch16_224",
    "H8": "octic_h8_vit_small_patch16_224",
    "I8": "octic_i8_vit_small_patch16_224",
    "D2": "d2_vit_small_patch16_224",
    "H2": "h2_vit_small_patch16_224",
    "ViT": "vit_huge_patch16_224",
    "masked ViT": "masked_vit_large_patch16_224",
    "canonical ViT": "canonical_vit_small_patch16_224",
    "harmonic ViT": "harmonic_vit_small_patch16_224",
    "harmonic Swin": "harmonic_swin_tiny_patch4_window7_224",
    "position ViT": "position_vit",
}
CONVERTED = {
    "A-Swin": ("a_swin_base_patch4_window12_384", "a_swin_s3_base_224"),
    "A-SwinV2": ("a_swinv2_base_window12to24_192to384",),
    "A-MViTv2": ("a_mvitv2_small", "a_mvitv2_large"),
}
"""More names of some families: of other windows, of windows trained at another size, of heads."""
OF_TIMMS_BLOCKS = ("ViT", "canonical ViT", "harmonic ViT")
# In shift/test_conversion.py and octic/test_models.py.
EXPORTED_ELSEWHERE = ("a_", "octic", "d2", "h2")


def micro(name, **options):
    torch.manual_seed(0)
    size = next(size for start, size in SIZES.items() if name.startswith(start))
    options = {"num_classes": CLASSES, "img_size": SIDE, **size, **options}
    return timm.create_model(name, **options).eval()


def with_weights_of(model, name, **options):
    """A model of another size or of other channels with these weights, as timm adapts them."""
    overlay = {"state_dict": model.state_dict(), "num_classes": CLASSES}
    return micro(name, pretrained=True, pretrained_cfg_overlay=overlay, **options)


def noise(height=SIDE, width=SIDE, channels=3):
    return torch.randn(2, channels, height, width)


def tensors(model):
    return [*model.parameters(), *model.buffers()]


def unlearned(model):
    return [name for name, parameter in model.named_parameters() if parameter.grad is None]


def forward(name):
    model, x = micro(name), noise()
    logits = model(x)
    assert logits.shape == (2, CLASSES)
    assert not logits.isnan().any()
    assert torch.equal(model.forward_head(model.forward_features(x)), logits)


def backward(name):
    model = micro(name).train()
    model(noise()).square().sum().backward()
    assert unlearned(model) == []


def factory(name):
    """A model is made where and in the precision asked for; without memory, weights complete it."""
    model, x, double = micro(name, dtype=torch.float64), noise().double(), {torch.float64}
    made = [micro(name, device="meta", dtype=torch.float64)]
    with torch.device("meta"):
        if torch.get_default_device().type == "meta":  # torch 2.6 does not tell the context's
            made.append(micro(name, dtype=torch.float64))
    for empty in made:
        assert {tensor.device.type for tensor in tensors(empty)} == {"meta"}
        assert {tensor.dtype for tensor in empty.parameters()} == double
        assert empty(x.to("meta")).dtype == torch.float64
        empty = empty.to_empty(device="cpu").eval()
        for tensor in tensors(empty):
            tensor.data.fill_(7)  # what memory held before
        empty.load_state_dict(model.state_dict())
        reinit_non_persistent_buffers(empty)
        assert torch.equal(empty(x), model(x))


def default_cfg(name):
    model = micro(name)
    cfg, parameters = model.default_cfg, dict(model.named_parameters())
    assert cfg["architecture"] == name
    assert f"{cfg['first_conv']}.weight" in parameters
    assert parameters[f"{cfg['classifier']}.weight"] is model.get_classifier().weight


def classifier(name):
    model, x = micro(name), noise()
    pooled = model.forward_head(model.forward_features(x), pre_logits=True)
    assert pooled.shape == micro(name, num_classes=0)(x).shape == (2, model.head_hidden_size)
    model.reset_classifier(0)
    assert torch.equal(model(x), pooled)
    model.reset_classifier(3)
    assert model(x).shape == (2, 3)


def widths(name):
    model, x = micro(name), noise()
    tokens = model.forward_features(x)
    assert tokens.shape[-1] == model.num_features
    assert model.forward_head(tokens, pre_logits=True).shape[-1] == model.head_hidden_size


def pool_size(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    cfg, reduction = model.default_cfg, model.feature_info[-1]["reduction"]
    assert cfg["pool_size"] == tuple(side // reduction for side in cfg["input_size"][1:])


def drop_path(name):
    """Equal images differ in training, where a branch is left out of some of them alone."""
    model = micro(name, drop_path_rate=0.5, drop_rate=0.0).double()
    for parameter in model.parameters():  # SwinV2's branches begin as zero
        parameter.data += 0.1 * (parameter.ndim == 1)
    same = noise()[:1].expand(32, -1, -1, -1).double()
    for training in (True, False):
        logits = model.train(training)(same)
        assert ((logits - logits[0]).abs().max() > 1e-9) == training


def channels_last(name):
    model, x = micro(name), noise()
    expected = model(x)
    model.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


def pooling(name):
    model, x = micro(name, num_classes=0, global_pool=""), noise()
    unpooled = model(x)
    assert unpooled.ndim >= 3
    model.reset_classifier(3, "avg")
    assert model(x).shape == (2, 3)
    model.reset_classifier(0, "")
    assert torch.equal(model(x), unpooled)


def intermediates(name):
    model, x = micro(name), noise()
    final, maps = model.forward_intermediates(x)
    assert torch.equal(final, model.forward_features(x))
    for info, grid in zip(model.feature_info, maps, strict=True):
        side = SIDE // info["reduction"]
        assert grid.shape == (2, info["num_chs"], side, side)
    tokens = model.forward_intermediates(x, output_fmt="NLC", intermediates_only=True)
    for grid, flat in zip(maps, tokens, strict=True):
        assert torch.equal(grid.flatten(2).mT, flat)
    (first,) = model.forward_intermediates(x, [0], stop_early=True, intermediates_only=True)
    assert torch.equal(first, maps[0])


def features(name):
    x, model = noise(), micro(name, features_only=True, out_indices=(0, 1))
    maps = micro(name).forward_intermediates(x, intermediates_only=True)
    assert all(map(torch.equal, maps, model(x)))
    assert [grid.shape[1] for grid in maps] == model.feature_info.channels()
    model.train()
    sum(grid.square().sum() for grid in model(x)).backward()
    assert unlearned(model) == []
    assert len(micro(name, features_only=True)(x)) == 2


def pruning(name):
    x, model = noise(), micro(name)
    assert model.prune_intermediate_layers([0]) == [0]
    (expected,) = micro(name).forward_intermediates(x, [0], intermediates_only=True)
    _, (grid,) = model.forward_intermediates(x)
    assert torch.equal(grid, expected)


def checkpointing(name):
    gradients = []
    for enable in (False, True):
        model = micro(name).train()
        model.set_grad_checkpointing(enable)
        torch.manual_seed(1)
        model(noise()).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *gradients))


def traced(name, training, **options):
    """A model's graph by timm's options, which ends where the model does."""
    tracer = {
        "leaf_modules": get_notrace_modules(),
        "autowrap_functions": get_notrace_functions(),
        "param_shapes_constant": True,
    }
    model = micro(name, drop_path_rate=0.1, **options).train(training)
    nodes = get_graph_node_names(model, tracer_kwargs=tracer)
    assert any(re.match(r"(stages|layers|blocks)\.0\b", node) for node in nodes[0])
    graph = create_feature_extractor(
        model,
        train_return_nodes={nodes[0][-1]: "logits"},
        eval_return_nodes={nodes[1][-1]: "logits"},
        tracer_kwargs=tracer,
    )
    return model, graph.train(training)


def fxforward(name):
    (model, graph), x = traced(name, training=False), noise()
    assert torch.equal(graph(x)["logits"], model(x))


def fxbackward(name):
    _, graph = traced(name, training=True)
    graph(noise())["logits"].square().sum().backward()
    assert unlearned(graph) == []


def groups(name):
    model = micro(name)
    layers = group_parameters(model, model.group_matcher(coarse=False))
    assert sum(map(len, layers.values())) == len(list(model.parameters()))


def input_size(name):
    model, x = micro(name), noise(LARGER, LARGER)
    resized = copy.deepcopy(model)
    # timm scales Swin's windows with the image; weights of these windows are to fit.
    resized.set_input_size(img_size=LARGER, **({"window_size": 4} if "swin" in name else {}))
    built = with_weights_of(model, name, img_size=LARGER)
    torch.testing.assert_close(built(x), resized(x), rtol=1e-4, atol=1e-5)
    comes_back(resized, x)


def other_size(name):
    model = micro(name)
    weights, larger = model.state_dict(), with_weights_of(model, name, img_size=LARGER)
    assert larger(noise(LARGER, LARGER)).shape == (2, CLASSES)
    for key, value in larger.state_dict().items():
        assert value.shape != weights[key].shape or torch.equal(value, weights[key])


def any_size(name):
    fixed = ("cvt", "a_cvt", "mvitv2", "a_mvitv2", "position")
    model = micro(name, **({} if name.startswith(fixed) else {"dynamic_img_size": True}))
    assert model(noise(LARGER, LARGER)).shape == (2, CLASSES)


def oblong(name):
    assert micro(name, img_size=(SIDE, LARGER))(noise(SIDE, LARGER)).shape == (2, CLASSES)


def channels(name):
    model, grey = micro(name), noise(channels=1)
    one = with_weights_of(model, name, in_chans=1)
    torch.testing.assert_close(one(grey), model(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)
    assert micro(name, in_chans=7)(noise(channels=7)).shape == (2, CLASSES)


def export(name):
    if name.startswith(EXPORTED_ELSEWHERE):
        return
    model, more = micro(name), torch.cat([noise(), noise()])
    torch.testing.assert_close(exported(model, noise()).module()(more), model(more))


def comes_back(model, x):
    """Save a model for a hub and make it anew from there."""
    with tempfile.TemporaryDirectory() as folder:
        save_for_hf(model, folder, safe_serialization=True)
        back = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    assert type(back) is type(model)
    assert back.default_cfg["architecture"] == model.default_cfg["architecture"]
    assert torch.equal(back(x), model(x))


def hub(name):
    for options in ({"in_chans": 1}, {"num_classes": 0, "global_pool": ""}, {"global_pool": "avg"}):
        comes_back(micro(name, **options), noise(channels=options.get("in_chans", 3)))


PROBES = (
    forward, backward, factory, default_cfg, widths, pool_size, classifier, pooling, intermediates,
    features, pruning, checkpointing, drop_path, channels_last, fxforward, fxbackward, groups,
    input_size, other_size, any_size, oblong, channels, export, hub,
)  # fmt: skip


def cells():
    """Each row's probe with each name of each family, and what the table says of the family."""
    text = DOCS.read_text(encoding="utf-8")
    header, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    refusals = dict(re.findall(r"^(\d)\. (.+)$", text, re.MULTILINE))
    columns = [cell.strip().split(", ") for cell in header.strip("|").split("|")[1:]]
    for probe, row in zip(PROBES, rows, strict=True):
        for families, cell in zip(columns, row.strip("|").split("|")[1:], strict=True):
            said = cell.strip()
            for family in families:
                for name in (FAMILIES[family], *CONVERTED.get(family, ())):
                    label = family if name == FAMILIES[family] else name
                    yield pytest.param(
                        *(probe, family, name, refusals.get(said, said)),
                        id=f"{probe.__name__}-{label}",
                    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("probe", "family", "name", "said"), list(cells()))
def test_the_table_says_what_models_do(probe, family, name, said):
    if probe in (fxforward, fxbackward) and torch.__version__ < "2.7" and family in OF_TIMMS_BLOCKS:
        pytest.skip("torch 2.6 traces no attention of timm's: is_causal would have to be a bool")
    if probe is export and torch.__version__ < "2.7" and family.startswith("harmonic"):
        pytest.skip("torch 2.6 exports no Fourier transform of a batch of any size")
    if said == "yes":
        probe(name)
    elif said == "no":
        with pytest.raises((AttributeError, AssertionError, IndexError)):
            probe(name)
    else:
        with pytest.raises(VitrailError) as refused:
            probe(name)
        assert re.fullmatch(re.escape(said).replace("…", r"[\w.]+"), str(refused.value))


def test_the_table_has_every_family():
    families = {cell.values[1] for cell in cells()}
    assert families == set(FAMILIES)
    kinds = {type(micro(name)) for name in registered()}
    assert kinds == {type(micro(name)) for name in FAMILIES.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registered()))
def test_every_registered_name_comes_back_from_a_hub(name):
    comes_back(micro(name), noise())


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_every_position_embedding_comes_back_from_a_hub(embedding):
    comes_back(micro("position_vit", embedding=embedding, class_token=True), noise())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((FAMILIES["A-Swin"], {"window_size": window, "img_size": 24}) for window in (3, 6)),
        (FAMILIES["A-Swin"], {"dynamic_img_size": True, "dynamic_img_pad": True}),
        (FAMILIES["A-SwinV2"], {}),
        (FAMILIES["A-CvT"], {}),
        (FAMILIES["A-MViTv2"], {}),
    ],
)
@pytest.mark.parametrize("selection", ["per_stage", "fixed"])
def test_a_traced_model_chooses_grids_for_each_image(name, options, selection):
    options = {**options, "selection": selection}
    (model, graph), side = traced(name, False, **options), options.get("img_size", SIDE)
    for _ in range(4):
        x = noise(side, side)
        assert torch.equal(graph(x)["logits"], model(x))


@pytest.mark.parametrize("family", ["A-Swin", "A-SwinV2", "A-CvT", "A-MViTv2"])
@pytest.mark.parametrize("selection", ["per_stage", "fixed"])
def test_an_adaptive_model_comes_back_with_its_selection(family, selection):
    comes_back(micro(FAMILIES[family], selection=selection), noise())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("swin_tiny_patch4_window7_224", SWIN),
        ("swinv2_tiny_window8_256", SWIN),
        ("cvt_13", CVT),
        ("cvt_13", {**CVT, "padding_mode": "circular"}),
        ("mvitv2_tiny_circular", MVIT),
        ("mvitv2_tiny_zeros", MVIT),
    ],
)
def test_a_converted_model_comes_back_adaptive(name, options):
    plain = timm.create_model(name, num_classes=CLASSES, img_size=SIDE, **options).eval()
    comes_back(make_shift_equivariant(plain, "per_stage"), noise())


def timms():
    """Every Swin, SwinV2 and MViTv2 of timm's that has no class token."""
    modules = ("swin_transformer", "swin_transformer_v2", "mvitv2")
    names = [name for module in modules for name in timm.list_models(module=module)]
    names = [name for name in names if name not in registered()]
    assert len(names) >= 29
    return [name for name in names if not name.endswith("_cls")]


@pytest.mark.slow
@pytest.mark.parametrize("name", timms())
def test_every_swin_and_mvitv2_of_timms_is_registered_adaptive(name):
    """At its full size, without memory; its weights are timm's."""
    with torch.device("meta"):
        plain, adaptive = timm.create_model(name), timm.create_model(f"a_{name}")
        _, *maps = timm.create_model(f"a_{name}", features_only=True)(
            torch.empty(1, *plain.default_cfg["input_size"])
        )
    assert type(adaptive) is type(make_shift_equivariant(plain))
    tables = [key for key in plain.state_dict() if "rel_pos_" in key]
    assert set(plain.state_dict()) == set(adaptive.state_dict()) - {"_extra_state"}
    for key, value in plain.state_dict().items():
        assert key in tables or adaptive.state_dict()[key].shape == value.shape
    cfg = {**plain.default_cfg, "architecture": f"a_{name}"}
    assert adaptive.default_cfg == cfg
    assert len(maps) == len(plain.feature_info) - 1


def test_a_converted_model_comes_back_under_a_name_of_timms(tmp_path):
    """With the same bits, from a local folder of the hub's format."""
    options = {"img_size": 48, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
    plain = timm.create_model("swin_base_patch4_window12_384", window_size=6, **options)
    model = make_shift_equivariant(plain.eval(), "per_stage")
    comes_back(model, noise(48, 48))
    assert model.default_cfg["architecture"] == "a_swin_base_patch4_window12_384"


@pytest.mark.parametrize("name", [n for f, n in FAMILIES.items() if f in ("D8", "H8", "D2", "H2")])
def test_a_resized_steerable_model_is_what_a_dynamic_one_computes(name):
    model, x = micro(name, dynamic_img_size=True).double(), noise(24, 24).double()
    expected = model(x)
    model.set_input_size(24)
    torch.testing.assert_close(model(x), expected)


def test_tables_of_a_circle_are_resized_around_it():
    angles = torch.arange(8) * torch.pi / 4
    wave = torch.stack([angles.cos(), angles.sin()], dim=1)
    halved = _resized_circle(wave, 4)
    torch.testing.assert_close(halved, wave[::2])
    torch.testing.assert_close(_resized_circle(wave, 16)[::2], wave)
    assert torch.equal(_resized_circle(wave.roll(1, 0), 16), _resized_circle(wave, 16).roll(2, 0))
