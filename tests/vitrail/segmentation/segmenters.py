"""Segmenters of our configurations, as they are or tiny, with parameters that let nothing hide."""

from __future__ import annotations

import copy
import functools
import warnings
from pathlib import Path

import torch
from torch import nn

import vitrail.segmentation  # noqa: F401  # isort: skip
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from mmseg.registry import MODELS

from vitrail.shift.geometry import roll_image

CONFIGS = Path(__file__).parents[3] / "configs" / "segmentation"
PLAIN = {"swin": "swin_t_upernet_ade20k_circular", "swinv2": "swinv2_t_upernet_ade20k_circular"}
# The last of four stages has 3 x 3 tokens in windows of 3, or 4 x 4 in windows of 4.
SIDE = {"swin": 48, "swinv2": 64}
WINDOW = {"swin": 3, "swinv2": 4}
WIDTHS = [12, 24, 48, 96]
CLASSES = 5


def config(name: str) -> Config:
    return copy.deepcopy(_read(name))


@functools.cache
def _read(name: str) -> Config:
    return Config.fromfile(CONFIGS / f"{name}.py")


def spread(model: nn.Module) -> nn.Module:
    """Draw norms, statistics and the last layer: SwinV2's blocks begin as identities, for one."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        if isinstance(module, nn.Conv2d) and module.out_channels == CLASSES:
            nn.init.normal_(module.weight)
    return model.eval()


def build(name: str, **model: object) -> nn.Module:
    """Build a configuration's segmenter with random weights; `model` is laid over its model."""
    torch.manual_seed(0)
    settings = config(name)
    settings.merge_from_dict({"model": model})
    with DefaultScope.overwrite_default_scope("mmseg"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Default ``avg_non_ignore``")  # mmseg's own
        return spread(revert_sync_batchnorm(MODELS.build(settings.model)))


def sizes(family: str) -> dict[str, object]:
    """Return the arguments of a tiny backbone."""
    return {
        "img_size": SIDE[family],
        "patch_size": 2,
        "window_size": WINDOW[family],
        "embed_dim": WIDTHS[0],
        "depths": (2, 2, 2, 2),
        "num_heads": (1, 2, 2, 4),
    }


def micro(
    family: str, *, backbone: dict | None = None, decode_head: dict | None = None
) -> nn.Module:
    """Build a tiny adaptive segmenter."""
    head = {"in_channels": WIDTHS, "channels": 16, "num_classes": CLASSES, **(decode_head or {})}
    return build(
        f"a_{PLAIN[family]}",
        backbone={**sizes(family), **(backbone or {})},
        decode_head=head,
        auxiliary_head={"in_channels": WIDTHS[2], "channels": 8, "num_classes": CLASSES},
    )


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def offsets(count: int, height: int, width: int) -> torch.Tensor:
    """Draw a shift for each of so many images."""
    draws = torch.rand(count, 2, generator=torch.Generator().manual_seed(2))
    return (draws * torch.tensor([height, width])).long()


@torch.inference_mode()
def equivariance_error(model: nn.Module, images: torch.Tensor) -> float:
    """Return the largest difference between logits of shifted images and shifted logits."""
    shift = offsets(len(images), *images.shape[2:])
    logits = model(images)
    assert logits.shape[2:] == images.shape[2:]
    return (model(roll_image(images, shift)) - roll_image(logits, shift)).abs().max().item()
