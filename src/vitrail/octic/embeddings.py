"""Patches and positions: how an image becomes octic features (octic, Sec. 3.3.1).

Filters of patches and position encodings are square grids of numbers that transform like an irrep.
Such a grid is determined by one quadrant, so the weights are quadrants (`unfold_quadrants`):

- A1 to B2: turn the top-left quadrant about the centre of the square by k = 0 to 3 quarters, and
  multiply copy k by the k-th power of the irrep's number for r, 1 or -1. The copies fill the
  square. Then add the mirrored square times the irrep's number for m, 1 or -1.
- E: the lower half is the mirror image of the upper half, the right half is minus the mirror image
  of the left half. This square is row 0. Row 1 is row 0 turned anticlockwise by a quarter.

The classes `Steerable*` contain what an octic layer and a flip-equivariant layer (`flip`) share.
`group` has the irreps and their matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from timm.layers import PatchEmbed
from torch import Tensor, nn
from torch.nn import functional

from vitrail.errors import VitrailError
from vitrail.octic.group import from_channels, to_channels
from vitrail.octic.layers import channels_of_plane, pad_to_a1

TOKEN_STD = 8 * 0.02
"""Initial standard deviation of the CLS token: 8 x 0.02, the published value.

Only A1, one of the token's eight planes, is not zero. The free weights of a position encoding have
this value divided by sqrt(2). A plane of A1, A2, B1 or B2 adds two of them and so has this value, a
plane of E has one.
"""

# The factors by which a quarter turn and a mirroring multiply A1, A2, B1, B2.
_TURN = (1, 1, -1, -1)
_MIRROR = (1, -1, 1, -1)


def unfold_quadrants(quadrants: Tensor) -> Tensor:
    """Make square grids that transform like the irreps, each from a quadrant without constraints.

    Each plane of A1 to B2 has its own quadrant; the two rows of a copy of E share one quadrant.

    Args:
        quadrants: ``(6, ..., q, q)`` of A1, A2, B1, B2 and E's two copies.

    Returns:
        ``(8, ..., 2q, 2q)``: planes P_0 to P_7 for which, with every element g and its matrix
        ``R = isotypic(g)``, ``transform(P_j, g)`` is the sum over i of ``R[i, j] P_i``.
    """
    lines = map(_unfold_line, quadrants[:4], _TURN, _MIRROR)
    pairs = [row for quadrant in quadrants[4:] for row in _unfold_pair(quadrant)]
    return torch.stack([*lines, *pairs])


def _unfold_line(quadrant: Tensor, turn: int, mirror: int) -> Tensor:
    turned = [quadrant.rot90(k, (-2, -1)) for k in range(4)]
    left = torch.cat([turned[0], turn * turned[1]], dim=-2)
    right = torch.cat([turn * turned[3], turned[2]], dim=-2)
    grid = torch.cat([left, right], dim=-1)
    return grid + mirror * grid.flip(-1)


def fold_quadrants(planes: Tensor) -> Tensor:
    """Return quadrants ``(6, ..., q, q)`` that unfold to these planes ``(8, ..., 2q, 2q)``.

    The planes must have the symmetry of those that `unfold_quadrants` returns.
    """
    side = planes.shape[-1] // 2
    corners = planes[..., :side, :side]
    return torch.cat([corners[:4] / 2, corners[4::2]])


def _unfold_pair(quadrant: Tensor) -> tuple[Tensor, Tensor]:
    left = torch.cat([quadrant, quadrant.flip(-2)], dim=-2)
    row = torch.cat([left, -left.flip(-1)], dim=-1)
    return row, row.rot90(1, (-2, -1))


class SteerablePatchEmbed(nn.Module):
    """Patch embedding ``(B, I, H, W)`` to ``(planes, B, N, c)`` by a convolution of stride p.

    Source: octic, Sec. 3.3.1, Example 3.7.

    A subclass makes `filters`, ``(planes, c, I, p, p)``, from `weight`, which has no constraints.
    `bias`, shape ``(c)``, is added to the first plane only. `grid_size` is the number of patches
    (down, across) of an image of `img_size` pixels.

    Args:
        img_size: side of square images in pixels; `forward` takes other sizes, too.
        patch_size: p in pixels, even.
        shape: shape of `weight`.
        fan_in: fan-in of a filter, for the initial values that torch gives a convolution.

    Raises:
        VitrailError: `patch_size` is odd.
    """

    filters: Callable[[], Tensor]

    def __init__(self, img_size: int, patch_size: int, shape: tuple[int, ...], fan_in: int) -> None:
        super().__init__()
        if patch_size % 2:
            raise VitrailError(f"patches have {patch_size} pixels; give an even patch_size")
        self.patch_size = (patch_size, patch_size)
        self.grid_size = (img_size // patch_size, img_size // patch_size)
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(shape[1]).uniform_(-bound, bound))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply `fn` to the filters ``(planes, c, I, ...)`` as a bank ``(planes c, I, ...)``.

        The bank has four axes: `Module.to(memory_format=torch.channels_last)` refuses a tensor of
        five axes.
        """

        def convert(x: Tensor) -> Tensor:
            return fn(x.flatten(0, 1)).unflatten(0, x.shape[:2]) if x.ndim == 5 else fn(x)

        return super()._apply(convert, recurse)

    def dynamic_feat_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        """Count the patches (down, across) of an image of (height, width) pixels."""
        return img_size[0] // self.patch_size[0], img_size[1] // self.patch_size[1]

    def set_input_size(self, img_size: tuple[int, int]) -> None:
        """Change `grid_size` to that of images of (height, width) pixels."""
        self.grid_size = self.dynamic_feat_size(img_size)

    def forward(self, images: Tensor) -> Tensor:
        """Embed images whose sides are multiples of the patch's."""
        filters = self.filters()
        bias = pad_to_a1(self.bias, len(filters)).flatten()
        x = functional.conv2d(images, filters.flatten(0, 1), bias, self.patch_size)
        return x.unflatten(1, (len(filters), -1)).flatten(3).permute(1, 0, 3, 2)


class OcticPatchEmbed(SteerablePatchEmbed):
    """Equivariant patch embedding (octic, Sec. 3.3.1), ``(B, I, H, W)`` to ``(8, B, N, c)``.

    `weight`, shape ``(6, c, I, p/2, p/2)``, has quadrants of A1, A2, B1, B2 and E's two copies. It
    is drawn as for a convolution with a kernel of p/2 x p/2 pixels. `bias`, shape ``(c)``, is added
    to A1 only.

    Raises:
        VitrailError: `patch_size` is odd, or `embed_dim` is no multiple of 8.
    """

    def __init__(
        self, img_size: int = 224, patch_size: int = 16, in_chans: int = 3, embed_dim: int = 768
    ) -> None:
        c, q = channels_of_plane(embed_dim), patch_size // 2
        super().__init__(img_size, patch_size, (6, c, in_chans, q, q), fan_in=in_chans * q * q)

    def filters(self) -> Tensor:
        """Return the filters of the eight planes ``(8, c, I, p, p)``.

        Fig. 6 of the paper shows the principal components of learned ones.
        """
        # With these factors a filter of E has the squared norm of its quadrant w, ||w||^2. A filter
        # of A1 or B2 has ||w||^2 + <w, w^T>, one of A2 or B1 has ||w||^2 - <w, w^T>. For
        # independent entries of mean 0 the second term is on average 2/p of the first.
        lines, pairs = math.sqrt(2) / 4 * self.weight[:4], self.weight[4:] / 2
        return unfold_quadrants(torch.cat([lines, pairs]))


class SteerablePositionEmbedding(nn.Module):
    """Position encoding ``(planes, 1, N, c)`` that transforms with the grid of tokens.

    For a grid of another size than that of the weights, the encoding is interpolated: bicubic, and
    centred, since the group does not move the centre. An offset such as DINOv2's would break the
    equivariance.

    `weight` has those entries of each plane's grid (G, G) that are free; the symmetry determines
    the others. A subclass defines `unfold`, which maps `weight` to ``(planes, c, G, G)``, and its
    inverse `fold`.

    Raises:
        VitrailError: `grid`, G, is odd.
    """

    unfold: Callable[[Tensor], Tensor]
    fold: Callable[[Tensor], Tensor]

    def __init__(self, grid: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.grid = (grid, grid)
        require_even(self.grid)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.trunc_normal_(self.weight, std=TOKEN_STD / math.sqrt(2))

    def forward(self, grid: tuple[int, int] | None = None) -> Tensor:
        """Return the encoding of a grid (rows, columns) of tokens, by default that of the weights.

        Raises:
            VitrailError: a side of `grid` is odd.
        """
        planes = self.unfold(self.weight)
        if grid is not None and grid != self.grid:
            require_even(grid)
            planes = _resized(planes, grid)
        return planes.flatten(2).mT.unsqueeze(1)

    def resampled(self, weight: Tensor, grid: int) -> Tensor:
        """Return the `weight` for `grid` x `grid` tokens from the `weight` for any other grid.

        Its encoding is the interpolated encoding that `forward` returns for this grid.

        Raises:
            VitrailError: `grid` is odd.
        """
        require_even((grid, grid))
        return self.fold(_resized(self.unfold(weight), (grid, grid)))

    def set_grid(self, grid: int) -> None:
        """Resample the weights to `grid` x `grid` tokens; raises VitrailError as `resampled`."""
        if (grid, grid) != self.grid:
            self._set_weight(self.resampled(self.weight.detach(), grid))
            self.grid = (grid, grid)

    def table(self) -> Tensor:
        """Return the encoding as a dense table ``(1, N, C)``, channels plane by plane."""
        return to_channels(self())

    def set_table(self, table: Tensor) -> None:
        """Set the weights to those whose `table` is this dense table ``(1, N, C)``.

        The table must have the symmetry and the grid of the present one.
        """
        planes = from_channels(table, len(self.unfold(self.weight)))
        self._set_weight(self.fold(planes.squeeze(1).mT.unflatten(2, self.grid)))

    def _set_weight(self, weight: Tensor) -> None:
        self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)


def _resized(planes: Tensor, grid: tuple[int, int]) -> Tensor:
    return functional.interpolate(planes, size=grid, mode="bicubic", align_corners=False)


class ArbitraryPatchEmbed(PatchEmbed):
    """Patch embedding by any linear map, ``(B, I, H, W)`` to ``(8, B, N, c)`` (octic, Sec. 4.3).

    The group does not act on the features. The arguments are those of timm's `PatchEmbed`.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Embed images whose sides are multiples of the patch's."""
        return from_channels(super().forward(images))


class OcticPositionEmbedding(SteerablePositionEmbedding):
    """Equivariant position encoding P, ``(8, 1, N, c)`` (octic, Sec. 3.3.1, Eq. 10).

    Every element g of the group leaves it as it is: ``act(g, P, grid) = P`` (`group.act`).
    `weight`, shape ``(6, c, G/2, G/2)``, has quadrants of A1, A2, B1, B2 and E's two copies.

    Raises:
        VitrailError: `grid`, G, is odd, or eight planes cannot share `dim`, C.
    """

    unfold = staticmethod(unfold_quadrants)
    fold = staticmethod(fold_quadrants)

    def __init__(self, grid: int, dim: int) -> None:
        super().__init__(grid, (6, channels_of_plane(dim), grid // 2, grid // 2))


def require_even(grid: tuple[int, int], patch_size: int | None = None) -> None:
    """Raise a VitrailError if a grid (rows, columns) of tokens has an odd side.

    If `patch_size` is given, the message names the sides in pixels that images need.
    """
    if grid[0] % 2 or grid[1] % 2:
        raise VitrailError(
            f"a grid of {grid[0]} x {grid[1]} patches has an odd side; "
            "give images whose sides are multiples of "
            + (f"{2 * patch_size} pixels" if patch_size else "twice the patch_size")
        )
