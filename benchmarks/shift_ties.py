"""Measure how shifts change the logits of adaptive models, also for images that repeat themselves.

Two grids of an image may have the same tokens. Then their energies are equal, and rounding errors
would decide between them (`vitrail.shift.polyphase`). The registered models of the paper's sizes,
untrained and in float32, classify images of each kind, and each image after random circular shifts.
For each family, selection and kind of image, the table has the number of shifted images with a
changed logit, and the largest change divided by the largest logit. Both are measured on the CPU,
and on a simulated device that rounds a token by its place, as tensor cores and Winograd
convolutions may.

    python -m benchmarks.shift_ties --output benchmarks/shift_ties.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import vitrail.models  # noqa: F401  (before timm, as it repairs an import of torchvision)

# isort: split
import pandas as pd
import timm
import torch
from torch import Tensor, nn

from replication.images.photos import photo_centre, photo_crops
from tests.vitrail.shift.devices import RoundsByPlace
from vitrail.provenance import provenance
from vitrail.shift.geometry import roll_image

SWIN = {"embed_dim": 24, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 4, 8)}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "A-Swin": ("a_swin_tiny_patch4_window7_224", SWIN),
    "A-SwinV2": ("a_swinv2_tiny_window8_256", SWIN),
    "A-CvT": (
        "a_cvt_13",
        {"embed_dims": (16, 24, 48), "depths": (1, 1, 2), "num_heads": (1, 1, 2)},
    ),
    "A-MViTv2": ("a_mvitv2_tiny", {"embed_dim": 16, "depths": (1, 2, 2, 2)}),
}
"""The registered name of each family, and the options of a narrow model of its image size."""
SELECTIONS = ("paper", "fast")
DEVICES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "as it is": nullcontext,
    "rounds by place": RoundsByPlace,
}


def stripes(side: int, count: int) -> Tensor:
    """Return images ``(count, 3, side, side)`` of repeating stripes, across or down in turn."""
    generator, periods = torch.Generator().manual_seed(0), (4, 8, 16, 32)
    images = []
    for index in range(count):
        period = periods[index // 2 % len(periods)]
        row = torch.randn(3, 1, period, generator=generator).tile(1, side, side // period)
        images.append(row if index % 2 else row.mT)
    return torch.stack(images)


def tiles(side: int, count: int) -> Tensor:
    """Return images ``(count, 3, side, side)`` of one tile that repeats; `side` is 224 or 256."""
    generator, sides = torch.Generator().manual_seed(0), ((4, 4), (8, 16), (32, 32), (16, 8))
    images = []
    for index in range(count):
        rows, columns = sides[index % len(sides)]
        tile = torch.randn(3, rows, columns, generator=generator)
        images.append(tile.tile(1, side // rows, side // columns))
    return torch.stack(images)


def objects(copies: int, mirrored: bool, side: int, count: int) -> Tensor:
    """Return images ``(count, 3, side, side)`` with several copies of a piece of a photograph.

    The background is grey. If `mirrored`, the second copy is mirrored. The places of the copies are
    drawn at random for each image.
    """
    generator, piece, band = torch.Generator().manual_seed(0), side // 5, side // copies
    photo = torch.tensor(photo_centre("flower", piece)).permute(2, 0, 1) / 127.5 - 1
    images = torch.zeros(count, 3, side, side)
    for image in images:
        for index in range(copies):  # one below the other, so that none hides another
            row = index * band + int(torch.randint(band - piece + 1, (), generator=generator))
            column = int(torch.randint(side - piece + 1, (), generator=generator))
            cut = photo.flip(2) if mirrored and index == 1 else photo
            image[:, row : row + piece, column : column + piece] = cut
    return images


def photographs(side: int, count: int) -> Tensor:
    """Return crops of scikit-learn's two photographs, ``(count, 3, side, side)``, from -1 to 1."""
    crops = torch.from_numpy(photo_crops(count, side, seed=0))
    return crops.permute(0, 3, 1, 2).float() / 127.5 - 1


IMAGES: dict[str, Callable[[int, int], Tensor]] = {
    "stripes": stripes,
    "tiles": tiles,
    "two equal objects": lambda side, count: objects(2, False, side, count),
    "three equal objects": lambda side, count: objects(3, False, side, count),
    "an object and its mirror image": lambda side, count: objects(2, True, side, count),
    "photographs": photographs,
}


def build(family: str, selection: str) -> tuple[nn.Module, int]:
    """Return an untrained model of a family, of the paper's width, and the side of its images."""
    torch.manual_seed(0)
    model = timm.create_model(FAMILIES[family][0], selection=selection, num_classes=10)
    return model.eval(), model.default_cfg["input_size"][-1]


@torch.inference_mode()
def changes(family: str, selection: str, count: int, shifts: int) -> Iterator[dict[str, Any]]:
    """Compare the logits of `count` images of each kind with those of the shifted images."""
    model, side = build(family, selection)
    for content, images_of in IMAGES.items():
        images, generator = images_of(side, count), torch.Generator().manual_seed(1)
        offsets = torch.randint(side, (shifts, count, 2), generator=generator)
        for device, simulated in DEVICES.items():
            with simulated():
                logits = model(images)
                moved = torch.stack([model(roll_image(images, offset)) for offset in offsets])
            change = (moved - logits).abs().amax(dim=2) / logits.abs().amax()
            yield {
                "model": family,
                "selection": selection,
                "content": content,
                "rounding": device,
                "shifted_images": change.numel(),
                "changed": int((change > 0).sum()),
                "largest_change": f"{change.max().item():.1e}",
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=4, help="of each kind")
    parser.add_argument("--shifts", type=int, default=2, help="of each image")
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    origin = provenance("cpu")
    rows: list[dict[str, Any]] = []
    for family in FAMILIES:
        for selection in SELECTIONS:
            rows.extend(changes(family, selection, args.images, args.shifts))
            table = pd.DataFrame(rows)
            print(table.to_string(), flush=True)
            table = table.assign(
                device=origin["device"], torch=torch.__version__, commit=origin["commit"]
            )
            if args.output:
                table.to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
