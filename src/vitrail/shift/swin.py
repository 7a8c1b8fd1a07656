"""A-Swin and A-SwinV2 (shift, Sec. 4, Sec. 5.1), on timm's own parts.

The one idea: a stage begins with a strided operation (tokenisation, later merging) and then lays a
grid of windows over its tokens. Both choose where by the energy of the tokens, once, and roll them
there. What follows is timm's blocks, on a circle: a window that wraps around the border is one like
the others, so nothing is masked.

    model = timm.create_model("a_swin_tiny_patch4_window7_224", selection="fast")

With ``"fast"`` (see `tokenization`) a stage's tokens are rolled to its windows and to the strongest
phase of the next merging at once. In the first stage one window of the grid is chosen, too, so that
from there on tokens of shifted images are in the same order and have the same bits: those of a
matrix product may depend on where it lies in memory.

SwinV2 normalises the output of merging, so energies are those before that norm. Its windows are
even: the grid of windows alone settles the phase of the next merging, and A-PMerge is redundant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from timm.models import checkpoint_seq, register_model
from timm.models.swin_transformer import (
    SwinTransformer,
    SwinTransformerBlock,
    checkpoint_filter_fn,
    window_partition,
    window_reverse,
)
from timm.models.swin_transformer_v2 import PatchMerging as PatchMergingV2
from timm.models.swin_transformer_v2 import SwinTransformerV2, SwinTransformerV2Block
from timm.models.swin_transformer_v2 import checkpoint_filter_fn as checkpoint_filter_fn_v2
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.shift.features import PlacedStages, build, default_cfgs_of
from vitrail.shift.polyphase import roll
from vitrail.shift.tokenization import (
    MERGED,
    Selecting,
    Selection,
    adaptive_conv,
    adaptive_merge,
    prepare_correlation,
)
from vitrail.shift.torus import Frame, Size, first_phase
from vitrail.shift.windows import window_offsets

for _node in ("adaptive_conv", "roll", "window_partition", "window_reverse"):  # of a traced graph
    torch.fx.wrap(_node)


def merging_parts(merging: Any) -> tuple[Callable[[Tensor], Tensor], nn.Module | None]:
    """Split timm's merging of stacked patches at the place where energies are taken.

    That is before a norm of the output, as SwinV2 has, which leaves all tokens alike.
    """
    if isinstance(merging, PatchMergingV2):
        return merging.reduction, merging.norm
    return lambda patches: merging.reduction(merging.norm(patches)), None


@torch.fx.wrap
def _merge(x: Tensor, merging: nn.Module, selection: Selection) -> tuple[Tensor, Tensor]:
    """Return merged tokens, before a norm of them, and the phase of their grid."""
    return adaptive_merge(x, merging_parts(merging)[0], selection)


@torch.fx.wrap
def _window_offset(x: Tensor, window: Size, merges: bool, anchored: bool) -> Tensor:
    """Choose where windows begin and, if asked, the phase of the next merging by windows, too."""
    windows = [window, (MERGED, MERGED)] if merges else [window]
    offset, *phase = window_offsets(x, windows, anchored=anchored)
    if not phase:
        return offset
    # An odd window later, windows are the same and the phase is the other one.
    other = (phase[0] - offset) % MERGED
    steps = [side * (side % MERGED) * axis for side, axis in zip(window, other.T, strict=True)]
    return offset + torch.stack(steps, dim=1)


class CircularWindows(nn.Module):
    """Makes timm's block of Swin or SwinV2 circular; comes before it in the bases of a class.

    Source: shift, Eq. 9.
    """

    window_size: Size
    shift_size: Size
    attn: Any

    def get_attn_mask(self, *_: Any, **__: Any) -> None:
        """Mask nothing."""

    def _attn(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        down, right = self.shift_size
        shifted = x.roll((-down, -right), (1, 2)) if down or right else x
        windows = self.attn(window_partition(shifted, self.window_size).flatten(1, 2))
        attended: Tensor = window_reverse(windows, self.window_size, height, width)
        return attended.roll((down, right), (1, 2)) if down or right else attended


class AdaptiveStages(Selecting, PlacedStages):
    """Makes timm's Swin or SwinV2 adaptive; comes before it in the bases of a class.

    Source: shift, Sec. 5.7.

    Args:
        args: of timm's model.
        selection: "paper", "fast" or "none", see the module.
        adaptive_tokens: use A-token (shift, Eq. 13), else tokens begin at the first pixel.
        adaptive_windows: use A-WSA (shift, Eq. 20), else windows begin at the first token.
        adaptive_merging: use A-PMerge (shift, Eq. 23), else patches begin at the first token.
        attention_mask: keep timm's mask of windows that wrap around; it breaks equivariance.
        kwargs: of timm's model.

    Raises:
        VitrailError: the windows do not divide the image, or `selection` is unknown.
    """

    circular_block: type[CircularWindows]
    adaptive_tokens = adaptive_windows = adaptive_merging = True
    attention_mask = False
    layers: Any
    patch_embed: Any

    def __init__(
        self,
        *args: Any,
        selection: Selection = "paper",
        adaptive_tokens: bool = True,
        adaptive_windows: bool = True,
        adaptive_merging: bool = True,
        attention_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.adaptive_tokens, self.adaptive_windows = adaptive_tokens, adaptive_windows
        self.adaptive_merging, self.attention_mask = adaptive_merging, attention_mask
        self.make_adaptive(selection)

    def make_adaptive(self, selection: Selection) -> None:
        """Complete what timm has built: see `Selecting`."""
        super().make_adaptive(selection)
        if selection == "none":
            self.adaptive_tokens = self.adaptive_windows = self.adaptive_merging = False
        # An anchor would hide what an ablation breaks.
        modules = (self.adaptive_tokens, self.adaptive_windows, self.adaptive_merging)
        self.anchored = all(modules) and not self.attention_mask
        self.merged_by_windows = selection == "fast" and all(modules[1:])
        if not self.attention_mask:
            for block in (block for stage in self.layers for block in stage.blocks):
                block.__class__ = self.circular_block
                block.init_non_persistent_buffers()  # the mask is one of them
        prepare_correlation(self.patch_embed.proj)
        self._check_fit()

    def set_input_size(self, *args: Any, **kwargs: Any) -> None:
        """Change the size of images, patches or windows, by timm's rules.

        Raises:
            VitrailError: the windows do not divide the image.
        """
        super().set_input_size(*args, **kwargs)  # type: ignore[misc]
        prepare_correlation(self.patch_embed.proj)
        self._check_fit()

    def _check_fit(self) -> None:
        size, stride = self.patch_embed.img_size, self.patch_embed.proj.stride[0]
        _require_fit(size, stride, self._windows())

    @property
    def stages(self) -> Any:
        """What timm calls the layers."""
        return self.layers

    def _stages(self, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Frame]]:
        """Run stage by stage; yield the tokens ``(B, H, W, C)`` of each, twice, and their grid."""
        _require_size(images, self.patch_embed.img_size, self.patch_embed.strict_img_size)
        _require_fit(
            (images.shape[2], images.shape[3]), self.patch_embed.proj.stride[0], self._windows()
        )
        x, frame = images, Frame.of(images)
        for index, stage in enumerate(self.layers):
            if index == 0:
                x, phase = self._tokenize(x)
                stride, norm = self.patch_embed.proj.stride[0], self.patch_embed.norm
            else:
                selects = self.adaptive_merging and not self.merged_by_windows
                x, phase = _merge(x, stage.downsample, self.selection if selects else "none")
                stride, norm = MERGED, merging_parts(stage.downsample)[1]
            frame = frame.sampled(phase, stride)
            if self.adaptive_windows:
                offset = self._window_offset(index, x)
                x, frame = roll(x, offset), frame.rolled(offset)
            x = x if norm is None else norm(x)
            if stage.grad_checkpointing:
                x = checkpoint_seq(stage.blocks, x)
            else:
                for block in stage.blocks:
                    x = block(x)
            yield x, x, frame

    def _tokenize(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens, before their norm, and the phase of their grid."""
        if self.adaptive_tokens:
            return adaptive_conv(images, self.patch_embed.proj, self.selection)
        return self.patch_embed.proj(images).permute(0, 2, 3, 1), first_phase(images)

    def _window_offset(self, index: int, x: Tensor) -> Tensor:
        """Choose where a stage's windows begin and, with "fast", the phase of the next merging."""
        window, is_last = self.layers[index].blocks[0].window_size, index + 1 == len(self.layers)
        merges = self.merged_by_windows and not is_last and any(side % MERGED for side in window)
        return _window_offset(x, window, merges, self.anchored and index == 0)

    def _windows(self) -> list[Size]:
        return [stage.blocks[0].window_size for stage in self.layers]


@torch.fx.wrap
def _require_size(images: Tensor, built_for: Size, strict: bool) -> None:
    size = tuple(images.shape[2:])
    if strict and size != tuple(built_for):
        raise VitrailError(
            f"images of {size[0]}x{size[1]} pixels do not fit the model, which is built for "
            f"{built_for[0]}x{built_for[1]}: give it this img_size, or dynamic_img_size=True"
        )


@torch.fx.wrap
def _require_fit(size: Size, patch: int, windows: list[Size]) -> None:
    """Refuse images that the windows of a stage do not divide."""
    strides = [patch * MERGED**index for index in range(len(windows))]
    if not any(
        pixels % (stride * side)
        for stride, window in zip(strides, windows, strict=True)
        for pixels, side in zip(size, window, strict=True)
    ):
        return
    rows, columns = (max(sides) for sides in zip(*windows, strict=True))
    raise VitrailError(
        f"images of {size[0]}x{size[1]} pixels do not fit windows of {rows}x{columns} tokens: "
        f"use multiples of {strides[-1] * rows}x{strides[-1] * columns} pixels "
        f"(stride {strides[-1]} of the last stage, times its window)"
    )


class CircularBlock(CircularWindows, SwinTransformerBlock):
    """timm's block of Swin, on a circle."""


class AdaptiveSwin(AdaptiveStages, SwinTransformer):
    """A-Swin: see `AdaptiveStages` for the arguments."""

    circular_block = CircularBlock


def _swin(size: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"a_swin_{size}_patch4_window7_224"
    options = {"patch_size": 4, "window_size": 7, "pretrained_filter_fn": checkpoint_filter_fn}
    return build(AdaptiveSwin, name, pretrained, **{**options, **kwargs})


_SWIN = [f"swin_{size}_patch4_window7_224" for size in ("tiny", "small", "base", "large")]
_SWINV2 = [f"swinv2_{size}_window8_256" for size in ("tiny", "small", "base")]
default_cfgs = default_cfgs_of({f"a_{plain}": plain for plain in (*_SWIN, *_SWINV2)})

TINY = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
SMALL = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
BASE = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
LARGE = {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)}


@register_model
def a_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-T, the paper's."""
    return _swin("tiny", pretrained, **{**TINY, **kwargs})


@register_model
def a_swin_small_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-S."""
    return _swin("small", pretrained, **{**SMALL, **kwargs})


@register_model
def a_swin_base_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-B."""
    return _swin("base", pretrained, **{**BASE, **kwargs})


@register_model
def a_swin_large_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-Swin-L."""
    return _swin("large", pretrained, **{**LARGE, **kwargs})


class CircularBlockV2(CircularWindows, SwinTransformerV2Block):
    """timm's block of SwinV2, on a circle."""


class AdaptiveSwinV2(AdaptiveStages, SwinTransformerV2):
    """A-SwinV2: see `AdaptiveStages` for the arguments."""

    circular_block = CircularBlockV2


def _swinv2(size: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    name = f"a_swinv2_{size}_window8_256"
    options = {"window_size": 8, "pretrained_filter_fn": checkpoint_filter_fn_v2}
    return build(AdaptiveSwinV2, name, pretrained, **{**options, **kwargs})


@register_model
def a_swinv2_tiny_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-T, the paper's."""
    return _swinv2("tiny", pretrained, **{**TINY, **kwargs})


@register_model
def a_swinv2_small_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-S."""
    return _swinv2("small", pretrained, **{**SMALL, **kwargs})


@register_model
def a_swinv2_base_window8_256(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """A-SwinV2-B."""
    return _swinv2("base", pretrained, **{**BASE, **kwargs})
