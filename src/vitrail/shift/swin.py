"""A-Swin and A-SwinV2 (shift, Sec. 4, Sec. 5.1), on timm's own parts.

Three modules of Swin are replaced, each by one method here. It calls what computes the equations:

- `_tokenize`, A-token (Eq. 13): `grid_selection.PaperGrid.forward`, with F of Eq. 14 from
  `autocorrelation` where that is cheaper, else from dense tokens by `polyphase.strongest_phase`.
- `_lay_windows`, A-WSA (Eq. 19): energies (Eq. 17-18) by `windows.window_energies`, the choice
  (Eq. 20) by `windows.window_offset`; then `polyphase.roll` (S of Eq. 1) rolls the tokens.
- `_merge`, A-PMerge (Eq. 21-23): `grid_selection.PaperGrid.merge`, by `polyphase.strongest_phase`.

`polyphase.grids` are the grids of Eq. 15-16, `polyphase.strongest` is every arg max. timm's blocks
follow, on a circle (Eq. 7-9: `circular_blocks`). Its head takes the mean of the tokens (Eq. 4), so
their order does not matter (Eq. 3). Eq. 19 chooses in every attention layer; here a stage chooses
once, before its first block (as the example of Sec. A2.2; `polyphase_selection` has the other
reading). Each window holds the same tokens in the same order, so timm's relative bias (Eq. 11-12)
stays, without `adaptive_mvitv2`'s Eq. 24.

    model = timm.create_model("a_swin_tiny_patch4_window7_224", selection="fast")

With ``"fast"`` (see `grid_selection`) one roll serves a stage's windows and the next merging, whose
patches then begin at token 0. In the first stage the *anchor* is chosen, too: the window that comes
first in memory. The image is rolled to it and tokenised again (`grid_selection.tokens_at`). The
tokens of a shifted image are then in the same memory order as those of the image and have the same
bits, and so has all that follows: a convolution or a matrix product may round differently at
another place.

SwinV2 has a norm behind the projection of merging, which leaves all tokens with about the same
energy, so energies are those before that norm. The sides of its windows are even, so the grid of
windows fixes the phase of the next merging, and equivariance does not need A-PMerge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from timm.models import checkpoint_seq
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import PatchMerging as PatchMergingV2
from timm.models.swin_transformer_v2 import SwinTransformerV2
from torch import Tensor, nn

from vitrail.shift.autocorrelation import prepare_correlation
from vitrail.shift.circular_blocks import CircularBlock, CircularBlockV2
from vitrail.shift.features import StageModel, require_size
from vitrail.shift.grid_selection import (
    MERGED,
    Adaptive,
    FirstGrid,
    Projection,
    Selection,
    set_class,
    tokens_at,
)
from vitrail.shift.polyphase import roll
from vitrail.shift.torus import Frame, Size
from vitrail.shift.windows import require_windows

# One node each of a traced graph.
for _node in ("roll", "tokens_at", "require_size", "require_windows"):
    torch.fx.wrap(_node)


class AdaptiveSwinBase(Adaptive, StageModel):
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

    circular_block: type[nn.Module]
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

    def make_adaptive(self, selection: str) -> None:
        """Complete what timm has built: see `Adaptive`."""
        super().make_adaptive(selection)
        first, merges = FirstGrid(), self.adaptive_merging
        # An anchor rolls the whole shift away: with it, an ablation would change nothing.
        modules = (self.adaptive_tokens, self.adaptive_windows, merges)
        self.anchored = all(modules) and not self.attention_mask
        later = self.grid.behind_anchor() if self.anchored else self.grid
        self.token_grid = self.grid if self.adaptive_tokens else first
        self.window_grid = self.grid if self.adaptive_windows else first
        self.later_window_grid = later if self.adaptive_windows else first
        # With "fast", the windows have already fixed the phase of merging, if they are adaptive.
        chooses = merges and (self.grid.per_operation or not self.adaptive_windows)
        self.merge_grid = later if chooses else first
        if not self.attention_mask:
            for block in (block for stage in self.layers for block in stage.blocks):
                set_class(block, self.circular_block)
                block.init_non_persistent_buffers()  # the mask is one of them
        self.init_non_persistent_buffers()
        self._check_fit(self.patch_embed.img_size)

    def init_non_persistent_buffers(self) -> None:
        """Make the tables of the tokeniser's scores, which no checkpoint holds."""
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

        The first stage's are computed again from `images`, at the anchor: see
        `grid_selection.tokens_at`.
        """
        grid = self.later_window_grid if index else self.window_grid
        offset = grid.windows(
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
        x, phase = self.merge_grid.merge(x, project)
        return x, frame.sampled(phase, MERGED)

    def _stages(self, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Frame]]:
        """Run stage by stage; yield what `StageModel` asks for.

        The tokens ``(B, H, W, C)`` are yielded twice, as input of the final norm and as the feature
        map, which differ only where there is a class token. The third is their frame.
        """
        embed = self.patch_embed
        self._check_fit((images.shape[2], images.shape[3]))
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
            if self.grid.per_layer:
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
        """What timm calls the layers."""
        return self.layers

    def set_input_size(self, *args: Any, **kwargs: Any) -> None:
        """Change the size of images, patches or windows, by timm's rules.

        Raises:
            VitrailError: the windows do not divide the image.
        """
        super().set_input_size(*args, **kwargs)  # type: ignore[misc]
        self.init_non_persistent_buffers()
        self._check_fit(self.patch_embed.img_size)

    def _check_fit(self, size: Size) -> None:
        patch = self.patch_embed.proj.stride[0]
        windows = [stage.blocks[0].window_size for stage in self.layers]
        strides = [patch * MERGED**index for index in range(len(windows))]
        require_windows(size, strides, windows)


class AdaptiveSwin(AdaptiveSwinBase, SwinTransformer):
    """A-Swin: see `AdaptiveSwinBase` for the arguments."""

    circular_block = CircularBlock


class AdaptiveSwinV2(AdaptiveSwinBase, SwinTransformerV2):
    """A-SwinV2: see `AdaptiveSwinBase` for the arguments."""

    circular_block = CircularBlockV2


def merging_parts(merging: Any) -> tuple[Projection, nn.Module | None]:
    """Split timm's merging of stacked patches at the place where energies are taken.

    That is before a norm of the output, as SwinV2 has, which leaves all tokens alike.
    """
    if isinstance(merging, PatchMergingV2):
        return merging.reduction, merging.norm
    return lambda patches: merging.reduction(merging.norm(patches)), None
