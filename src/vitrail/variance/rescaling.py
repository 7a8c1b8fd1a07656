"""The paper's method: for a larger test image, add UP(P) / sqrt(k) instead of UP(P).

Source: variance, Sec. "Variance Shift Due to Upsampling". examples/variance.py applies the method
to a table of white noise and to a smooth table. One other file completes the method:
`vitrail.variance.upsampling`, which computes the variance ratio k.

Training and test images are both interpolated, so both have the variance k Var[I] (Eq. 1, Eq. 3).
A Vision Transformer's table of position embeddings P fits the size of training (Eq. 2). For a
larger image the table is interpolated. The result UP(P) has the variance k Var[P] if P is white
noise (Eq. 4; k by Theorem 1: `vitrail.variance.upsampling`). So the ratio of the two variances is
k Var[I] / Var[P] in training (Eq. 5), but Var[I] / Var[P] in the test (Eq. 6). UP(P) / sqrt(k)
restores the ratio of training (`rescaled_table`).

These are variances of images I, as the paper writes them, because the patch embedding X is a linear
projection of I. `replication.papers.variance.measures.embedding_variance` measures Var[X] and
Var[P], and `replication.papers.variance.figures` draws their ratio, divided by that of training.

The calibration ``constant`` is the paper's: the k of its Table 2 for every image size. It is named
``iid`` in the tables of `replication.papers.variance.measures`, and ``UP(P) / sqrt(k)`` in
`vitrail.variance.resolution_accuracy`. The other calibrations are ours. ``exact`` computes k for
this change of size, antialiased or not. Both calibrations use the k of white noise. A smooth
table loses much less variance, so ``empirical`` multiplies by sqrt(Var[P] / Var[UP(P)]) of the
given table.

The defaults of the functions are timm's: UP(P) with antialiasing, and no calibration. The paper's
method needs two options:

    model = timm.create_model("vit_base_patch16_224", pretrained=True)
    larger = rescale_pos_embed(model, 448, antialias=False, calibration="constant")

Propositions 1 to 3 are about augmentations: `replication.papers.variance.augmentation_measures`.

Only the grid of patch positions is interpolated and rescaled. Embeddings of prefix tokens (class,
distillation, registers) stay as they are: their number does not depend on the image.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from timm.layers import to_2tuple
from timm.models.naflexvit import NaFlexVit
from torch import Tensor, nn

from vitrail.errors import VitrailError, require_known
from vitrail.variance.upsampling import Mode, axis_variance_ratio, upsample, variance_ratio

Calibration = Literal["none", "constant", "exact", "empirical"]
Size = tuple[int, int]

# Old and new number of values along an axis at which our k, without antialiasing, equal all values
# of Table 2 to the last printed digit. The paper does not say at which sizes it measured them. It
# uses these k for every size, but k depends on the size.
PRINTED_AT = (224, 448)


def constant_scale(
    old_size: Size,
    new_size: Size,
    interpolation: Mode = "bicubic",
    *,
    also_at_train_size: bool = False,
) -> float:
    """Return the paper's 1 / sqrt(k): k of 2D if both axes grow, of 1D if one does, 1 if none.

    The k are those of interpolation without antialiasing.

    Source: variance, Sec. "Variance Shift Due to Upsampling". `old_size` are the table's rows and
    columns, `new_size` those after interpolation. With `also_at_train_size` the 2D constant is
    returned even if no axis grows, as in Table 3 at 224 pixels.
    """
    growing = sum(new > old for old, new in zip(old_size, new_size, strict=True))
    if also_at_train_size and not growing:
        growing = 2
    return float(axis_variance_ratio(*PRINTED_AT, interpolation) ** (-growing / 2))


def empirical_scale(grid: Tensor, resized: Tensor) -> Tensor:
    """Return sqrt(Var[P] / Var[UP(P)]) of two ``(1, positions, C)`` grids, a scalar.

    Return 1 if the variance of `grid` is only rounding error.
    """
    before, after = grid.var(correction=0), resized.var(correction=0)
    rounding = torch.finfo(grid.dtype).eps * grid.square().mean()
    return torch.where(before > rounding, before / after, 1.0).sqrt()


def rescaled_table(
    pos_embed: Tensor,
    old_size: Size,
    new_size: Size,
    interpolation: Mode = "bicubic",
    *,
    antialias: bool = True,
    calibration: Calibration = "none",
    also_at_train_size: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Interpolate a table of position embeddings and calibrate its variance: UP(P) / sqrt(k).

    By default the result is timm's UP(P), antialiased and without calibration. The paper's method
    is ``antialias=False, calibration="constant"``.

    Args:
        pos_embed: ``(1, prefix + old rows * old columns, C)``; the rows of prefix tokens come
            before the grid.
        old_size: (rows, columns) of the grid in `pos_embed`.
        new_size: (rows, columns) of the grid that is returned.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: whether to antialias, by default True as in timm; the paper's constants are those
            of interpolation without antialiasing.
        calibration: ``none`` is the common practice UP(P); ``constant`` the paper's
            UP(P) / sqrt(k), whose k is that of 224 -> 448 without antialiasing; ``exact`` the same
            with the k of this change of size; ``empirical`` gives UP(P) the variance of P.
        also_at_train_size: with ``constant``, use the 2D constant even where no axis grows.
        scale: a factor to multiply UP(P) by, instead of a calibration.

    Returns:
        ``(1, prefix + new rows * new columns, C)``, in the dtype of `pos_embed`.

    Raises:
        VitrailError: there is no such calibration or interpolation.
    """
    prefix = pos_embed.shape[1] - old_size[0] * old_size[1]
    # In float32 at least: interpolation and sums are inaccurate in lower precision.
    grid = pos_embed[:, prefix:].to(torch.promote_types(pos_embed.dtype, torch.float32))
    resized = grid
    if old_size != new_size:
        planes = grid.reshape(1, *old_size, -1).permute(0, 3, 1, 2)  # (1, h*w, C) -> (1, C, h, w)
        planes = upsample(planes, new_size, interpolation, antialias)  # UP(P)
        resized = planes.flatten(2).transpose(1, 2)
    require_known("calibration", calibration, get_args(Calibration))
    factor: float | Tensor = 1.0
    if scale is not None:
        factor = scale
    elif calibration == "constant":
        factor = constant_scale(
            old_size, new_size, interpolation, also_at_train_size=also_at_train_size
        )
    elif calibration == "exact":
        factor = float(variance_ratio(old_size, new_size, interpolation, antialias) ** -0.5)
    elif calibration == "empirical":
        factor = empirical_scale(grid, resized)
    # UP(P) / sqrt(k), the factor of ``constant`` being 1 / sqrt(k)
    return torch.cat([pos_embed[:, :prefix], (factor * resized).to(pos_embed.dtype)], dim=1)


@torch.no_grad()
def rescale_pos_embed(
    model: nn.Module,
    img_size: int | Size,
    interpolation: Mode = "bicubic",
    *,
    antialias: bool = True,
    calibration: Calibration = "none",
    also_at_train_size: bool = False,
    scale: float | None = None,
) -> nn.Module:
    """Return `model` for another image size, with its position embedding calibrated.

    Source: variance, Sec. "Rescaling Positional Embedding"; the paper's method is
    ``antialias=False, calibration="constant"``. By default the result equals timm's own resampling.

    `model` itself is not changed. The result shares all its weights except the table, so it needs
    hardly any additional memory. Every call starts from the table of `model`, so several calls do
    not add up.

    Rows of prefix tokens (class, distillation, registers) stay as they are. timm's
    `resample_abs_pos_embed` takes the number of these rows as an argument, `num_prefix_tokens`;
    here they are the rows of the table that are not in the model's grid of patches.

    Args:
        model: a Vision Transformer of timm with a fixed or a dynamic image size, a NaFlex with a
            learned table, or an octic or flip model. (Interpolation commutes with the group of the
            latter, so the rescaled table has the same symmetry and is stored as free weights.)
        img_size: (height, width) of the test image in pixels, or the side of a square image.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: whether to antialias, by default True as in timm; the paper's constants are those
            of interpolation without antialiasing.
        calibration: "none" is UP(P), the common practice; "constant" is the paper's UP(P) /
            sqrt(k), whose k is that of 224 -> 448 values along an axis, without antialiasing;
            "exact" computes k for this change of size; "empirical" gives UP(P) the variance of P.
            The last two are ours.
        also_at_train_size: with "constant", use the 2D constant even where no axis grows.
        scale: a factor to multiply UP(P) by, instead of a calibration.

    Raises:
        VitrailError: there is no such calibration or interpolation, the model adds no table of
            absolute position embeddings to its patches, `img_size` is not a multiple of its patch
            size, or the model does not take this size.
    """
    size: Size = to_2tuple(img_size)
    pos_embed, old_size = _absolute_table(model)
    calibrated = partial(
        rescaled_table,
        pos_embed,
        old_size,
        interpolation=interpolation,
        antialias=antialias,
        calibration=calibration,
        also_at_train_size=also_at_train_size,
        scale=scale,
    )
    _check_divisible(size, _patches(model).patch_size)
    resized = sharing_weights(model)
    new: Size
    if isinstance(model, NaFlexVit):  # it takes images of any size
        new = _patches(model).dynamic_feat_size(size)
        planes = calibrated(new).unflatten(1, new)
        resized.embeds.pos_embed = nn.Parameter(planes, requires_grad=pos_embed.requires_grad)
        resized.embeds.pos_embed_grid_size = new
        return cast(nn.Module, resized)
    resized.set_input_size(img_size=size)
    new = _patches(resized).grid_size  # a convolutional stem, if any, decides
    table = calibrated(new)
    if isinstance(resized.pos_embed, nn.Module):
        cast(Any, resized.pos_embed).set_table(table)
    else:
        resized.pos_embed = nn.Parameter(table, requires_grad=pos_embed.requires_grad)
    return cast(nn.Module, resized)


def adds_table(model: nn.Module) -> bool:
    """Say whether a model of timm adds a table of absolute position embeddings to its patches."""
    return (
        getattr(model.embeds if isinstance(model, NaFlexVit) else model, "pos_embed", None)
        is not None
    )


@torch.no_grad()
def at_image_size(model: nn.Module, img_size: int | Size) -> nn.Module:
    """Return `model` for another image size by its own `set_input_size`, sharing its weights.

    It is for models whose positions are rotations or biases only: the model computes these for the
    new grid, and there is no table to interpolate.

    Raises:
        VitrailError: the model has no `set_input_size`, or `img_size` is not a multiple of its
            patch size.
    """
    size: Size = to_2tuple(img_size)
    if not hasattr(model, "set_input_size"):
        raise VitrailError(
            f"a {type(model).__name__} cannot change its image size: give one of timm's ViT or EVA "
            "models"
        )
    _check_divisible(size, _patches(model).patch_size)
    resized = sharing_weights(model)
    resized.set_input_size(img_size=size)
    return cast(nn.Module, resized)


def sharing_weights(model: nn.Module) -> Any:
    """Return a copy of a model that shares its parameters."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def patch_positions(model: nn.Module) -> Tensor:
    """Return the position embeddings of the patches as planes, ``(1, C, rows, columns)``."""
    table, (rows, columns) = _absolute_table(model)
    grid = table[:, table.shape[1] - rows * columns :]
    return grid.detach().transpose(1, 2).unflatten(2, (rows, columns))


def _patches(model: Any) -> Any:
    """Return the module that embeds the patches, or None."""
    return model.embeds if isinstance(model, NaFlexVit) else getattr(model, "patch_embed", None)


def _absolute_table(model: nn.Module) -> tuple[Tensor, Size]:
    """Return the table and its grid (rows, columns); VitrailError if the model does not suit."""
    patches = _patches(model)
    grid = getattr(patches, "grid_size", None)
    table = cast(Any, getattr(model, "pos_embed", None))
    if isinstance(model, NaFlexVit):
        grid, planes = patches.pos_embed_grid_size, patches.pos_embed
        table = None if planes is None else planes.flatten(1, 2)
    elif hasattr(table, "set_table"):  # an octic or flip model computes the table from free weights
        table = table.table()
    if not isinstance(table, Tensor):
        lack = "it has no table of absolute position embeddings as the parameter `pos_embed`"
    elif table.ndim != 3 or grid is None:
        lack = f"its `pos_embed` has shape {tuple(table.shape)} instead of (1, positions, channels)"
    elif not hasattr(model, "set_input_size") and not isinstance(model, NaFlexVit):
        lack = "it cannot change its image size (no `set_input_size`)"
    else:
        return table, (grid[0], grid[1])
    name = getattr(model, "pretrained_cfg", {}).get("architecture") or type(model).__name__
    raise VitrailError(
        f"the position embedding of {name} cannot be rescaled: {lack}; "
        + (
            "call its own set_input_size(img_size=...)"
            if hasattr(model, "set_input_size")
            else "use a Vision Transformer with absolute position embeddings, such as "
            "vit_base_patch16_224"
        )
    )


def _check_divisible(img_size: Size, patch_size: Size) -> None:
    for pixels, patch in zip(img_size, patch_size, strict=True):
        if pixels < patch or pixels % patch:
            below = max(pixels // patch, 1) * patch
            raise VitrailError(
                f"img_size {pixels} is not a multiple of the patch size {patch}; "
                f"use {below} or {below + patch}"
            )
