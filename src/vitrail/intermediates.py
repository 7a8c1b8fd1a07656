"""timm's contract for features of Vision Transformers: ``forward_intermediates`` and pruning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitrail.errors import require_known

OutputFormat = Literal["NCHW", "NLC"]


class Intermediates(nn.Module):
    """A model of `blocks`, a `norm` and a head; `num_prefix_tokens` tokens precede the patches."""

    blocks: Any
    norm: Any
    num_prefix_tokens: int

    def _grid(self, images: Tensor) -> tuple[int, int]:
        """Return the number of rows and of columns of patches of `images`."""
        raise NotImplementedError

    def _outputs(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the output of each block on images ``(B, I, H, W)``."""
        raise NotImplementedError

    def _tokens(self, output: Tensor, norm: bool) -> Tensor:
        """Return the tokens ``(B, T, C)`` of a block's output, normalised if `norm`."""
        tokens: Tensor = self.norm(output) if norm else output
        return tokens

    def reset_classifier(self, num_classes: int, global_pool: Any = None) -> None:
        """Replace the head; each model defines how."""
        raise NotImplementedError

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the blocks after the last of `indices` and, if asked, norm and head.

        Returns:
            `indices` as a list of non-negative integers.
        """
        taken, last = feature_take_indices(len(self.blocks), indices)
        self.blocks = self.blocks[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return list(taken)

    def forward_intermediates(
        self,
        images: Tensor,
        indices: int | list[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: OutputFormat = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Return (final tokens, outputs) of images ``(B, I, H, W)``, or the outputs alone.

        The outputs are those of the blocks in `indices`, ``(B, C, h, w)`` for "NCHW" and
        ``(B, h w, C)`` for "NLC". The arguments are timm's. Raises VitrailError if `output_fmt` is
        unknown, or the model does not take images of this size.
        """
        require_known("output_fmt", output_fmt, get_args(OutputFormat))
        taken, last = feature_take_indices(len(self.blocks), indices)
        outputs: list[Any] = []
        for index, output in enumerate(self._outputs(images)):
            if index in taken:
                tokens = self._tokens(output, norm)
                prefix, patches = tokens.tensor_split([self.num_prefix_tokens], dim=1)
                if output_fmt == "NCHW":
                    patches = patches.mT.unflatten(2, self._grid(images)).contiguous()
                outputs.append((patches, prefix) if return_prefix_tokens else patches)
            if stop_early and index == last:
                break
        return outputs if intermediates_only else (self._tokens(output, norm=True), outputs)
