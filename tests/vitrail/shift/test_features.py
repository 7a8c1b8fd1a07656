import pytest
import timm
import torch

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError

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
        assert torch.equal(tokens, stage.tokens)


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
