"""The inputs of teacher and student: DINOv2's crops of two sizes, and block-wise masks."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from replication.images.transforms import normalization

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipes.self_supervision import SelfSupervisionRecipe

MIN_AREA = 4
LOG_ASPECT = (math.log(0.3), math.log(1 / 0.3))
TRIES = 10


def quarter_turn(image: Image.Image) -> Image.Image:
    """Turn a square image by a random multiple of 90 degrees."""
    return image.rotate(90 * int(torch.randint(4, ())))


class MultiCrop:
    """Transform a PIL image to two global crops ``(2, 3, S, S)`` and V local ``(V, 3, s, s)``."""

    def __init__(self, recipe: SelfSupervisionRecipe, info: DatasetInfo) -> None:
        spec, data = recipe.crops, recipe.data
        interpolation = transforms.InterpolationMode[data.interpolation.upper()]
        self._normalize = transforms.Normalize(*normalization(info, data.normalization))
        jitter = [transforms.ColorJitter(*spec.color_jitter)]
        blurred = [transforms.GaussianBlur(spec.blur_kernel, spec.blur_sigma)]

        def crop(size: int, scale: tuple[float, float], blur: float, solarize: float) -> Any:
            steps = [
                (1.0, transforms.RandomResizedCrop(size, scale, spec.ratio, interpolation)),
                (spec.hflip, transforms.RandomHorizontalFlip(spec.hflip)),
                (spec.vflip, transforms.RandomVerticalFlip(spec.vflip)),
                (float(spec.quarter_turns), quarter_turn),
                (spec.color_jitter_prob, transforms.RandomApply(jitter, spec.color_jitter_prob)),
                (spec.gray_prob, transforms.RandomGrayscale(spec.gray_prob)),
                (blur, transforms.RandomApply(blurred, blur)),
                (solarize, transforms.RandomSolarize(128, solarize)),
            ]
            kept = [step for p, step in steps if p > 0]
            return transforms.Compose([*kept, transforms.PILToTensor()])

        first, second, local = spec.blur_prob
        self._side = spec.resize
        self._global = [
            crop(data.image_size, spec.global_scale, first, 0.0),
            crop(data.image_size, spec.global_scale, second, spec.solarize_prob),
        ]
        self._local = [crop(spec.local_size, spec.local_scale, local, 0.0)] * spec.local_count

    def __call__(self, image: Image.Image) -> tuple[Tensor, ...]:
        """Draw the crops of an image: a tensor of global, and if V > 0 one of local crops."""
        if self._side:
            image = image.resize((self._side, self._side), Image.Resampling.LANCZOS)
        sets = [crops for crops in (self._global, self._local) if crops]
        drawn = [torch.stack([crop(image) for crop in crops]) for crops in sets]
        return tuple(self._normalize(crops.float().div(255)) for crops in drawn)


def by_view(crops: Tensor) -> Tensor:
    """Reorder crops ``(B, V, 3, S, S)`` to ``(V B, 3, S, S)``, by views, as the losses expect."""
    return crops.transpose(0, 1).flatten(0, 1)


def block_mask(grid: tuple[int, int], patches: int) -> np.ndarray:
    """Return a mask ``(h, w)`` bool of random blocks, with at most `patches` masked patches.

    The masks are BEiT's, as iBOT draws them, by Python's generator. Blocks are drawn until
    `patches` are masked or ten blocks in a row do not fit. A block has an area from 4 patches to
    half of the grid, and an aspect ratio from 0.3 to 1 / 0.3.
    """
    mask = np.zeros(grid, dtype=bool)
    while patches > 0:
        most = min(patches, mask.size / 2)
        for _ in range(TRIES):
            area = random.uniform(MIN_AREA, most)
            aspect = math.exp(random.uniform(*LOG_ASPECT))
            height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if height >= grid[0] or width >= grid[1]:
                continue
            top = random.randint(0, grid[0] - height)
            left = random.randint(0, grid[1] - width)
            block = mask[top : top + height, left : left + width]
            new = block.size - int(block.sum())
            if 0 < new <= most:
                block[:] = True
                patches -= new
                break
        else:
            break
    return mask


def masks(
    crops: int, grid: tuple[int, int], probability: float, ratio: tuple[float, float]
) -> Tensor:
    """Draw the masks of some crops, ``(crops, h w)`` bool.

    ``int(crops * probability)`` crops get a mask. The range `ratio` is divided into as many equal
    intervals, and the share of masked patches is drawn from one interval for each. The other crops
    have no masked patch. The order is random.
    """
    count, patches = int(crops * probability), grid[0] * grid[1]
    intervals = itertools.pairwise(np.linspace(*ratio, count + 1))
    drawn = [block_mask(grid, int(patches * random.uniform(*bounds))) for bounds in intervals]
    drawn += [np.zeros(grid, dtype=bool)] * (crops - count)
    random.shuffle(drawn)
    return torch.from_numpy(np.stack(drawn)).flatten(1)


class Masked(NamedTuple):
    """Masks of crops, with the positions and weights of their masked patches.

    Both are computed on the CPU, where the mask is drawn: with a mask on a GPU, each step would
    wait for the number of masked patches (facebookresearch/dinov2 does the same in `collate`).
    """

    mask: Tensor  # (crops, N) bool
    places: Tensor  # (M,) int64, of the masked patches among all crops x N
    weight: Tensor  # (M,), one over the number of masked patches of the same crop

    @classmethod
    def of(cls, mask: Tensor) -> Masked:
        """Make it from masks ``(crops, N)`` bool."""
        weight = (1 / mask.sum(1, keepdim=True).clamp(min=1)).expand(mask.shape)[mask]
        return cls(mask, mask.flatten().nonzero().flatten(), weight)

    def to(self, device: torch.device) -> Masked:
        """Copy all tensors to a device, without waiting for the copy."""
        return Masked(*(tensor.to(device, non_blocking=True) for tensor in self))
