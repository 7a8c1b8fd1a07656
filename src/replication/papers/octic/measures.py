"""Count and time the savings of octic layers; measure the invariance of models.

The saving depends on a layer's shape only, so it is counted on blocks without weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from timm.layers import Mlp
from timm.models.vision_transformer import Block
from torch import nn

from replication.context import Context, Trained, Values, passes
from replication.measures.throughput import every_one_compiled, time_in_turns
from replication.measures.untrained_invariance import Dtype, logits_under
from replication.training.model_factory import Precision, autocast
from vitrail.errors import VitrailError
from vitrail.measures.equivariance import Group
from vitrail.measures.flops import count
from vitrail.octic.fast_block import FastGELU, FastMlp
from vitrail.octic.group import ELEMENTS, from_channels, transform
from vitrail.octic.layers import OcticBlock

PATCHES, CLS = 196, 1
LAYER_SCALE = 1e-4  # DeiT III's; time and operations do not depend on it


def block_ratios(context: Context, shapes: Mapping[str, Mapping[str, int]]) -> Values:
    """Compare the operations of a dense and an octic block (Table 1, Fig. 4a; octic, Sec. 3.4).

    Args:
        context: not used.
        shapes: for each label ``dim``, ``mlp_dim``, ``heads`` and optionally ``tokens`` (by default
            197, for an image of 224 pixels in patches of 16).

    Returns:
        ``"<label>/ratio"``, dense over octic, and ``"<label>/truncated"``, the ratio cut off after
        two decimals, as the paper prints it.

    Raises:
        VitrailError: a shape lacks a field or has an unknown one, or the planes and heads cannot
            share its channels.
    """
    values: dict[str, float] = {}
    for label, shape in shapes.items():
        try:
            dense, octic = block_operations(**shape)
        except TypeError:
            raise VitrailError(
                f"the shape '{label}' has {', '.join(shape)}; give dim, mlp_dim and heads, and "
                "tokens if they are not 197"
            ) from None
        values[f"{label}/ratio"] = dense / octic
        values[f"{label}/truncated"] = 100 * dense // octic / 100
    return values


def block_operations(
    dim: int, mlp_dim: int, heads: int, tokens: int = PATCHES + CLS
) -> tuple[int, int]:
    """Count the operations of a dense and an octic block with layer scale, as the paper does.

    Raises:
        VitrailError: the planes and heads cannot share the channels.
    """
    with torch.device("meta"):
        dense, octic = (
            block(dim, heads, mlp_dim / dim, qkv_bias=True, init_values=LAYER_SCALE).eval()
            for block in (Block, OcticBlock)
        )
        x = torch.empty(1, tokens, dim)
        return count(dense, x).macs, count(octic, from_channels(x)).macs


def invariance(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    images: int = 2,
    dtype: Dtype = "float64",
) -> Values:
    """Compare logits of untrained models on photographs turned and mirrored (octic, Sec. 3.2).

    Each of `images` crops is moved by all elements but the identity. Arguments, values and errors
    are those of `replication.measures.untrained_invariance.logits_under`; "relative" is about 1e-15
    for an invariant model in float64.
    """
    group = Group(ELEMENTS[1:], transform)
    return logits_under(context, models, lambda _: group, images, dtype)


def module_runtime(
    context: Context,
    dims: Sequence[int] = (256, 512, 1024, 2048),
    batch_size: int = 32,
    passes: int = 1000,
    warmup: int = 10,
    tokens: int = PATCHES + CLS,
    precision: Precision = "fp32",
    compile: bool = False,
) -> Values:
    """Time activation and MLP, dense and octic, in turns (octic, App. A.2, Table 4).

    Args:
        context: device and seed; the seed decides weights and inputs.
        dims: widths d; an MLP goes from d to 4d and back, an activation works on 4d channels.
        batch_size: images in a pass.
        passes: timed passes of each module.
        warmup: passes of each before these.
        tokens: of an image; the paper does not say how many.
        precision: of the forward pass.
        compile: use torch.compile.

    Returns:
        ``"<GELU|octic GELU|MLP|octic MLP>/<d>"``, means in microseconds, and ``"overhead/<d>"``,
        by how many percent the octic GELU takes longer than GELU.

    Raises:
        VitrailError: nothing is timed, or eight planes cannot share a width.
    """
    if passes < 1 or batch_size < 1:
        raise VitrailError(
            f"passes is {passes} and batch_size is {batch_size}; give at least 1 of each"
        )
    torch.manual_seed(context.seed)
    values: dict[str, float] = {}
    for dim in dims:
        calls: dict[str, Callable[[], object]] = {}
        modules = {  # with the channels of their inputs
            "GELU": (nn.GELU(), 4 * dim),
            "octic GELU": (FastGELU(), 4 * dim),
            "MLP": (Mlp(dim, 4 * dim), dim),
            "octic MLP": (FastMlp(dim, 4 * dim), dim),
        }
        for name, (module, channels) in modules.items():
            planes = (8, batch_size, tokens, channels // 8)
            shape = planes if name.startswith("octic") else (batch_size, tokens, channels)
            x = torch.randn(shape, device=context.device)
            module.to(context.device).eval()
            if compile:
                module.compile(dynamic=False)
            calls[f"{name}/{dim}"] = lambda module=module, x=x: module(x)  # type: ignore[misc]
        with torch.inference_mode(), autocast(context.device, precision), every_one_compiled():
            seconds = time_in_turns(calls, context.device, passes, warmup)
        values |= {name: 1e6 * statistics.mean(times) for name, times in seconds.items()}
        values[f"overhead/{dim}"] = 100 * (values[f"octic GELU/{dim}"] / values[f"GELU/{dim}"] - 1)
    return values


def arithmetic_intensity(
    context: Context,
    dims: Sequence[int],
    tokens: int = PATCHES,
    expansion: float = 4,
    bytes: int = 2,
) -> Values:
    """Compute the operations per byte of linear layers (octic, App. B), two for a multiply-add.

    For B `tokens`, a layer from D to F = e D channels (e is `expansion`) reads its weights and B D
    numbers and writes B F numbers, of `bytes` bytes each; an octic layer has 3/16 of the
    multiply-adds and an eighth of the weights.

    Returns:
        ``"<dense|octic>/<D>"``, operations per byte, and ``crossing``, the D above which the octic
        layer has more of them.
    """
    values: dict[str, float] = {}
    for dim in dims:
        products, weights = tokens * dim * expansion * dim, expansion * dim * dim
        numbers = tokens * (1 + expansion) * dim
        values[f"dense/{dim}"] = 2 * products / (bytes * (numbers + weights))
        values[f"octic/{dim}"] = 2 * products * 3 / 16 / (bytes * (numbers + weights / 8))
    # 3/16 (numbers + weights) = numbers + weights / 8
    values["crossing"] = 13 * tokens * (1 + expansion) / expansion
    return values


@passes(0)
def compute(trained: Trained) -> Values:
    """Return the cost of a run's training, with interrupted attempts (Table 10).

    Source: octic, App. E.5.

    Returns:
        ``hours`` of wall clock, ``devices`` (GPUs, or CPU processes, at work together),
        ``gpu_hours``, their product, and ``attempts``.

    Raises:
        VitrailError: the run's facts do not say how long its training took.
    """
    facts = trained.facts
    if "wall_seconds" not in facts:
        raise VitrailError(
            f"the record of the training in {trained.folder} does not say its wall_seconds; delete "
            f"{trained.folder} and run snakemake TARGET --forcerun RECORD to train it again, where "
            "RECORD is that record"
        )
    hours, devices = facts["wall_seconds"] / 3600, facts.get("processes", 1)
    cost = {"hours": hours, "devices": devices, "gpu_hours": hours * devices}
    return {**cost, "attempts": facts.get("attempts", 1)}
