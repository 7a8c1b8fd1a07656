"""A linear probe of A-Swin's tokens, with their places, is nearly as good as one of Swin's.

Measured is the mIoU, in percent, of a linear classifier of tokens on the stand-in `patchwork` (80
to train, 60 to validate, their left 64 x 64 pixels): ridge regression on standardised features, in
closed form, to the class that most pixels of a token have. Backbones are a micro Swin and the
A-Swin of its weights, random, of five seeds; both stages, of 4 and 8 pixels a token. The features
of A-Swin are

- tokens with their places (`Features.aligned`), whose classes are taken at these places;
- maps as ``features_only`` returns them: a user takes classes as of a plain Swin's;
- the tokens as the model orders them, taken for maps: the control, which has to fail.

Means over the seeds, for tokens of 4 and of 8 pixels: Swin 63.5 and 60.8 (standard deviation 1.0
and 0.7), places 62.3 and 58.9, maps 57.2 and 49.3, the control 13.0 and 12.9. With places a few
points are lost, as tokens wrap around the borders; maps lose more, as they are up to half a stride
off.
"""

from functools import cache

import pytest
import timm
import torch
from torch.nn import functional

import vitrail.models  # noqa: F401
from replication.datasets.stand_ins.patchwork import CLASSES, compose
from replication.images.opening import stream
from vitrail.shift.geometry import roll_image

SIDE, SEEDS = 64, 5
MICRO = {
    "img_size": SIDE,
    "patch_size": 4,
    "window_size": 4,
    "embed_dim": 48,
    "depths": (1, 1),
    "num_heads": (2, 4),
    "mlp_ratio": 2.0,
}


def scenes(split, count):
    """Images ``(B, 3, H, W)`` and their classes ``(B, classes, H, W)``, 0 or 1."""
    random = stream("dense probe", split)
    pairs = [compose(split, random) for _ in range(count)]
    images, masks = (
        torch.stack([torch.from_numpy(pair[part][:, :SIDE]) for pair in pairs]) for part in (0, 1)
    )
    classes = functional.one_hot(masks.long(), len(CLASSES)).permute(0, 3, 1, 2)
    return images.permute(0, 3, 1, 2) / 127.5 - 1, classes.float()


def rows(maps):
    return maps.permute(0, 2, 3, 1).flatten(0, 2).double()


def miou(train, validate):
    """Fit a linear classifier of tokens; each of the two are maps and the classes of pixels."""
    inputs, targets = [], []
    for maps, classes in (train, validate):
        stride = classes.shape[2] // maps.shape[2]
        label = rows(functional.avg_pool2d(classes, stride)).argmax(dim=1)
        inputs.append(rows(maps))
        targets.append(label)
    mean, std = inputs[0].mean(dim=0), inputs[0].std(dim=0)
    x, y = (functional.pad((part - mean) / std, (0, 1), value=1.0) for part in inputs)
    wanted = functional.one_hot(targets[0], len(CLASSES)).double()
    ridge = 1e-2 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    predicted = (y @ torch.linalg.solve(x.T @ x + ridge, x.T @ wanted)).argmax(dim=1)
    hits = [(predicted == index) & (targets[1] == index) for index in range(len(CLASSES))]
    either = [(predicted == index) | (targets[1] == index) for index in range(len(CLASSES))]
    return 100 * (torch.stack(hits).sum(1) / torch.stack(either).sum(1)).nanmean().item()


@cache
def measured():
    """The mIoU on Swin, with places, on maps and in the control: ``(2 stages, seeds, 4)``."""
    splits = [scenes("train", 80), scenes("val", 60)]
    values = torch.zeros(2, SEEDS, 4)
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        swin = timm.create_model("swin_tiny_patch4_window7_224", **MICRO).eval()
        adaptive = timm.create_model("a_swin_tiny_patch4_window7_224", **MICRO).eval()
        adaptive.load_state_dict(swin.state_dict())
        found = []  # of each split
        with torch.inference_mode():
            for images, _ in splits:
                plain = swin.forward_intermediates(images, intermediates_only=True)
                maps = adaptive.forward_intermediates(images, intermediates_only=True)
                found.append([*zip(plain, maps, adaptive.forward_stages(images), strict=True)])
        for level in range(2):
            pairs = []
            for (_, classes), stages in zip(splits, found, strict=True):
                plain, maps, stage = stages[level]
                placed = stage.aligned()
                there = roll_image(classes, placed.offset)
                with_places, unordered = (placed.tokens, there), (stage.tokens, classes)
                pairs.append([(plain, classes), with_places, (maps, classes), unordered])
            values[level, seed] = torch.tensor([miou(*both) for both in zip(*pairs, strict=True)])
    return values


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1])
def test_tokens_with_their_places_are_nearly_as_good_as_swins(level):
    swin, placed, _, _ = measured()[level].mean(dim=0)
    assert placed >= 0.95 * swin


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1])
def test_maps_in_the_images_order_lose_little_and_tokens_in_the_models_order_most(level):
    swin, _, maps, unordered = measured()[level].mean(dim=0)
    assert maps >= 0.75 * swin
    assert unordered <= 0.5 * swin
