"""Convert a plain model to a shift-equivariant one (shift, Sec. A5.3), and check the result.

    model = timm.create_model("swin_tiny_patch4_window7_224", pretrained=True)
    model = make_shift_equivariant(model)
    invariance_error(model, torch.randn(2, 3, 224, 224))

The adaptive modules have the parameters of the plain ones. Weights that were trained with fixed
grids must be fine-tuned for the chosen grids: the paper does so for 10 and for 20 epochs (Table
A12).
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models._input import update_model_args
from timm.models.mvitv2 import MultiScaleVit
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.measures.equivariance import Group
from vitrail.measures.equivariance import largest_error as equivariance_error
from vitrail.shift.adaptive_cvt import AdaptiveCvT
from vitrail.shift.adaptive_mvitv2 import AdaptiveMultiScaleVit
from vitrail.shift.cvt import CvT
from vitrail.shift.geometry import roll_image
from vitrail.shift.selection import Adaptive, Selection
from vitrail.shift.swin import AdaptiveSwin, AdaptiveSwinV2

FAMILIES: dict[type[nn.Module], type[Adaptive]] = {
    SwinTransformer: AdaptiveSwin,
    SwinTransformerV2: AdaptiveSwinV2,
    CvT: AdaptiveCvT,
    MultiScaleVit: AdaptiveMultiScaleVit,
}


def make_shift_equivariant(
    model: nn.Module, selection: Selection = "per_layer", inplace: bool = False
) -> nn.Module:
    """Return a plain model made truly shift-equivariant, with its weights.

    Its logits do not change under circular shifts of any image, not even of an image that equals
    its own shift, such as stripes (see `polyphase`).

    Args:
        model: timm's Swin, SwinV2 or MViTv2, or our CvT, of any size and configuration.
        selection: how grids are chosen, "per_layer", "per_stage" or, not equivariant, "fixed".
        inplace: change `model` itself and return it, instead of a copy. The parameters stay the
            same objects, except MViTv2's position embedding.

    Raises:
        VitrailError: the model is of another family, or built for images that do not fit. It is
            then as it was.
    """
    for family, adaptive_type in FAMILIES.items():
        if isinstance(model, family):
            if isinstance(model, adaptive_type):
                raise VitrailError(
                    f"the {type(model).__name__} is shift-equivariant already: give a plain model"
                )
            adaptive = adaptive_type.of(model, selection, inplace)
            _rename(adaptive, selection)
            return adaptive
    known = ", ".join(map(_full_name, FAMILIES))
    raise VitrailError(
        f"a {_full_name(type(model))} cannot be made shift-equivariant; give a classifier of the "
        f"classes {known} (for feature maps create an adaptive model by its name, such as "
        "'a_swin_tiny_patch4_window7_224', with features_only=True)"
    )


def _full_name(model_type: type) -> str:
    """Return a class's name with its module, because torchvision has a SwinTransformer, too."""
    return f"{model_type.__module__}.{model_type.__name__}"


def _rename(adaptive: Any, selection: Selection) -> None:
    """Set the architecture in timm's records of a model, so that it is saved as an adaptive one.

    If no adaptive model of that name is registered, timm cannot build the saved model, and says so.
    """
    cfg = dict(getattr(adaptive, "pretrained_cfg", {}))
    if "architecture" in cfg:
        plain = cfg["architecture"].removesuffix("_circular").removesuffix("_zeros")
        adaptive.pretrained_cfg = adaptive.default_cfg = {**cfg, "architecture": f"a_{plain}"}
    adaptive._model_args = dict(getattr(adaptive, "_model_args", {}))
    adaptive._model_args.pop("padding_mode", None)
    update_model_args(adaptive, selection=selection)


def invariance_error(model: nn.Module, images: Tensor, shifts: int = 4, seed: int = 0) -> float:
    """Return the largest change of any logit under random circular shifts of the images.

    Source: shift, Eq. 3.

    Args:
        model: ``(B, C, H, W)`` to ``(B, classes)``; used in evaluation mode.
        images: images ``(B, C, H, W)``, each of which is shifted by its own offset.
        shifts: number of shifts of each image.
        seed: seed of the offsets.

    Returns:
        about 1e-13 for an equivariant model in float64, about 1e-5 in float32.
    """
    return equivariance_error(model, random_shifts(images, shifts, seed), images)


def random_shifts(images: Tensor, shifts: int, seed: int) -> Group:
    """Return random circular shifts of ``(B, C, H, W)``; each has an offset for each image.

    Raises:
        VitrailError: the images have another number of dimensions.
    """
    if images.ndim != 4:
        raise VitrailError(
            f"images have the shape {tuple(images.shape)}; give (B, C, H, W), and one image as "
            "image[None]"
        )
    generator = torch.Generator().manual_seed(seed)
    sides = torch.tensor(images.shape[2:])
    draws = torch.rand(shifts, len(images), 2, generator=generator, dtype=torch.float64)
    offsets = (draws * sides).long().to(images.device)
    return Group(offsets.unbind(), roll_image)
