"""Images on which grids tie: equal objects, mirrored ones, and repeated content."""

import torch
from torch import Tensor


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def objects(side: int) -> Tensor:
    """Return two and three equal objects, and mirrored pairs, on a uniform background."""
    size = side // 5
    photos = noise(6, 3, size, size)
    corners = [(2, 3), (size + 3, 2 * size + 4), (2 * size + 5, 1)]
    images = torch.full((6, 3, side, side), 0.5, dtype=torch.float64)
    for index, (image, photo) in enumerate(zip(images, photos, strict=True)):
        count, mirrored = [(2, False), (3, False), (2, True)][index % 3]
        for place, (top, left) in enumerate(corners[:count]):
            is_flipped = mirrored and place == 1
            part = photo.flip(2) if is_flipped else photo
            image[:, top : top + size, left : left + size] = part
    return images


def periodic(side: int) -> Tensor:
    """Return tilings, columns, rows, diagonals and checkerboards of all periods from 2 to 32.

    Also a uniform image, and two halves of one colour each, side by side and above each other.
    """
    row, column = torch.arange(side)[:, None], torch.arange(side)
    images = [noise(3, 1, 1).expand(3, side, side)]
    for period in (period for period in range(2, 33) if side % period == 0):
        tile, colours = noise(3, period, period), noise(3, period)
        images += [tile[:, row % period, column % period], colours[:, column % period + 0 * row]]
        images += [colours[:, row % period + 0 * column], colours[:, (row + column) % period]]
        if side % (2 * period) == 0:
            images.append(colours[:, (row // period + column // period) % 2])
    halves = torch.zeros(2, 3, side, side, dtype=torch.float64)
    halves[0, :, : side // 2] = halves[1, :, :, : side // 2] = 1
    return torch.stack([*images, *halves])
