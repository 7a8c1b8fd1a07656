import pytest
import timm
import torch
from torch import nn

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError
from vitrail.shift.geometry import roll_image
from vitrail.shift.polyphase import strongest

SWIN = {"img_size": 12, "patch_size": 2, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
MODELS = {
    "a_swin_tiny_patch4_window7_224": {**SWIN, "window_size": 3},
    "a_swinv2_tiny_window8_256": {**SWIN, "window_size": 3},
    "a_cvt_13": {
        "img_size": 32,
        "embed_dims": (8, 8),
        "depths": (1, 1),
        "num_heads": (1, 1),
        "kernels": (3, 3),
        "strides": (2, 2),
        "kv_strides": (2, 2),
    },
    "a_mvitv2_tiny": {"img_size": 32, "embed_dim": 8, "depths": (1, 1)},
}
families = pytest.mark.parametrize("name", MODELS)


def features(name, **options):
    return timm.create_model(name, features_only=True, **MODELS[name], **options)


@families
@pytest.mark.parametrize(("out_indices", "taken"), [((0,), [0]), ((-1,), [1]), (2, [0, 1])])
def test_stages_are_counted_as_timm_counts_them(name, out_indices, taken):
    model = features(name, out_indices=out_indices)
    assert model.out_indices == taken
    side = MODELS[name]["img_size"]
    images = torch.randn(1, 3, side, side)
    stages = model.eval().forward_stages(images)
    assert [stage.stride for stage in stages] == model.feature_info.reduction()
    assert [stage.tokens.shape[1] for stage in stages] == model.feature_info.channels()
    for tokens, stage in zip(model(images), stages, strict=True):
        assert torch.equal(tokens, stage.aligned().tokens)


@families
@pytest.mark.parametrize("selection", ["per_layer", "per_stage"])
@pytest.mark.parametrize("output_fmt", ["NCHW", "NLC"])
def test_the_maps_of_a_shifted_image_are_shifted_by_whole_tokens(name, selection, output_fmt):
    torch.manual_seed(0)
    model = timm.create_model(name, selection=selection, **MODELS[name]).double().eval()
    side = MODELS[name]["img_size"]
    images = torch.randn(4, 3, side, side, dtype=torch.float64)
    shift = torch.tensor([[1, 0], [5, 2], [7, side - 1], [0, 0]])
    options = {"intermediates_only": True, "output_fmt": output_fmt}
    before = model.forward_intermediates(images, **options)
    after = model.forward_intermediates(roll_image(images, shift), **options)
    places = [stage.aligned() for stage in model.forward_stages(images)]
    moved = [stage.aligned() for stage in model.forward_stages(roll_image(images, shift))]
    for here, there, place, move in zip(before, after, places, moved, strict=True):
        assert (2 * place.offset >= -place.stride).all()
        assert (2 * place.offset < place.stride).all()
        tokens = (move.offset + shift - place.offset) // place.stride  # of whole strides
        if output_fmt == "NLC":
            sides = place.tokens.shape[2:]
            here, there = here.mT.unflatten(2, sides), there.mT.unflatten(2, sides)
        torch.testing.assert_close(there, roll_image(here, tokens), rtol=0, atol=1e-12)


class Nothing(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


@families
def test_a_bright_pixel_is_bright_in_the_map_where_it_is_in_the_image(name):
    torch.manual_seed(0)
    model = timm.create_model(name, **MODELS[name]).double().eval()
    side = MODELS[name]["img_size"]
    images = 1e-3 * torch.randn(16, 3, side, side, dtype=torch.float64)
    place = torch.randint(side, (16, 2))
    images[torch.arange(16), :, place[:, 0], place[:, 1]] = 100
    for block in model.stages[0].blocks:
        block.drop_path1 = block.drop_path2 = Nothing()  # or tokens are mixed
    features = model.forward_intermediates(images, indices=[0], intermediates_only=True)[0]
    stride = side // features.shape[2]
    background = features.flatten(2).median(dim=2).values[..., None, None]
    brightest = strongest((features - background).square().sum(dim=1)) * stride
    distance = (brightest - place + side // 2) % side - side // 2
    assert distance.abs().max() <= 2 * stride


@families
def test_a_stage_that_is_not_there_is_refused(name):
    with pytest.raises(VitrailError, match=r"the model has 2 stages; use indices from 0 to 1"):
        features(name, out_indices=(7,))


@families
def test_every_parameter_that_is_left_is_used(name):
    model = features(name, out_indices=(0,))
    side = MODELS[name]["img_size"]
    model(torch.randn(2, 3, side, side))[0].square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
