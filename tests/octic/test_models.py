import math

import pytest
import timm
import torch

import vitrine.models  # noqa: F401
from vitrine.octic.invariants import invariance_error

H, L = "huge_patch14_224", "large_patch16_224"
MICRO = {"img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 4, "num_heads": 2}


def millions(name, **kwargs):
    with torch.device("meta"):
        model = timm.create_model(name, **kwargs)
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


@pytest.mark.parametrize(
    ("name", "kwargs", "printed"),
    [
        (f"deit3_{H}", {}, 632.1),
        (f"deit3_{L}", {}, 304.4),
        (f"h2_vit_{H}", {}, 474.2),
        (f"h2_vit_{L}", {}, 228.3),
        (f"octic_i8_vit_{H}", {"invariant": "polynomial"}, 362.33),
        (f"octic_i8_vit_{H}", {}, 357.01),
        (f"octic_i8_vit_{L}", {"invariant": "polynomial"}, 175.5),
        (f"octic_i8_vit_{L}", {}, 172.11),
        (f"octic_h8_vit_{H}", {}, 355.8),
        (f"octic_h8_vit_{L}", {}, 171.3),
        (f"d2_vit_{H}", {}, 316.1),
        (f"d2_vit_{L}", {}, 152.2),
        (f"octic_d8_vit_{H}", {"invariant": "linear"}, 80.51),
        (f"octic_d8_vit_{H}", {}, 81.54),
        (f"octic_d8_vit_{L}", {"invariant": "linear"}, 39.2),
    ],
)
def test_models_have_the_printed_number_of_parameters(name, kwargs, printed):
    digits = max(1, len(str(printed).partition(".")[2]))
    assert round(millions(name, **kwargs), digits) == printed


@pytest.mark.parametrize(
    ("size", "width", "depth", "heads", "hidden"),
    [
        ("gigantic", 1664, 48, 16, 8192),
        ("e", 1792, 56, 16, 15360),
        ("22b", 6144, 36, 48, 24576),
    ],
)
def test_the_widest_shapes_are_those_of_table_1(size, width, depth, heads, hidden):
    with torch.device("meta"):
        octic = timm.create_model(f"octic_d8_vit_{size}_patch16_224", depth=1)
        plain = timm.create_model(f"vit_{size}_patch16_224", depth=1)
        assert len(timm.create_model(f"octic_d8_vit_{size}_patch16_224").blocks) == depth
    for model in (octic, plain):
        assert model.embed_dim == width
        assert model.blocks[0].attn.num_heads == heads
    assert octic.blocks[0].mlp.fc1.out_features == plain.blocks[0].mlp.fc1.out_features == hidden


@pytest.mark.parametrize("family", ["octic_d8", "octic_h8", "octic_i8", "d2", "h2"])
def test_a_micro_model_learns_from_a_step(family):
    name = f"{family}_vit_small_patch16_224"
    model = timm.create_model(name, num_classes=10, drop_path_rate=0.1, init_std=0.1, **MICRO)
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(10), rel=0.3)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", ["d8", "i8"])
@pytest.mark.parametrize("dim", [32, 64])
def test_a_micro_model_is_invariant_as_created(family, dim):
    kwargs = {**MICRO, "embed_dim": dim, "num_heads": dim // 16, "init_values": 0.1}
    model = timm.create_model(f"octic_{family}_vit_small_patch16_224", init_std=0.1, **kwargs)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert invariance_error(model.double(), images) < 1e-12


def test_every_name_is_registered():
    sizes = ["small_patch16", "base_patch16", "large_patch16", "huge_patch14", "huge_patch16"]
    for family in ("octic_d8", "octic_h8", "octic_i8", "d2", "h2"):
        for size in sizes:
            assert timm.is_model(f"{family}_vit_{size}_224")


def test_a_models_configuration_names_its_classifier():
    with torch.device("meta"):
        model = timm.create_model(f"octic_d8_vit_{L}")
    assert model.default_cfg["classifier"] == "head"
    assert model.default_cfg["input_size"] == (3, 224, 224)
    assert model.get_parameter(f"{model.default_cfg['first_conv']}.weight").shape[2] == 3
