"""What repeated content does to the selections: images that hold one thing twice, shifted.

Two grids may then hold the same tokens in another arrangement, so that their energies are equal and
rounding errors would decide (`vitrail.shift.polyphase`). Pieces of a photograph lie on a flat
ground, in places drawn at random for each image, and each image is shifted by a random offset. The
models have the image size, strides and windows of the paper's, but are narrow; their weights are
drawn, and they compute in float64. The table has, for each family, selection and kind of content,
how many images changed a logit by more than 1e-9 and the largest change, beside the logits'
standard deviation over the images.

It takes about ten minutes on two cores:

    python benchmarks/shift_ties.py --output benchmarks/shift_ties.csv

Exit status 1 if a logit changed by more than 1e-9.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import vitrail.models  # noqa: F401  (before timm, as it repairs an import of torchvision)

# isort: split
import pandas as pd
import timm
import torch
from torch import Tensor

from vitrail.images.photos import photo_centre
from vitrail.provenance import provenance
from vitrail.shift.torus import roll_image

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
CONTENTS = ("two equal photos", "three equal photos", "a photo and its mirror image")
LIMIT = 1e-9


def repeated(content: str, side: int, generator: torch.Generator) -> Tensor:
    """Return an image ``(3, side, side)`` that holds a piece of a photograph more than once."""
    piece = side // 5
    photo = torch.tensor(photo_centre("flower", piece)).permute(2, 0, 1) / 255
    second = photo.flip(2) if content == CONTENTS[2] else photo
    pieces = [photo, second, photo] if content == CONTENTS[1] else [photo, second]
    image = torch.full((3, side, side), 0.5)
    for index, cut in enumerate(pieces):  # one below the other, so that none hides another
        band = side // len(pieces)
        row = index * band + int(torch.randint(band - piece + 1, (), generator=generator))
        column = int(torch.randint(side - piece + 1, (), generator=generator))
        image[:, row : row + piece, column : column + piece] = cut
    return image.double()


@torch.inference_mode()
def measure(family: str, selection: str, content: str, count: int, batch: int) -> dict[str, Any]:
    """Compare the logits of `count` images with those of the shifted images."""
    torch.manual_seed(0)
    name, args = FAMILIES[family]
    model = timm.create_model(name, selection=selection, num_classes=10, **args).double().eval()
    for parameter in model.parameters():  # some begin at zero, which would hide what precedes
        torch.nn.init.normal_(parameter, std=0.2)
    side = model.default_cfg["input_size"][-1]
    generator = torch.Generator().manual_seed(0)
    images = torch.stack([repeated(content, side, generator) for _ in range(count)])
    offsets = torch.randint(side, (count, 2), generator=generator)
    logits = torch.cat([model(part) for part in images.split(batch)])
    moved = [
        model(roll_image(part, offset))
        for part, offset in zip(images.split(batch), offsets.split(batch), strict=True)
    ]
    error = (torch.cat(moved) - logits).abs().amax(dim=1)
    return {
        "model": family,
        "selection": selection,
        "content": content,
        "images": count,
        "above_limit": int((error > LIMIT).sum()),
        "largest_change": f"{error.max().item():.1e}",
        "deviation": f"{logits.std(dim=0).mean().item():.2g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=200, help="of each kind of content")
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    origin = provenance("cpu")
    rows = []
    for family in FAMILIES:
        for selection in ("paper", "fast"):
            for content in CONTENTS:
                rows.append(measure(family, selection, content, args.images, args.batch_size))
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table = table.assign(device=origin["device"], torch=torch.__version__, commit=origin["commit"])
    if args.output:
        table.to_csv(args.output, index=False)
    sys.exit(int(table["above_limit"].sum() > 0))


if __name__ == "__main__":
    main()
