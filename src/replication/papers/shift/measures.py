"""Table 4: the time that each module takes; and the invariance of untrained full-size models.

For Table 4 every module is timed alone, on tokens of the size that it has in the paper's models:
the tokenisation and merging of A-Swin-T and its window selection at the first stage, and the
attention scores of A-MViTv2-T's first block with their relative position embedding, which the
adaptive model computes in one matrix product.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
from timm.models.mvitv2 import cal_rel_pos_type
from torch import Tensor

from replication.context import Context, Values
from replication.measures.throughput import time_in_turns
from replication.measures.untrained_invariance import Dtype, logits_under
from vitrail.errors import VitrailError
from vitrail.shift.adaptive_mvitv2 import a_mvitv2_tiny
from vitrail.shift.conversion import random_shifts
from vitrail.shift.geometry import Size
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import PerLayerSelection, window_offset
from vitrail.shift.swin import a_swin_tiny_patch4_window7_224, merging_parts

Call = Callable[[], object]
PLAIN, ADAPTIVE = "plain", "adaptive"


def module_runtime(
    context: Context, batch_size: int = 128, passes: int = 100, warmup: int = 3
) -> Values:
    """Time the default and the adaptive version of each module, in turns (shift, Sec. 5.4).

    The context's seed decides weights and inputs; `warmup` passes of each precede the timed ones.

    Returns:
        ``<module>/plain`` and ``<module>/adaptive``, median times in milliseconds, and
        ``<module>/delta``, adaptive minus plain; and ``batch_size``. The default model selects no
        windows: there is no ``windows/plain``, and it counts as 0 in ``windows/delta``.

    Raises:
        VitrailError: nothing is timed.
    """
    if passes < 1 or batch_size < 1:
        raise VitrailError(
            f"passes is {passes} and batch_size is {batch_size}; give at least 1 of each"
        )
    torch.manual_seed(context.seed)
    calls = {**_swin_calls(batch_size, context.device), **_rpe_calls(batch_size, context.device)}
    with torch.inference_mode():
        seconds = time_in_turns(calls, context.device, passes, warmup)
    values = {name: 1000 * statistics.median(times) for name, times in seconds.items()}
    for module in {name.partition("/")[0]: None for name in values}:
        plain = values.get(f"{module}/{PLAIN}", 0.0)
        values[f"{module}/delta"] = values[f"{module}/{ADAPTIVE}"] - plain
    return {"batch_size": batch_size, **values}


def _swin_calls(batch_size: int, device: str) -> dict[str, Call]:
    swin: Any = a_swin_tiny_patch4_window7_224().to(device).eval()
    images = torch.randn(batch_size, 3, *swin.patch_embed.img_size, device=device)
    conv, grid = swin.patch_embed.proj, PerLayerSelection()
    calls: dict[str, Call] = {
        f"tokenization/{PLAIN}": lambda: conv(images),
        f"tokenization/{ADAPTIVE}": lambda: grid(images, conv),
    }
    for number, stage in enumerate(swin.layers[1:], start=2):
        merge = stage.downsample
        tokens = torch.randn(batch_size, *stage.input_resolution, merge.dim, device=device)
        calls[f"merging {number}/{PLAIN}"] = functools.partial(merge, tokens)
        calls[f"merging {number}/{ADAPTIVE}"] = functools.partial(
            grid.merge_patches, tokens, merging_parts(merge)[0]
        )
    first = swin.layers[0]
    tokens = torch.randn(batch_size, *first.output_resolution, swin.feature_info[0]["num_chs"])
    window = first.blocks[0].window_size
    calls[f"windows/{ADAPTIVE}"] = functools.partial(select_windows, tokens.to(device), window)
    return calls


def select_windows(tokens: Tensor, window: Size) -> Tensor:
    """Choose the windows of ``(B, H, W, C)`` and roll tokens to their offset (shift, Eq. 19)."""
    return roll(tokens, window_offset(tokens, window))


def _rpe_calls(batch_size: int, device: str) -> dict[str, Call]:
    """Return the calls for the first block's attention scores with their position embedding."""
    models: list[Any] = [timm.create_model("mvitv2_tiny"), a_mvitv2_tiny()]
    plain, adaptive = (model.stages[0].blocks[0].attn.to(device).eval() for model in models)
    rows, columns = adaptive.size
    heads, dim, step = adaptive.num_heads, adaptive.head_dim, adaptive.stride_kv
    queries = torch.randn(batch_size, rows, columns, heads, dim, device=device)
    flat = queries.flatten(1, 2).transpose(1, 2).contiguous()
    size = [rows // step, columns // step]
    keys = torch.randn(batch_size, heads, size[0] * size[1], dim, device=device)
    shift = torch.zeros(batch_size, 2, dtype=torch.int64, device=device)
    place = adaptive.key_place.expand(batch_size, heads, -1, -1)

    def linear() -> Tensor:
        scores = (flat * plain.scale) @ keys.mT
        return cal_rel_pos_type(
            scores, flat, False, [rows, columns], size, plain.rel_pos_h, plain.rel_pos_w
        )

    def circular() -> Tensor:
        to_rows, to_columns = adaptive.position_scores(queries, shift)
        unused = flat.new_zeros(()).expand(*flat.shape[:3], adaptive.unused)
        extended = torch.cat([flat * adaptive.scale, to_rows, to_columns, unused], dim=-1)
        return extended @ torch.cat([keys, place], dim=-1).mT

    return {f"rpe/{PLAIN}": linear, f"rpe/{ADAPTIVE}": circular}


def invariance(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    images: int = 4,
    shifts: int = 2,
    dtype: Dtype = "float32",
) -> Values:
    """Compare the logits of untrained models on photographs before and after shifts (shift, Eq. 3).

    Each of `images` crops is circularly shifted by `shifts` random offsets of its own. Other
    arguments, values and errors: `replication.measures.untrained_invariance.logits_under`.
    """
    group_on = functools.partial(random_shifts, shifts=shifts, seed=context.seed)
    return logits_under(context, models, group_on, images, dtype)
