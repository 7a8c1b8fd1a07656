"""Segmenters that mmseg has published load into ours, and predict what they predicted."""

import pytest
import torch

import vitrail.segmentation  # noqa: F401  # isort: skip
from mmengine.runner.checkpoint import _load_checkpoint_to_model
from mmseg.registry import MODELS

from replication.config.python_source import config_files
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.config.weights import PublishedWeights
from replication.context import Trained
from replication.datasets.published_weights import fetch
from replication.training.dispatch import TrainingRun
from replication.training.run_folder import read_finished
from replication.training.segmentation import training as engine
from replication.training.segmentation.accuracy import calibrated_accuracy, segmentation_accuracy
from replication.training.segmentation.config import build_model
from replication.training.weights import load_weights
from tests.conftest import ROOT
from tests.vitrail.segmentation.segmenters import CLASSES, noise, spread
from vitrail.errors import VitrailError
from vitrail.segmentation.weights import load_segmenter

HEAD = {"num_classes": CLASSES, "channels": 8, "norm_cfg": {"type": "BN"}, "align_corners": False}
WIDTHS = {"swin": [12, 24, 48, 96], "vit": [12, 12, 12, 12]}
SWIN = {"depths": (2, 1, 2, 1), "num_heads": (1, 2, 2, 4), "window_size": 7}
THEIRS = {
    "swin": {"type": "SwinTransformer", "embed_dims": 12, **SWIN},
    "vit": {
        "type": "VisionTransformer",
        "img_size": 64,
        "embed_dims": 12,
        "num_heads": 2,
        "num_layers": 4,
        "out_indices": (0, 1, 2, 3),
        "norm_cfg": {"type": "LN", "eps": 1e-6},
        "interpolate_mode": "bicubic",
    },
}
OURS = {
    "swin": {
        "type": "TimmSwinV2",  # takes any Swin of timm's
        "model_name": "swin_tiny_patch4_window7_224",
        "img_size": 224,
        "embed_dim": 12,
        **SWIN,
    },
    "vit": {
        "type": "TimmViT",
        "img_size": 64,
        "embed_dim": 12,
        "num_heads": 2,
        "depth": 4,
        "out_indices": (0, 1, 2, 3),
    },
}
pytestmark = pytest.mark.filterwarnings("ignore:Default ``avg_non_ignore``")  # mmseg's own


def segmenter(family, backbone, adaptive=""):
    torch.manual_seed(0)
    widths = WIDTHS[family]
    neck = {"type": "MultiLevelNeck", "in_channels": widths, "out_channels": 12}
    head = {"type": f"{adaptive}UPerHead", "in_channels": widths, "in_index": [0, 1, 2, 3]}
    aux = {"type": f"{adaptive}FCNHead", "in_channels": widths[2], "in_index": 2, "num_convs": 1}
    model = {
        "type": "EncoderDecoder",
        "backbone": backbone,
        "neck": neck if family == "vit" else None,
        "decode_head": {**head, **HEAD},
        "auxiliary_head": {**aux, **HEAD, "concat_input": False},
        "test_cfg": {"mode": "whole"},
    }
    return spread(MODELS.build(model))


@pytest.fixture(params=["swin", "vit"])
def published(request, tmp_path):
    model = segmenter(request.param, THEIRS[request.param])
    for name, parameter in model.backbone.named_parameters():
        if not name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter, 0, 0.2)
    meta = {"CLASSES": ("a",), "PALETTE": [[0, 0, 0]]}
    torch.save({"state_dict": model.state_dict(), "meta": meta}, tmp_path / "published.pth")
    return request.param, model, tmp_path / "published.pth"


def test_outputs_are_mmsegs(published):
    family, theirs, file = published
    ours = segmenter(family, OURS[family])
    load_segmenter(ours, file)
    images = noise(2, 3, 224, 448)  # ViT's positions are interpolated
    with torch.inference_mode():
        expected, logits = theirs.double()(images), ours.double()(images)
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def test_mmsegs_own_lenient_loading_loads_the_same(published):
    family, _, file = published
    ours, other = segmenter(family, OURS[family]), segmenter(family, OURS[family])
    load_segmenter(ours, file)
    _load_checkpoint_to_model(other, torch.load(file, weights_only=True))
    torch.testing.assert_close(other.state_dict(), ours.state_dict(), rtol=0, atol=0)


def test_an_adaptive_segmenter_takes_every_weight_of_a_plain_one(tmp_path):
    plain = segmenter("swin", THEIRS["swin"])
    torch.save(plain.state_dict(), tmp_path / "plain.pth")
    backbone = {"type": "AdaptiveSwin", "img_size": 224, "embed_dim": 12, **SWIN}
    adaptive = segmenter("swin", backbone, adaptive="Adaptive")
    load_segmenter(adaptive, tmp_path / "plain.pth")
    plain_sum, adaptive_sum = (
        sum(value.double().sum().item() for value in model.parameters())
        for model in (plain, adaptive)
    )
    assert adaptive_sum == pytest.approx(plain_sum)
    assert adaptive(noise(1, 3, 224, 224, dtype=torch.float32)).shape == (1, CLASSES, 224, 224)


@pytest.mark.parametrize("strict", [True, False])
def test_nothing_is_left_as_it_was_drawn(published, strict):
    family, theirs, _ = published
    ours = segmenter(family, OURS[family])
    weights = theirs.state_dict()
    lost = next(name for name in weights if name.endswith("ffn.layers.1.weight"))
    del weights[lost]
    with pytest.raises(VitrailError, match=r"1 of its \d+ weights, such as model\..*fc2\.weight"):
        ours.load_state_dict(weights, strict=strict)


def test_a_file_without_a_head_is_refused(published):
    family, theirs, file = published
    weights = {k: v for k, v in theirs.state_dict().items() if not k.startswith("decode_head")}
    torch.save(weights, file)
    with pytest.raises(VitrailError, match=r"published\.pth does not fit the segmenter .*decode"):
        load_segmenter(segmenter(family, OURS[family]), file)


TINY = {"num_heads": 2, "out_indices": [0, 1, 2, 3], "img_size": 64}
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": [256, 64], "keep_ratio": True},
    {"type": "LoadAnnotations"},
    {"type": "PackSegInputs"},
]
AROUND = {
    "data_preprocessor": {"size": [64, 64]},
    "neck": {"in_channels": [12] * 4, "out_channels": 12},
    "decode_head": {"in_channels": [12] * 4, "channels": 8},
    "auxiliary_head": {"in_channels": 12, "channels": 8},
}


@pytest.mark.slow
def test_a_published_segmenter_is_evaluated_as_it_comes(info, data_root, tmp_path):
    """As for Table 4 of the variance paper, whose row of ADE20K has no training."""

    def recipe(name, **backbone):
        return SegmentationRecipe.model_validate(
            {
                "model": {
                    "name": name,
                    "files": config_files(name, ROOT),
                    "args": {**AROUND, "backbone": {**TINY, **backbone}},
                    "pretrained": "published",
                },
                "data": {"dataset": "ade20k"},
                "options": {"test_dataloader": {"dataset": {"pipeline": PIPELINE}}},
                "schedule": {"steps": 0},
                "batch": {"size": 16},
            }
        )

    theirs = recipe(
        "mmseg::vit/vit_deit-s16_mln_upernet_8xb2-160k_ade20k-512x512.py",
        embed_dims=12,
        num_layers=4,
    )
    ours = recipe("deit_s_upernet_ade20k", embed_dim=12, depth=4)
    model = spread(build_model(theirs, 150))
    torch.nn.init.normal_(model.decode_head.conv_seg.weight)
    torch.save({"state_dict": model.state_dict(), "meta": {}}, tmp_path / "mmsegs.pth")
    entry = {"name": "published", "url": [(tmp_path / "mmsegs.pth").as_uri()], "licence": "none"}
    fetch(PublishedWeights.model_validate(entry), tmp_path / "published.safetensors")
    initial, folder = tmp_path / "published.safetensors", tmp_path / "run"
    weights = engine.train(TrainingRun(ours, 0, folder, info, data_root, initial=initial))
    assert read_finished(folder)["steps"] == 0
    loaded = build_model(ours, 150).eval()
    load_weights(loaded, weights, ours)
    given = {"device": "cpu", "data_root": data_root, "seed": 0, "info": info, "folder": folder}
    values = calibrated_accuracy(Trained(recipe=ours, model=loaded, **given))
    expected = segmentation_accuracy(Trained(recipe=theirs, model=model, **given))
    for metric in ("mIoU", "mAcc", "aAcc"):
        assert values[f"{metric}/baseline"] == pytest.approx(expected[metric], abs=1e-3)
