"""The models of all families: those of the papers, or with `quick` narrow models of each family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import vitrail.models  # noqa: F401  # isort: skip  (before timm: it repairs torchvision's import)

import timm
import torch
from torch import Tensor, nn

from benchmarks.shift_ties import FAMILIES as NARROW
from benchmarks.shift_ties import SWIN
from replication.images.photos import photo_crops
from vitrail.position.embeddings import EMBEDDINGS
from vitrail.seeding import seed_everything
from vitrail.shift.upernet import UPerNet

NOISE = 0.02  # standard deviation of noise added to all weights: zeros would hide the layers before
OCTIC = {"img_size": 64, "embed_dim": 64, "depth": 2, "num_heads": 4}


@dataclass(frozen=True)
class Family:
    """A way to build a model on the CPU, and the side of its images in pixels."""

    make: Callable[[], nn.Module]
    side: int

    def build(self) -> nn.Module:
        """Build the model in evaluation mode, with random weights that are the same each time."""
        seed_everything("gpu check", 0)
        model = self.make().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(NOISE * torch.randn_like(parameter))
        return model

    def images(self, count: int) -> Tensor:
        """Return crops of photographs, ``(count, 3, side, side)``, from -1 to 1."""
        crops = torch.from_numpy(photo_crops(count, self.side, seed=0))
        return crops.permute(0, 3, 1, 2).float() / 127.5 - 1


def of_timm(name: str, **args: Any) -> Family:
    """Return a registered model as a family of its default image size, or of ``img_size``."""
    cfg: Any = timm.get_pretrained_cfg(name)
    side = args.get("img_size") or cfg.input_size[-1]
    return Family(lambda: timm.create_model(name, **args), side)


def shift(quick: bool) -> dict[str, Family]:
    """Return the adaptive models by label, with both selections."""
    return {
        f"{label} {selection}": of_timm(
            name, selection=selection, **({**args, "num_classes": 10} if quick else {})
        )
        for label, (name, args) in NARROW.items()
        for selection in ("paper", "fast")
    }


def octic(quick: bool) -> dict[str, Family]:
    """Return the octic and flip models by label."""
    kinds = {"D8": "octic_d8", "H8": "octic_h8", "I8": "octic_i8", "D2": "d2", "H2": "h2"}
    args = {**OCTIC, "num_classes": 10} if quick else {}
    return {
        label: of_timm(f"{kind}_vit_small_patch16_224", **args) for label, kind in kinds.items()
    }


def position(quick: bool) -> dict[str, Family]:
    """Return the paper's small ViT with each position embedding; `quick` has no effect."""
    return {f"ViT {name}": of_timm("position_vit", embedding=name) for name in EMBEDDINGS}


def segmentation(quick: bool) -> dict[str, Family]:
    """Return UperNet on the plain and on the adaptive Swin."""
    wide, options = (SWIN, {"channels": 32}) if quick else ({}, {})

    def family(prefix: str, **args: Any) -> Family:
        name = f"{prefix}swin_tiny_patch4_window7_224"
        args = {**wide, **args, "dynamic_img_size": True} if prefix else {**wide, **args}
        return Family(lambda: UPerNet(timm.create_model(name, **args), 19, **options), 224)

    return {
        "UperNet Swin": family(""),
        "UperNet A-Swin paper": family("a_", selection="paper"),
        "UperNet A-Swin fast": family("a_", selection="fast"),
    }


GROUPS: dict[str, Callable[[bool], dict[str, Family]]] = {
    "shift": shift,
    "octic": octic,
    "position": position,
    "segmentation": segmentation,
}
