"""Conversion, against the forward pass of the published models written out on their own layout."""

import math
import re

import pytest
import timm
import torch
from timm.models import save_for_hf
from torch.nn import functional

from vitrail.errors import VitrailError
from vitrail.octic.checkpoint import load_published, to_published
from vitrail.octic.flip import FlipVisionTransformer
from vitrail.octic.group import ELEMENTS, FOURIER, INVERSE_FOURIER, irrep, isotypic, transform
from vitrail.octic.vit import OcticVisionTransformer

LINES = ("A1", "A2", "B1", "B2")
C, HEADS, PATCH, GRID, CLASSES, DEPTH = 32, 2, 4, 4, 5, 2
ARGUMENTS = {
    "img_size": GRID * PATCH,
    "patch_size": PATCH,
    "embed_dim": C,
    "depth": DEPTH,
    "num_heads": HEADS,
    "num_classes": CLASSES,
    "norm": "published",
}
# Appendix D's polynomials in the order of the authors' code: "46+57" is x4 x6 + x5 x7.
CUBICS = "367 356+347 345 266-277 246-257 244-255 156-147 123"
POLYNOMIALS = {
    "triple_correlation": f"000 066+077 046+057 044+055 033 022 011 {CUBICS}".split(),
    "polynomial": (
        f"0 66+77 46+57 44+55 33 22 11 {CUBICS} "
        "6666+7777 4666+5777 4466+5577 4446+5557 4444+5555 2356-2347 1366-1377 1346-1357 "
        "1344-1355 1267 1256+1247 1245 "
        "16667-16777 15666-14777 14566-14577 14456-14557 14445-14555"
    ).split(),
}
WIDTHS = {  # in eighths of C
    "linear_absolute": 1,
    "power_spectrum": 6,
    "triple_correlation": 15,
    "polynomial": 32,
    "max_filtering": 16,
    "canonisation": 8,
}
MODELS = [("h8", "power_spectrum"), *((family, name) for family in ("i8", "d8") for name in WIDTHS)]


def published_shapes(family, invariant):
    """Return the shapes of a published DeiT III model, of one octic and one standard block."""
    c, q = C // 8, PATCH // 2
    shapes = {f"cls_token.{i}": (1, 1, c) for i in range(4)} | {"cls_token.4": (1, 1, 2, 2 * c)}
    shapes |= {f"pos_embed.{i}": (GRID // 2, GRID // 2, c) for i in range(6)}
    for bank in (*LINES, "E_left", "E_right"):
        shapes[f"patch_embed.lift8.conv_{bank}.weight"] = (c, 3, q, q)
    shapes["patch_embed.lift8.conv_A1.bias"] = (c,)

    def scales(name):
        return {f"{name}.alpha_{i}": (c,) for i in LINES} | {f"{name}.alpha_E": (2 * c,)}

    layers = {"attn.qkv": (3 * C, C), "attn.proj": (C, C), "mlp.fc1": (4 * C, C)}
    layers["mlp.fc2"] = (C, 4 * C)
    octic_blocks = DEPTH if family == "d8" else DEPTH // 2
    for index in range(DEPTH):
        block = f"blocks.{index}"
        if index < octic_blocks:
            for norm in ("norm1", "norm2"):
                shapes |= scales(f"{block}.{norm}.scaling")
                shapes[f"{block}.{norm}.scaling.beta"] = (c,)
            shapes |= scales(f"{block}.gamma_1") | scales(f"{block}.gamma_2")
            for layer, (rows, columns) in layers.items():
                for i in LINES:
                    shapes[f"{block}.{layer}.lin_{i}.weight"] = (rows // 8, columns // 8)
                shapes[f"{block}.{layer}.lin_A1.bias"] = (rows // 8,)
                shapes[f"{block}.{layer}.lin_E.weight"] = (rows // 4, columns // 4)
        else:
            shapes |= {f"{block}.norm{i}.{last}": (C,) for i in "12" for last in ("weight", "bias")}
            shapes |= {f"{block}.gamma_{i}": (C,) for i in "12"}
            for layer, (rows, columns) in layers.items():
                shapes |= {f"{block}.{layer}.weight": (rows, columns)}
                shapes |= {f"{block}.{layer}.bias": (rows,)}
    if family == "d8":
        shapes |= scales("norm.scaling") | {"norm.scaling.beta": (c,)}
        shapes |= {"head.1.weight": (C, WIDTHS[invariant] * c), "head.1.bias": (C,)}
        shapes |= {"head.3.weight": (CLASSES, C), "head.3.bias": (CLASSES,)}
    else:
        shapes |= {"norm.weight": (C,), "norm.bias": (C,)}
        shapes |= {"head.weight": (CLASSES, C), "head.bias": (CLASSES,)}
    if family == "i8":
        shapes |= {"invariant_proj.weight": (C, WIDTHS[invariant] * c), "invariant_proj.bias": (C,)}
    references = {
        "max_filtering": ("references", (2 * C, c, 8)),
        "canonisation": ("reference", (C,)),
    }
    if family != "h8" and invariant in references:
        name, shape = references[invariant]
        shapes[f"invariantization.{name}"] = shape
        shapes |= {f"invariantization.{i}_action": (8, 8) for i in ("rotation", "reflection")}
    return shapes


def published_state(family, invariant="power_spectrum"):
    state = {
        name: torch.randn(shape, dtype=torch.float64) * 0.5
        for name, shape in published_shapes(family, invariant).items()
    }
    if "invariantization.rotation_action" in state:
        state["invariantization.rotation_action"] = isotypic("r")
        state["invariantization.reflection_action"] = isotypic("m")
    return state | {
        f"cls_token.{i}": torch.zeros_like(state[f"cls_token.{i}"]) for i in (1, 2, 3, 4)
    }


class Published:
    """Features are (A1, A2, B1, B2, E): ``(B, N, c)`` four times and ``(B, N, 2, 2c)``."""

    def __init__(self, state):
        self.state = state

    def linear(self, name, xs):
        weights = [self.state[f"{name}.lin_{i}.weight"] for i in (*LINES, "E")]
        ys = [functional.linear(x, weight) for x, weight in zip(xs, weights, strict=True)]
        ys[0] = ys[0] + self.state[f"{name}.lin_A1.bias"]
        return ys

    def scale(self, name, xs):
        return [x * self.state[f"{name}.alpha_{i}"] for i, x in zip((*LINES, "E"), xs, strict=True)]

    def norm(self, name, xs):
        variances = [x.var(-1, unbiased=False, keepdim=True) for x in xs]
        total = sum(variances[:4]) + variances[4].mean(-2) + 1e-5
        std = (total / 8).sqrt()
        centred = [x - x.mean(-1, keepdim=True) for x in xs]
        ys = [x / std for x in centred[:4]] + [centred[4] / std.unsqueeze(-1)]
        ys = self.scale(f"{name}.scaling", ys)
        ys[0] = ys[0] + self.state[f"{name}.scaling.beta"]
        return ys

    def attention(self, name, xs):
        batch, tokens, c = xs[0].shape
        qkv = self.linear(f"{name}.qkv", xs)
        lines = [x.view(batch, tokens, 3, HEADS, -1) for x in qkv[:4]]
        pairs = qkv[4].view(batch, tokens, 2, 3, HEADS, -1)
        heads = torch.cat([*lines, pairs[:, :, 0], pairs[:, :, 1]], dim=-1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(C // HEADS)).softmax(-1)
        y = (weights @ v).transpose(1, 2)  # (B, N, H, [A1 | A2 | B1 | B2 | E row 0 | E row 1])
        width = c // HEADS
        parts = y.split([width] * 4 + [2 * width] * 2, dim=-1)
        lines = [part.reshape(batch, tokens, -1) for part in parts[:4]]
        pairs = torch.stack([part.reshape(batch, tokens, -1) for part in parts[4:]], dim=2)
        return self.linear(f"{name}.proj", [*lines, pairs])

    def mlp(self, name, xs):
        planes = torch.stack(planes_of(self.linear(f"{name}.fc1", xs)))
        regular = torch.einsum("ij,j...->i...", INVERSE_FOURIER, planes)
        planes = torch.einsum("ij,j...->i...", FOURIER, functional.gelu(regular))
        return self.linear(f"{name}.fc2", features_of(planes))

    def octic_block(self, name, xs):
        for index, branch in (("1", self.attention), ("2", self.mlp)):
            layer = "attn" if index == "1" else "mlp"
            ys = branch(f"{name}.{layer}", self.norm(f"{name}.norm{index}", xs))
            ys = self.scale(f"{name}.gamma_{index}", ys)
            xs = [x + y for x, y in zip(xs, ys, strict=True)]
        return xs

    def dense(self, name, x):
        return functional.linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def dense_norm(self, name, x):
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return functional.layer_norm(x, (C,), weight, bias, eps=1e-6)

    def dense_block(self, name, x):
        y = self.dense_norm(f"{name}.norm1", x)
        qkv = self.dense(f"{name}.attn.qkv", y).unflatten(-1, (3, HEADS, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = (q @ k.mT / math.sqrt(C // HEADS)).softmax(-1) @ v
        y = self.dense(f"{name}.attn.proj", y.transpose(1, 2).flatten(2))
        x = x + self.state[f"{name}.gamma_1"] * y
        y = functional.gelu(self.dense(f"{name}.mlp.fc1", self.dense_norm(f"{name}.norm2", x)))
        return x + self.state[f"{name}.gamma_2"] * self.dense(f"{name}.mlp.fc2", y)

    def embed(self, images):
        quarters = [
            self.state[f"patch_embed.lift8.conv_{i}.weight"] for i in (*LINES, "E_left", "E_right")
        ]
        filters = torch.stack(unfold(quarters))
        filters[:4] *= math.sqrt(2) / 4
        filters[4:] /= 2
        planes = [functional.conv2d(images, weight, stride=PATCH) for weight in filters]
        planes[0] = planes[0] + self.state["patch_embed.lift8.conv_A1.bias"].view(-1, 1, 1)
        positions = unfold([self.state[f"pos_embed.{i}"].permute(2, 0, 1) for i in range(6)])
        planes = [x + p for x, p in zip(planes, positions, strict=True)]
        xs = features_of([x.flatten(2).mT for x in planes])
        tokens = [
            self.state[f"cls_token.{i}"].expand(len(images), -1, *[-1] * (x.ndim - 2))
            for i, x in enumerate(xs)
        ]
        return [torch.cat([token, x], dim=1) for token, x in zip(tokens, xs, strict=True)]

    def invariants(self, name, xs):
        planes = planes_of(xs)
        if name == "linear_absolute":
            return xs[0].abs()
        if name == "power_spectrum":
            return torch.cat([xs[0], *(x.abs() for x in xs[1:4]), xs[4].norm(dim=-2)], dim=-1)
        if name in POLYNOMIALS:
            return torch.cat([polynomial(terms, planes) for terms in POLYNOMIALS[name]], dim=-1)
        tokens = torch.stack(planes, dim=-1)  # (B, N, c, 8)
        images = torch.stack([tokens @ isotypic(g).T for g in ELEMENTS], dim=2)
        if name == "max_filtering":
            references = self.state["invariantization.references"]
            return torch.einsum("bngcj,rcj->bngr", images, references).amax(2)
        images = images.mT.flatten(-2)
        chosen = (images @ self.state["invariantization.reference"]).argmax(2)
        return images.take_along_dim(chosen[..., None, None], dim=2).squeeze(2)

    def __call__(self, images, family, invariant):
        xs = self.embed(images)
        for index in range(DEPTH if family == "d8" else DEPTH // 2):
            xs = self.octic_block(f"blocks.{index}", xs)
        if family == "d8":
            x = self.invariants(invariant, self.norm("norm", xs))[:, 0]
            return self.dense("head.3", functional.gelu(self.dense("head.1", x)))
        if family == "i8":
            x = self.dense("invariant_proj", self.invariants(invariant, xs))
        else:
            x = torch.cat(planes_of(xs), dim=-1)
        for index in range(DEPTH // 2, DEPTH):
            x = self.dense_block(f"blocks.{index}", x)
        return self.dense("head", self.dense_norm("norm", x)[:, 0])


def planes_of(xs):
    copy_1, copy_2 = xs[4].chunk(2, dim=-1)
    return [*xs[:4], *copy_1.unbind(-2), *copy_2.unbind(-2)]


def features_of(planes):
    rows = [torch.cat([planes[4 + row], planes[6 + row]], dim=-1) for row in (0, 1)]
    return [*planes[:4], torch.stack(rows, dim=-2)]


def unfold(quarters):
    """Sum the images of each quarter in the corner of its grid, weighed by the irrep."""
    side = quarters[0].shape[-1]
    corners = [functional.pad(quarter, (0, side, 0, side)) for quarter in quarters]
    planes = []
    for name, corner in zip((*LINES, "E", "E"), corners, strict=True):
        planes.append(sum(irrep(name, g)[0, 0] * transform(corner, g) for g in ELEMENTS))
        if name == "E":
            planes.append(planes[-1].rot90(1, (-2, -1)))
    return planes


def polynomial(terms, x):
    """Sum the monomials of "345" or "46-57"; a digit is the index of a plane."""
    first, sign, second = re.fullmatch(r"(\d+)(?:([+-])(\d+))?", terms).groups()
    y = math.prod(x[int(index)] for index in first)
    return y + int(f"{sign}1") * math.prod(x[int(index)] for index in second) if second else y


@pytest.mark.parametrize(("family", "invariant"), MODELS)
def test_a_converted_model_gives_the_published_logits_and_its_weights_back(family, invariant):
    state = published_state(family, invariant)
    model = OcticVisionTransformer(family, **ARGUMENTS, invariant=invariant).double().eval()
    load_published(model, state)
    images = torch.randn(3, 3, GRID * PATCH, GRID * PATCH, dtype=torch.float64)
    logits = Published(state)(images, family, invariant)
    assert logits.std() > 0.1
    torch.testing.assert_close(model(images), logits, rtol=1e-12, atol=1e-12)
    back = to_published(model)
    assert back.keys() == state.keys()
    for name, value in state.items():
        assert torch.equal(back[name], value), name


def test_a_published_model_without_a_class_token_is_converted():
    """The authors' code builds one with global_pool."""
    state = published_state("d8", "canonisation")
    state = {name: value for name, value in state.items() if not name.startswith("cls_token")}
    arguments = {**ARGUMENTS, "class_token": False, "global_pool": "avg"}
    model = OcticVisionTransformer("d8", **arguments, invariant="canonisation").double()
    load_published(model, state)
    back = to_published(model)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_names_of_the_dinov2_models_are_known():
    state = published_state("h8")
    dinov2 = {}
    for name, value in state.items():
        name = name.replace(".gamma_1.", ".ls1.").replace(".gamma_2.", ".ls2.")
        name = name.removesuffix("gamma_1") + "ls1.gamma" if name.endswith("gamma_1") else name
        name = name.removesuffix("gamma_2") + "ls2.gamma" if name.endswith("gamma_2") else name
        dinov2[name] = value
    dinov2 |= {f"mask_token.{i}": torch.zeros(1, C // 8) for i in range(8)}
    dinov2["mask_token.0"] += 3
    model = OcticVisionTransformer("h8", **ARGUMENTS, mask_token=True).double()
    load_published(model, dinov2)
    assert (model.mask_token == 3).all()
    deit = OcticVisionTransformer("h8", **ARGUMENTS).double()
    load_published(deit, state)
    for name, parameter in deit.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))


def same_weights(model, other):
    return all(
        torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items()
    )


@pytest.mark.parametrize("family", ["h8", "i8", "d8"])
def test_the_authors_tag_gives_the_published_norm_also_from_a_hub_folder(family, tmp_path):
    """Without `norm`, which no file of weights keeps."""
    sizes = {name: value for name, value in ARGUMENTS.items() if name != "norm"}
    name = f"octic_{family}_vit_small_patch16_224.authors"
    file, state = tmp_path / "published.pth", published_state(family)
    torch.save({"model": state}, file)
    overlay = {"file": str(file), "num_classes": CLASSES}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **sizes)
    expected = OcticVisionTransformer(family, **ARGUMENTS).eval()
    load_published(expected, state)
    images = torch.rand(2, 3, GRID * PATCH, GRID * PATCH)
    logits = expected(images)
    assert torch.equal(model.eval()(images), logits)
    save_for_hf(model, tmp_path / "hub", model_args=sizes)
    again = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True).eval()
    assert torch.equal(again(images), logits)
    explicit = timm.create_model(name, norm="total", **sizes)
    assert explicit.blocks[0].norm1.convention == "total"


@pytest.mark.parametrize("family", ["h8", "i8", "d8"])
def test_timm_takes_published_weights_as_it_takes_ours(family):
    name, state = f"octic_{family}_vit_small_patch16_224", published_state(family)
    overlay = {"state_dict": state, "num_classes": CLASSES}
    model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **ARGUMENTS)
    expected = OcticVisionTransformer(family, **ARGUMENTS)
    load_published(expected, state)
    assert same_weights(model, expected)
    wider = {**ARGUMENTS, "embed_dim": 2 * C}
    with pytest.raises(VitrailError, match="build the model with the published one's arguments"):
        timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **wider)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "epoch": 3, "optimizer": {"state": {}}},
        lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}},
        lambda state: {"model": {f"_orig_mod.{name}": value for name, value in state.items()}},
        lambda state: {
            "teacher": {f"backbone.{name}": value for name, value in state.items()}
            | {"dino_head.last_layer.weight_v": torch.zeros(3)}
        },
    ],
    ids=["model", "DDP", "compiled", "teacher"],
)
def test_files_of_trainings_load(wrap):
    state = published_state("i8")
    model, expected = (OcticVisionTransformer("i8", **ARGUMENTS).double() for _ in range(2))
    load_published(expected, state)
    load_published(model, wrap(state))
    assert same_weights(model, expected)


def test_what_dinov2_calls_d8_is_an_i8_of_octic_blocks():
    model, expected = (
        OcticVisionTransformer("i8", **ARGUMENTS, octic_depth=DEPTH, invariant="canonisation")
        for _ in range(2)
    )
    state = to_published(expected)
    names = {"norm.": "standard_norm.", "invariantization.": "invariant."}
    for ours, theirs in names.items():
        own = [name for name in state if name.startswith(ours)]
        state |= {theirs + name.removeprefix(ours): state.pop(name) for name in own}
    state["norm.scaling.beta"] = torch.zeros(C // 8)  # of a norm that it does not apply
    load_published(model, state)
    assert same_weights(model, expected)


def test_weights_of_another_model_are_refused_in_a_sentence():
    state = published_state("i8")
    with pytest.raises(VitrailError, match=r"has 'invariant_proj.bias', which the model lacks"):
        load_published(OcticVisionTransformer("h8", **ARGUMENTS), state)
    with pytest.raises(VitrailError, match=r"takes 'blocks.1.norm1.scaling.alpha_A1' .* lacks it"):
        load_published(OcticVisionTransformer("d8", **ARGUMENTS), state)
    with pytest.raises(VitrailError, match=r"'head.weight' of shape \(7, 32\) .* has \(5, 32\)"):
        load_published(OcticVisionTransformer("i8", **{**ARGUMENTS, "num_classes": 7}), state)
    name = "blocks.0.mlp.fc1.lin_A1.weight"
    turned = {**state, name: state[name].T}
    with pytest.raises(VitrailError, match=r"takes 'blocks.0.mlp.fc1.lin_A1.weight' of shape"):
        load_published(OcticVisionTransformer("i8", **ARGUMENTS), turned)
    with pytest.raises(VitrailError, match=r"'blocks.0.gamma_1.alpha_A1', which the model lacks"):
        load_published(OcticVisionTransformer("i8", **{**ARGUMENTS, "init_values": 0}), state)
    other = {**state, "cls_token.1": torch.ones_like(state["cls_token.1"])}
    with pytest.raises(VitrailError, match=r"'cls_token\.1' of the state dict is not zero"):
        load_published(OcticVisionTransformer("i8", **ARGUMENTS), other)
    with pytest.raises(VitrailError, match="the tag 'authors'"):
        load_published(OcticVisionTransformer("i8", **{**ARGUMENTS, "norm": "total"}), state)
    state = published_state("i8", "max_filtering")
    other = {**state, "invariantization.rotation_action": torch.eye(8)}
    with pytest.raises(VitrailError, match=r"'invariantization.rotation_action' .* no matrix of"):
        load_published(OcticVisionTransformer("i8", **ARGUMENTS, invariant="max_filtering"), other)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"epoch": 3, "student": {}}, "'epoch' is no tensor"),
        ({"model": {"weights": {}}}, "'weights' is no tensor"),
        ({}, "it has no named tensors"),
        ([torch.zeros(3)], "it has no named tensors"),
    ],
)
def test_a_file_without_a_state_dict_is_refused_in_a_sentence(state, found):
    message = f"no state dict of a published model, {found}; give one, .* model or state_dict"
    with pytest.raises(VitrailError, match=message):
        load_published(OcticVisionTransformer("h8", **ARGUMENTS), state)


def test_other_models_are_refused_in_a_sentence():
    arguments = {name: value for name, value in ARGUMENTS.items() if name != "norm"}
    free = OcticVisionTransformer("h8", **ARGUMENTS, arbitrary_patches=True)
    for model in (torch.nn.Linear(3, 3), FlipVisionTransformer("h2", **arguments), free):
        for convert in (to_published, lambda model: load_published(model, published_state("h8"))):
            with pytest.raises(VitrailError, match="have a published layout; build an Octic"):
                convert(model)
