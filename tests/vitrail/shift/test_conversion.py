import itertools

import pytest
import safetensors.torch
import timm
import torch
from timm.utils import ModelEmaV3
from torch import nn

import vitrail.models  # noqa: F401
from replication.images.photos import photo_centre
from tests.exporting import exported, in_onnx, needs_onnx_of_torch_2_7
from tests.vitrail.shift.devices import NoFloat64, RoundsByPlace
from vitrail.errors import VitrailError
from vitrail.measures.selection_margins import selection_margins
from vitrail.shift import polyphase
from vitrail.shift.conversion import FAMILIES, invariance_error, make_shift_equivariant
from vitrail.shift.selection import ALIASES

SWIN = {"img_size": 24, "patch_size": 2, "embed_dim": 12, "depths": (2, 2), "num_heads": (1, 2)}
MODELS = {
    "swin_tiny_patch4_window7_224": {**SWIN, "window_size": 3},
    "swinv2_tiny_window8_256": {**SWIN, "window_size": 3},
    "cvt_13": {
        "img_size": 32,
        "embed_dims": (8, 8, 16),
        "depths": (1, 1, 1),
        "num_heads": (1, 1, 2),
    },
    "mvitv2_tiny_zeros": {"img_size": 32, "embed_dim": 8, "depths": (1, 1)},
}


# What is exported, which takes seconds a block: two stages, where Swin's last block moves windows.
SHORT = {
    "swin_tiny_patch4_window7_224": {"depths": (1, 2)},
    "swinv2_tiny_window8_256": {"depths": (1, 2)},
    "cvt_13": {
        "embed_dims": (8, 16),
        "depths": (1, 1),
        "num_heads": (1, 2),
        "kernels": (3, 3),
        "strides": (2, 2),
        "kv_strides": (2, 2),
    },
    "mvitv2_tiny_zeros": {},
}


def random_model(name, **options):
    torch.manual_seed(0)
    options = {"num_classes": 5, **MODELS[name], **options}
    model = timm.create_model(name, **options).double().eval()
    for parameter in model.parameters():  # some begin at zero, which would hide them
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(params=MODELS)
def plain(request):
    return random_model(request.param)


def pixels(model, count=2, dtype=torch.float64):
    side = 24 if "swin" in type(model).__name__.lower() else 32
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, side, side, generator=generator, dtype=dtype)


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_a_plain_model_of_any_configuration_becomes_invariant(plain, selection):
    """shift, Eq. 3-4, Sec. 4."""
    images = pixels(plain)
    before = plain(images)
    adaptive = make_shift_equivariant(plain, selection)
    assert adaptive(images).shape == before.shape
    assert invariance_error(adaptive, images) <= 1e-12 * max(1, before.abs().max().item())
    assert invariance_error(plain, images) > 1e-3
    assert torch.equal(plain(images), before)  # it is left as it is


@pytest.mark.parametrize("older", ALIASES)
def test_the_older_word_for_a_selection_makes_the_same_model(plain, older):
    """Its weights load into a model of the newer word, and its own, with the same bytes."""
    model, twin = (make_shift_equivariant(plain, word) for word in (older, ALIASES[older]))
    assert type(model.grid) is type(twin.grid)
    assert twin.grid.name == ALIASES[older]
    twin.load_state_dict(model.state_dict())
    assert bytes(twin.state_dict()["_extra_state"].tolist()).decode() == older
    assert torch.equal(model(pixels(plain)), twin(pixels(plain)))


def test_a_model_is_changed_in_place_if_asked_for(plain):
    parameters = {name: id(parameter) for name, parameter in plain.named_parameters()}
    copied = make_shift_equivariant(plain, "per_stage")
    model = make_shift_equivariant(plain, "per_stage", inplace=True)
    assert model is plain
    assert torch.equal(model(pixels(plain)), copied(pixels(plain)))
    for name, parameter in model.named_parameters():
        assert id(parameter) == parameters[name] or "rel_pos_" in name


def test_a_model_that_cannot_be_changed_in_place_is_as_it_was(plain):
    images = pixels(plain)
    expected, was = plain(images), type(plain)
    with pytest.raises(VitrailError, match="selection 'quick' is unknown"):
        make_shift_equivariant(plain, "quick", inplace=True)
    assert type(plain) is was
    assert torch.equal(plain(images), expected)


def test_a_model_that_is_shift_equivariant_already_is_refused(plain):
    with pytest.raises(VitrailError, match="is shift-equivariant already"):
        make_shift_equivariant(make_shift_equivariant(plain))


def test_weights_are_kept(plain):
    """shift, Sec. A5.3."""
    adaptive = make_shift_equivariant(plain)
    kept = adaptive.state_dict()
    for name, weight in plain.state_dict().items():
        assert "rel_pos_" in name or torch.equal(weight, kept[name])
    assert adaptive.grid.name == "per_layer"


def test_weights_of_another_selection_are_refused_in_a_sentence(plain):
    models = {
        name: make_shift_equivariant(plain, name) for name in ("per_layer", "per_stage", "fixed")
    }
    for trained, weights in models.items():
        for name, model in models.items():
            if name != trained:
                sentence = f"are of selection '{trained}' and the model is of '{name}': build"
                for strict in (True, False):
                    with pytest.raises(VitrailError, match=sentence):
                        model.load_state_dict(weights.state_dict(), strict=strict)
            model.load_state_dict(plain.state_dict())  # a plain model's fit any


def test_weights_that_record_the_selection_as_a_number_are_refused_in_a_sentence(plain):
    model = make_shift_equivariant(plain)
    weights = {**model.state_dict(), "_extra_state": torch.tensor(0)}
    with pytest.raises(VitrailError, match=r"no selection .* knows: .* train them anew"):
        model.load_state_dict(weights)


def test_the_selection_is_saved_and_averaged_with_the_weights(plain, tmp_path):
    model, twin = (make_shift_equivariant(plain, "per_stage") for _ in range(2))
    torch.nn.init.ones_(next(model.parameters()))
    safetensors.torch.save_file(model.state_dict(), tmp_path / "weights.safetensors")
    twin.load_state_dict(safetensors.torch.load_file(tmp_path / "weights.safetensors"))
    torch.testing.assert_close(twin.state_dict(), model.state_dict(), rtol=0, atol=0)
    average = ModelEmaV3(model)
    average.update(model)
    twin.load_state_dict(average.module.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_were_averaged_or_cast_keep_the_selection(plain, dtype):
    """As of the means of several checkpoints, which average every entry."""
    first, second = (make_shift_equivariant(plain, "per_stage") for _ in range(2))
    pairs = zip(first.state_dict().items(), second.state_dict().values(), strict=True)
    mean = {name: ((one + other) / 2).to(dtype) for (name, one), other in pairs}
    make_shift_equivariant(plain, "per_stage").load_state_dict(mean)
    with pytest.raises(VitrailError, match=r"of selection 'per_stage'"):
        make_shift_equivariant(plain, "per_layer").load_state_dict(mean)


def test_means_of_weights_of_two_selections_are_refused(plain):
    first, second = (make_shift_equivariant(plain, name) for name in ("per_stage", "fixed"))
    state = "_extra_state"
    mean = (first.state_dict()[state] + second.state_dict()[state]) / 2
    with pytest.raises(VitrailError, match=r"no selection"):
        first.load_state_dict({**first.state_dict(), state: mean})


def test_without_a_selection_it_is_is_not_invariant(plain):
    images = pixels(plain)
    model = make_shift_equivariant(plain, "fixed")
    assert model(images).shape == plain(images).shape
    assert invariance_error(model, images) > 1e-3
    with selection_margins(model) as margins:
        model(images)
    assert margins.smallest().isinf().all()


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_no_repeated_content_decides_a_selection(plain, selection):
    """Two grids of two equal objects hold the same tokens, in another arrangement."""
    model = make_shift_equivariant(plain, selection)
    assert invariance_error(model, repeated_objects(plain), shifts=3) <= 1e-9


def repeated_objects(model):
    """Return images on a flat ground that hold a piece of noise, or its mirror image, again."""
    generator = torch.Generator().manual_seed(0)
    images = torch.full_like(pixels(model, 6), 0.5)
    for image, mirrored in zip(images, [False, True] * 3, strict=True):
        photo = torch.randn(3, 6, 6, generator=generator, dtype=torch.float64)
        other = photo.flip(2) if mirrored else photo
        for place, part in (((2, 3), photo), ((9, 10), other), ((16, 5), photo)):
            image[:, place[0] : place[0] + 6, place[1] : place[1] + 6] = part
    images[2:4, :, 16:22, 5:11] = 0.5  # two objects instead of three
    return images


def symmetric_images(side, generator):
    """Return one image for every group of shifts that an image of that side can be symmetric under.

    Such a group is generated by the shifts by (rows, skew) and (0, columns): flat images, stripes
    along rows, columns and diagonals, checkerboards and tilings of any period. Every image is there
    twice, of noise and of two colours.
    """
    divisors = [length for length in range(1, side + 1) if side % length == 0]
    row, column = torch.arange(side)[:, None], torch.arange(side)
    images = []
    for rows, columns in itertools.product(divisors, divisors):
        for skew in range(columns):
            if side // rows * skew % columns == 0:  # the copies meet around the border
                tile = torch.randn(3, rows, columns, generator=generator, dtype=torch.float64)
                place = row % rows, (column - row // rows * skew) % columns
                images += [tile[:, *place], (tile > 0).double()[:, *place]]
                assert torch.equal(images[-1], images[-1].roll((rows, skew), (1, 2)))
                assert torch.equal(images[-1], images[-1].roll(columns, 2))
    return torch.stack(images)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_an_image_that_equals_its_own_shift_keeps_its_logits(plain, selection, dtype, tolerance):
    """shift, Eq. 3; the proof is in `vitrail.shift.polyphase`."""
    model = make_shift_equivariant(plain, selection).to(dtype)
    images = symmetric_images(pixels(plain).shape[-1], torch.Generator().manual_seed(0)).to(dtype)
    halves = torch.zeros_like(images[:2])
    halves[0, :, : halves.shape[2] // 2] = halves[1, :, :, : halves.shape[3] // 2] = 1
    images = torch.cat([images, halves])
    assert invariance_error(model, images, shifts=3) <= tolerance
    assert invariance_error(plain.to(dtype), images, shifts=1) > 1e3 * tolerance


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_logits_do_not_change_on_a_device_that_rounds_a_token_by_its_place(plain, selection):
    side = pixels(plain).shape[-1]
    photographs = [
        torch.tensor(photo_centre(name, 8 * side)[::8, ::8]).permute(2, 0, 1) / 255
        for name in ("flower", "china")
    ]
    symmetric = symmetric_images(side, torch.Generator().manual_seed(0))[::10].float()
    images = torch.cat([repeated_objects(plain), torch.stack(photographs)]).float()
    model = make_shift_equivariant(plain, selection).float()
    for name, parameter in model.named_parameters():  # wider ones magnify the rounding of float32
        torch.nn.init.normal_(parameter, float("norm" in name), 0.2)
    with RoundsByPlace(), torch.no_grad():
        assert invariance_error(model, images, shifts=2) == 0
        # Tilings may have their windows in another order, which changes the last bits of a mean.
        changed = invariance_error(model, symmetric, shifts=2)
        assert changed <= 1e-6 * model(symmetric).abs().amax()


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_shifted_images_have_the_same_bits(plain, selection):
    images = pixels(plain, 32, torch.float32)
    model = make_shift_equivariant(plain, selection).float()
    assert invariance_error(model, images, shifts=1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_gives_the_same_logits_to_shifted_images_of_any_number(name, tmp_path):
    """As a program of PyTorch's and of ONNX's."""
    model = make_shift_equivariant(random_model(name, **SHORT[name])).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)  # or attention magnifies the rounding of float32
    images = pixels(model, 6, torch.float32)
    shifted = torch.stack([image.roll((5, 2 + n), (1, 2)) for n, image in enumerate(images)])
    program, expected = exported(model, images[:2]), model(images)
    torch.testing.assert_close(program.module()(images), expected)
    if name == "cvt_13":
        needs_onnx_of_torch_2_7()
    logits = in_onnx(program, tmp_path)
    torch.testing.assert_close(logits(images), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits(shifted), logits(images), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_each_images_gradient_is_that_of_vmap(plain):
    model, images = make_shift_equivariant(plain), pixels(plain)

    def loss(parameters, image):
        return torch.func.functional_call(model, parameters, (image[None],)).square().sum()

    parameters = dict(model.named_parameters())
    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, images)
    model(images[1:]).square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name][1], parameter.grad)


@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
def test_it_needs_no_float64(plain, selection, monkeypatch):
    model, images = make_shift_equivariant(plain, selection).float(), pixels(plain).float()
    expected = model(images)
    monkeypatch.setattr(polyphase, "DEVICES_WITH_FLOAT64", ())
    with NoFloat64(), torch.no_grad():
        torch.testing.assert_close(model(images), expected)


def test_every_family_is_tested():
    made = {type(timm.create_model(name, **MODELS[name])) for name in MODELS}
    assert made == set(FAMILIES)


def test_another_family_is_refused():
    with pytest.raises(VitrailError, match=r"a timm\S+\.VisionTransformer cannot be made"):
        make_shift_equivariant(timm.create_model("vit_tiny_patch16_224"))


def test_an_image_without_a_batch_is_refused_in_a_sentence():
    with pytest.raises(VitrailError, match=r"shape \(3, 8, 8\); give \(B, C, H, W\)"):
        invariance_error(nn.Identity(), torch.zeros(3, 8, 8))
