import copy
import math

import pytest
import timm
import torch
from timm.models._manipulate import reinit_non_persistent_buffers
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import vitrail.models  # noqa: F401
from tests.exporting import exported, in_onnx, needs_onnx_of_torch_2_7
from vitrail.octic.invariants import INVARIANTS, invariance_error

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
    ("name", "invariant", "printed"),
    [
        (f"octic_i8_vit_{H}", "polynomial", 362.3),
        (f"octic_i8_vit_{L}", "polynomial", 175.5),
        (f"octic_d8_vit_{H}", "linear", 80.5),
        (f"octic_d8_vit_{L}", "linear", 39.2),
    ],
)
def test_the_printed_parameters_leave_no_room_for_a_layer_more_behind_invariants(
    name, invariant, printed
):
    """The "small MLP" of octic, App. D, has one layer in I8 and, with the classifier, two in D8."""
    width = 1280 if H in name else 1024
    assert round(millions(name, invariant=invariant), 1) == printed
    for other in INVARIANTS:
        with_a_layer_more = millions(name, invariant=other) + (width**2 + width) / 1e6
        assert round(with_a_layer_more, 1) != printed, other


@pytest.mark.parametrize(
    ("size", "width", "depth", "heads", "hidden"),
    [
        ("gigantic", 1664, 48, 16, 8192),
        ("e", 1792, 56, 16, 15360),
        ("22b", 6144, 36, 48, 24576),
    ],
)
def test_the_widest_shapes_are_those_of_table_1(size, width, depth, heads, hidden):
    """octic, App. E.4."""
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


FAMILIES = ["octic_d8", "octic_h8", "octic_i8", "d2", "h2"]
with_families = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def micro(family, scrambled):
    """A block of the group's and, in H8, I8 and H2, an ordinary one."""
    depth = 1 if family in ("octic_d8", "d2") else 2
    kwargs = {**MICRO, "img_size": 16, "patch_size": 8, "depth": depth}
    return scrambled(timm.create_model(f"{family}_vit_small_patch16_224", **kwargs)).eval()


def noise(batch=2):
    return torch.randn(batch, 3, 16, 16, dtype=torch.float64)


@with_families
@pytest.mark.parametrize("gradients", [True, False])
def test_a_forward_derivative_is_the_slope(micro, gradients):
    x, direction, step = noise(), noise(), 1e-6
    with torch.set_grad_enabled(gradients), sdpa_kernel(SDPBackend.MATH):
        logits, derivative = torch.func.jvp(micro, (x,), (direction,))
        slope = (micro(x + step * direction) - micro(x - step * direction)) / (2 * step)
    torch.testing.assert_close(logits, micro(x))
    torch.testing.assert_close(derivative, slope, rtol=1e-6, atol=1e-6)
    assert derivative.abs().max() > 0.01


@with_families
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's, of its own attention
def test_gradients_of_single_images_are_those_of_batches_of_one(micro):
    def loss(parameters, image):
        return torch.func.functional_call(micro, parameters, image[None]).square().sum()

    x, parameters = noise(), dict(micro.named_parameters())
    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    micro(x[1:]).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(gradients[name][1], parameter.grad)


@with_families
def test_in_channels_last_a_model_has_the_same_logits_weights_and_gradients(micro):
    x, other = noise(), copy.deepcopy(micro).to(memory_format=torch.channels_last)
    embed = other.patch_embed.weight
    assert embed.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    logits, expected = other(x.to(memory_format=torch.channels_last)), micro(x)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    for result in (logits, expected):
        result.square().sum().backward()
    for name, parameter in micro.named_parameters():
        twin = other.get_parameter(name)
        assert torch.equal(twin, parameter)
        torch.testing.assert_close(twin.grad, parameter.grad)


@pytest.mark.slow
@with_families
def test_a_model_compiles_to_one_graph(micro):
    x = noise()
    compiled = torch.compile(micro, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), micro(x))


@pytest.mark.slow
@with_families
def test_an_exported_model_takes_any_batch_and_so_does_its_onnx(family, micro, tmp_path):
    """It has operators of PyTorch's only. The blocks of H8 and H2 are those of D8, D2 and ViT."""
    x = noise(batch=3).float()
    program, expected = exported(micro.float(), noise().float()), micro(x)
    assert not [node for node in program.graph.nodes if "vitrail" in str(node.target)]
    torch.testing.assert_close(program.module()(x), expected)
    if family not in ("octic_h8", "h2"):
        needs_onnx_of_torch_2_7()
        logits = in_onnx(program, tmp_path)
        torch.testing.assert_close(logits(x), expected, rtol=1e-4, atol=1e-5)


KINDS = [*((family, {}) for family in FAMILIES)]
KINDS += [("octic_d8", {"invariant": name}) for name in INVARIANTS]
KINDS += [("octic_h8", {"arbitrary_patches": True, "reg_tokens": 2, "mask_token": True})]
with_kinds = pytest.mark.parametrize(("family", "options"), KINDS)


def small(family, **options):
    options = {**MICRO, "depth": 2, "dynamic_img_size": True, **options}
    return timm.create_model(f"{family}_vit_small_patch16_224", **options).eval()


@with_kinds
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_model_is_made_on_the_device_and_in_the_precision_that_are_asked_for(
    family, options, dtype
):
    model = small(family, device="meta", dtype=dtype, **options)
    tensors = [*model.parameters(), *model.buffers()]
    assert {x.device.type for x in tensors} == {"meta"}
    assert {x.dtype for x in tensors} == {dtype or torch.float32}
    assert model(torch.empty(2, 3, 32, 32, device="meta", dtype=dtype)).dtype == tensors[0].dtype


@pytest.mark.slow
@with_families
def test_the_precision_does_not_change_the_weights_that_are_drawn(family):
    torch.manual_seed(0)
    expected = small(family)
    torch.manual_seed(0)
    model = small(family, dtype=torch.bfloat16)
    for name, parameter in expected.named_parameters():
        assert torch.equal(model.get_parameter(name), parameter.bfloat16())


@with_kinds
def test_a_model_that_is_made_without_memory_and_then_loaded_has_the_same_logits(family, options):
    model = small(family, **options).double()
    with torch.device("meta"):
        empty = small(family, **options)
    loaded = empty.double().to_empty(device="cpu")
    for x in [*loaded.parameters(), *loaded.buffers()]:
        x.data.fill_(math.nan)  # as memory may have it
    reinit_non_persistent_buffers(loaded)
    loaded.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(loaded(x), model(x))


@with_kinds
def test_a_model_that_was_cast_down_and_up_is_still_exactly_equivariant(family, options):
    """What its layers compute with beside weights is exact in every precision."""
    model = small(family, **options)
    cast = copy.deepcopy(model).bfloat16().double()
    loaded = model.double()
    cast.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(cast(x), loaded(x))


class OnOneDevice(TorchFunctionMode):
    """Refuses what a GPU would have to wait for: tensors of the host or of Python's numbers."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.tensor, torch.as_tensor, Tensor.new_tensor)
        indices = args[1:2] if function is Tensor.__getitem__ else ()
        assert not any(isinstance(index, list) for index in tree_leaves(indices, is_list))
        out = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)]
        assert {x.device.type for x in tensors} <= {"meta"}, function
        return out


def is_list(x):
    return isinstance(x, list)


@with_kinds
@pytest.mark.parametrize("side", [32, 48])
def test_a_forward_pass_copies_nothing_from_the_host(family, options, side):
    model = small(family, device="meta", **options).train()
    x = torch.empty(2, 3, side, side, device="meta")
    with OnOneDevice():
        model(x)


def test_every_name_is_registered():
    sizes = ["small_patch16", "base_patch16", "large_patch16", "huge_patch14", "huge_patch16"]
    for family in ("octic_d8", "octic_h8", "octic_i8", "d2", "h2"):
        for size in sizes:
            assert timm.is_model(f"{family}_vit_{size}_224")
