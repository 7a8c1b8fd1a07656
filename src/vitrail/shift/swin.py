"""A-Swin and A-SwinV2 (shift, Sec. 4, Sec. 5.1), on timm's own parts.

All of A-Swin in one file, equation by equation: examples/a_swin_in_one_file.py. The code of each
equation of the paper: docs/equations/shift.md.

Three modules of Swin are replaced, each by one method here. With ``selection="per_layer"``, which
is the paper's choice and the default, they call:

- `_tokenize`, A-token (Eq. 13-14): `selection.PerLayerSelection.forward`. It scores the grids by
  `energies.correlation_energies` where this is cheaper, as for Swin-T, and takes the best by
  `polyphase.strongest_grid`. Elsewhere it computes the tokens at every pixel, and takes the best
  grid of them by `polyphase.strongest_phase`.
- `_lay_windows`, A-WSA (Eq. 19): `choose_windows`, which calls `selection.window_offsets`. There
  `_window_means` is Eq. 17-18, `_scores` is G, and `strongest` is the arg max of Eq. 20. Then the
  tokens are rolled (S of Eq. 1): by `polyphase.roll`, or at the anchor by `selection.tokens_at`.
- `_merge`, A-PMerge (Eq. 21-23): `selection.PerLayerSelection.merge_patches`. It merges the patch
  at every token, and takes the best grid by `polyphase.strongest_phase`.

`polyphase.components` are all the grids: of a tokeniser, the X^(m) that the paper defines below
Eq. 14. A *phase* is the row and the column, each below the stride, at which a grid begins. An
*offset* also says which token comes first (`polyphase`). `geometry.circular_conv` tokenises
(Eq. 5-6). `energies.overlapping_patches` concatenates the patch at every token (Eq. 22), and
`energies.merged_patches` the patches of one grid (Eq. 10). `geometry.Frame` records at which pixel
each token sits.

timm's blocks follow. `CircularWindows` cuts the tokens into windows, also across the borders of
the image (Eq. 9). Attention within a window is timm's. That of Swin is Eq. 7-8 with the position
bias of Eq. 11-12. SwinV2 takes the cosine of query and key times a learned factor instead of the
product in Eq. 7, and a small network computes the table of Eq. 12. timm's head takes the mean of
the tokens, which is the sum of Eq. 4 divided by their number, so their order does not matter
(Eq. 3). Eq. 19 chooses in every attention layer; here a stage chooses once, before its first block,
as the example of Sec. A2.2 does (`vitrail.extensions.polyphase_selection` can choose in every
layer). Each window holds the same tokens in the same order, so timm's relative position bias stays
as it is, and Eq. 24 (`adaptive_mvitv2`) is not needed.

    model = timm.create_model("a_swin_tiny_patch4_window7_224")  # per_layer, the paper's
    model = timm.create_model("a_swin_tiny_patch4_window7_224", selection="per_stage")  # ours

``"per_stage"`` is not in the paper (see `selection`): the tokens of a stage are rolled once, to
where its windows and the patches of the next merging begin.

With both, the *anchor* is chosen in the first stage, too: the window that comes first in memory.
The image is rolled to it and tokenised again (`selection.tokens_at`). The tokens of a shifted image
are then in the same order in memory as those of the image, and are equal bit for bit. So are the
results of all later layers. Without an anchor a convolution or a matrix product might round a token
differently at another place.

A LayerNorm gives all tokens about the same energy. So energies are taken before the norms that
follow a projection: before `patch_embed.norm`, and in SwinV2 before the norm of the merged tokens.
In Swin, the LayerNorm of a merging comes before its projection. It stays there, so y of Eq. 22 is
the projection of normalised patches, and not linear in the tokens as in the paper. The sides of
SwinV2's windows are even, so the grid of windows determines the phase of the next merging, and
equivariance does not need A-PMerge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from timm.models import checkpoint_seq, list_models, register_model, swin_transformer
from timm.models import swin_transformer_v2 as v2
from timm.models.swin_transformer import (
    SwinTransformer,
    SwinTransformerBlock,
    window_partition,
    window_reverse,
)
from timm.models.swin_transformer_v2 import PatchMerging as PatchMergingV2
from timm.models.swin_transformer_v2 import SwinTransformerV2, SwinTransformerV2Block
from torch import Tensor, nn
from torch.nn import functional

from vitrail.shift.energies import prepare_correlation
from vitrail.shift.features import StageModel, build, default_cfgs_of, require_size
from vitrail.shift.geometry import Frame, Size
from vitrail.shift.polyphase import roll
from vitrail.shift.selection import (
    MERGED,
    Adaptive,
    FixedSelection,
    Projection,
    require_windows,
    set_class,
    size_multiples,
    tokens_at,
)

# One node each of a traced graph.
for _node in (
    *("roll", "tokens_at", "require_size", "require_windows"),
    *("window_partition", "window_reverse", "padded"),
):
    torch.fx.wrap(_node)


class CircularWindows(nn.Module):
    """Mix-in that makes timm's block of Swin or SwinV2 circular: list it before timm's class.

    A window that wraps around the border is treated like all others, so nothing is masked.

    Source: shift, Eq. 9. In every second block of Swin, unless one window spans the map, the tokens
    are also rolled by `shift_size` before attention, and back after it. Eq. 9 lacks this roll; the
    text below it names it, as Swin's shifting scheme.
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


class CircularBlock(CircularWindows, SwinTransformerBlock):
    """timm's block of Swin, whose windows wrap around the borders."""


class CircularBlockV2(CircularWindows, SwinTransformerV2Block):
    """timm's block of SwinV2, whose windows wrap around the borders."""


class AdaptiveSwinBase(Adaptive, StageModel):
    """Mix-in that makes timm's Swin or SwinV2 adaptive: list it before timm's class.

    A model is made by its name (`timm.create_model`), or from a plain one by `Adaptive.of`. Both
    take the options of `make_adaptive`.

    Source: shift, Sec. 4.
    """

    circular_block: type[nn.Module]
    layers: Any
    patch_embed: Any

    def make_adaptive(
        self,
        selection: str,
        adaptive_tokens: bool = True,
        adaptive_windows: bool = True,
        adaptive_merging: bool = True,
        attention_mask: bool = False,
        dynamic_img_pad: bool = False,
    ) -> None:
        """Complete a model that timm has built: see `Adaptive`.

        Which grids are chosen if no other option is changed::

            selection    tokens    windows    merging
            per_layer    chosen    chosen     chosen
            per_stage    chosen    chosen     fixed: see below
            fixed        fixed     fixed      fixed

        With "per_stage" the patches of a merging begin at the first token, because the offset of
        the windows at the beginning of the stage was chosen for both. Windows of even sides
        determine the phase of the merging. If a side is odd, as Swin's 7, the phase is a second
        choice at the same place, and the offset contains it.

        The grid of a module that is switched off (shift, Sec. 5.7) is fixed; with "per_stage" and
        fixed windows that of merging is chosen. If all modules are on, without `attention_mask`,
        the first stage has an anchor, and the choices of later stages break no ties.

        Args:
            selection: "per_layer", "per_stage" or "fixed", see the module.
            adaptive_tokens: use A-token (shift, Eq. 13), else tokens begin at the first pixel.
            adaptive_windows: use A-WSA (shift, Eq. 20), else windows begin at the first token.
            adaptive_merging: use A-PMerge (shift, Eq. 23), else patches begin at the first token.
            attention_mask: keep timm's mask of windows that wrap around; it breaks equivariance.
            dynamic_img_pad: pad images with zeros, below and to the right, to what the windows
                divide, and crop the maps of features to the image; give it with dynamic_img_size.
                Logits and maps of images that are padded do not follow circular shifts.

        Raises:
            VitrailError: the windows do not divide the image, or `selection` is unknown.
        """
        if not dynamic_img_pad:
            self.require_fit(self.patch_embed.img_size)
        super().make_adaptive(selection)
        self.adaptive_merging, first = adaptive_merging, FixedSelection()
        self.dynamic_img_pad = dynamic_img_pad
        # With an anchor the model would be invariant even with a module switched off.
        modules = (adaptive_tokens, adaptive_windows, adaptive_merging)
        self.anchored = all(modules) and not attention_mask
        later = self.grid.behind_anchor() if self.anchored else self.grid
        self.token_grid = self.grid if adaptive_tokens else first
        self.window_grid = self.grid if adaptive_windows else first
        self.later_window_grid = later if adaptive_windows else first
        # With "per_stage" the offset of adaptive windows has already fixed the phase of merging.
        chooses = adaptive_merging and (self.grid.per_operation or not adaptive_windows)
        self.merge_grid = later if chooses else first
        if not attention_mask:
            for block in (block for stage in self.layers for block in stage.blocks):
                set_class(block, self.circular_block)
                block.init_non_persistent_buffers()  # the mask is one of them
        self.init_non_persistent_buffers()

    def init_non_persistent_buffers(self) -> None:
        """Make the tables for the tokeniser's scores, which are in no state dict."""
        prepare_correlation(self.patch_embed.proj)

    def _tokenize(self, images: Tensor, frame: Frame) -> tuple[Tensor, Frame]:
        """A-token: tokenise the chosen grid (shift, Eq. 13)."""
        conv = self.patch_embed.proj
        x, phase = self.token_grid(images, conv)
        return x, frame.sampled(phase, conv.stride[0])

    def _lay_windows(
        self, x: Tensor, frame: Frame, index: int, images: Tensor
    ) -> tuple[Tensor, Frame]:
        """A-WSA: roll the tokens of a stage to where its windows begin (shift, Eq. 19-20).

        At the anchor, the tokens of the first stage are computed again from `images`: see
        `selection.tokens_at`.
        """
        grid = self.later_window_grid if index else self.window_grid
        offset = grid.choose_windows(
            x,
            self.layers[index].blocks[0].window_size,
            merged=self.adaptive_merging and index + 1 < len(self.layers),
            anchored=self.anchored and index == 0,
        )
        if offset is None:
            return x, frame
        frame = frame.rolled(offset)
        if index == 0 and self.anchored and grid.anchors:
            return tokens_at(images, self.patch_embed.proj, frame), frame
        return roll(x, offset), frame

    def _merge(self, x: Tensor, frame: Frame, project: Projection) -> tuple[Tensor, Frame]:
        """A-PMerge: merge the chosen grid of patches (shift, Eq. 23)."""
        x, phase = self.merge_grid.merge_patches(x, project)
        return x, frame.sampled(phase, MERGED)

    def _stages(self, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Frame]]:
        """Run the stages: see `StageModel`.

        Yields tokens for the final norm, tokens of the feature map, both ``(B, H, W, C)``, and
        their frame. The first two differ only in models with a class token.
        """
        embed = self.patch_embed
        if self.dynamic_img_pad:
            images = padded(images, self.size_multiples)
        self.require_fit((images.shape[2], images.shape[3]))
        if embed.strict_img_size:
            require_size(images, embed.img_size, "give it this img_size, or dynamic_img_size=True")
        for index, stage in enumerate(self.layers):
            if index == 0:
                norm = embed.norm
                x, frame = self._tokenize(images, Frame.of(images))
            else:
                project, norm = merging_parts(stage.downsample)
                x, frame = self._merge(x, frame, project)
            x, frame = self._lay_windows(x, frame, index, images)
            x = x if norm is None else norm(x)
            if self.grid.per_block:
                for number, block in enumerate(stage.blocks):
                    if number:
                        x, frame = self._lay_windows(x, frame, index, images)
                    x = block(x)
            elif stage.grad_checkpointing:
                x = checkpoint_seq(stage.blocks, x)
            else:
                for block in stage.blocks:
                    x = block(x)
            yield x, x, frame

    @property
    def stages(self) -> Any:
        """The stages, which timm calls `layers`."""
        return self.layers

    def set_input_size(self, *args: Any, **kwargs: Any) -> None:
        """Change the size of images, patches or windows, by timm's rules.

        Raises:
            VitrailError: the windows do not divide the image.
        """
        super().set_input_size(*args, **kwargs)  # type: ignore[misc]
        self.init_non_persistent_buffers()
        if not self.dynamic_img_pad:
            self.require_fit(self.patch_embed.img_size)

    @property
    def size_multiples(self) -> Size:
        """Height and width, in pixels, whose multiples the windows of all stages divide."""
        windows, strides = self._windows()
        return size_multiples(strides, windows)

    def require_fit(self, size: Size) -> None:
        """Check that the windows divide images of `size`, (height, width) in pixels.

        Raises:
            VitrailError: the windows do not divide them.
        """
        windows, strides = self._windows()
        require_windows(size, strides, windows)

    def _windows(self) -> tuple[list[Size], list[int]]:
        """Return each stage's window, in tokens, and its stride, in pixels."""
        patch = self.patch_embed.proj.stride[0]
        windows = [stage.blocks[0].window_size for stage in self.layers]
        return windows, [patch * MERGED**index for index in range(len(windows))]


class AdaptiveSwin(AdaptiveSwinBase, SwinTransformer):
    """A-Swin: see `AdaptiveSwinBase`."""

    circular_block = CircularBlock


class AdaptiveSwinV2(AdaptiveSwinBase, SwinTransformerV2):
    """A-SwinV2: see `AdaptiveSwinBase`."""

    circular_block = CircularBlockV2


def padded(images: Tensor, multiples: Size) -> Tensor:
    """Pad images ``(B, C, height, width)`` with zeros, below and to the right, to multiples."""
    below, right = (
        -side % multiple for side, multiple in zip(images.shape[2:], multiples, strict=True)
    )
    return functional.pad(images, (0, right, 0, below))


def merging_parts(merging: Any) -> tuple[Projection, nn.Module | None]:
    """Split timm's merging of stacked patches at the place where energies are taken.

    That is before the norm of the output in SwinV2, because normalised tokens have about the same
    energy. In Swin the norm comes before the projection and belongs to the first part, so this part
    is not linear in the tokens, as y_k is in the paper (shift, Eq. 22).
    """
    if isinstance(merging, PatchMergingV2):
        return merging.reduction, merging.norm
    return lambda patches: merging.reduction(merging.norm(patches)), None


def converted(
    adaptive_type: type[AdaptiveSwinBase], plain: Callable[..., nn.Module]
) -> Callable[..., nn.Module]:
    """Return a function that builds an adaptive Swin, by `plain`, which builds timm's, and `of`.

    The function takes the options of `AdaptiveSwinBase.make_adaptive`, and passes all others to
    `plain`.
    """

    def create(selection: str = "per_layer", **options: Any) -> nn.Module:
        modules = {name: options.pop(name) for name in MODULES & options.keys()}
        return adaptive_type.of(plain(**options), selection, inplace=True, **modules)

    return create


MODULES = {
    *("adaptive_tokens", "adaptive_windows", "adaptive_merging"),
    *("attention_mask", "dynamic_img_pad"),
}
"""The options of `AdaptiveSwinBase.make_adaptive` besides the selection."""


def _entrypoint(timms: Any, adaptive_type: type[AdaptiveSwinBase], plain: str) -> Any:
    """Return the function that makes `plain`, a model of the module `timms` of timm, adaptive."""

    def create(pretrained: bool = False, **options: Any) -> nn.Module:
        model_type = converted(adaptive_type, getattr(timms, plain))
        filter_fn = timms.checkpoint_filter_fn
        return build(model_type, name, pretrained, pretrained_filter_fn=filter_fn, **options)

    name = create.__name__ = create.__qualname__ = f"a_{plain}"
    create.__doc__ = f"Make timm's `{plain}` shift-equivariant: see `AdaptiveSwinBase`."
    return create


def _swin(plain: str) -> Any:
    return _entrypoint(swin_transformer, AdaptiveSwin, plain)


def _swinv2(plain: str) -> Any:
    return _entrypoint(v2, AdaptiveSwinV2, plain)


_MODULES_OF_TIMM = ("swin_transformer", "swin_transformer_v2")
default_cfgs = default_cfgs_of(
    {f"a_{plain}": plain for module in _MODULES_OF_TIMM for plain in list_models(module=module)}
)

# Every Swin and SwinV2 of timm, under its name with the prefix a_.
a_swin_tiny_patch4_window7_224 = register_model(_swin("swin_tiny_patch4_window7_224"))
a_swin_small_patch4_window7_224 = register_model(_swin("swin_small_patch4_window7_224"))
a_swin_base_patch4_window7_224 = register_model(_swin("swin_base_patch4_window7_224"))
a_swin_base_patch4_window12_384 = register_model(_swin("swin_base_patch4_window12_384"))
a_swin_large_patch4_window7_224 = register_model(_swin("swin_large_patch4_window7_224"))
a_swin_large_patch4_window12_384 = register_model(_swin("swin_large_patch4_window12_384"))
a_swin_s3_tiny_224 = register_model(_swin("swin_s3_tiny_224"))
a_swin_s3_small_224 = register_model(_swin("swin_s3_small_224"))
a_swin_s3_base_224 = register_model(_swin("swin_s3_base_224"))
a_swinv2_tiny_window8_256 = register_model(_swinv2("swinv2_tiny_window8_256"))
a_swinv2_tiny_window16_256 = register_model(_swinv2("swinv2_tiny_window16_256"))
a_swinv2_small_window8_256 = register_model(_swinv2("swinv2_small_window8_256"))
a_swinv2_small_window16_256 = register_model(_swinv2("swinv2_small_window16_256"))
a_swinv2_base_window8_256 = register_model(_swinv2("swinv2_base_window8_256"))
a_swinv2_base_window16_256 = register_model(_swinv2("swinv2_base_window16_256"))
a_swinv2_base_window12_192 = register_model(_swinv2("swinv2_base_window12_192"))
a_swinv2_base_window12to16_192to256 = register_model(_swinv2("swinv2_base_window12to16_192to256"))
a_swinv2_base_window12to24_192to384 = register_model(_swinv2("swinv2_base_window12to24_192to384"))
a_swinv2_large_window12_192 = register_model(_swinv2("swinv2_large_window12_192"))
a_swinv2_large_window12to16_192to256 = register_model(_swinv2("swinv2_large_window12to16_192to256"))
a_swinv2_large_window12to24_192to384 = register_model(_swinv2("swinv2_large_window12to24_192to384"))
