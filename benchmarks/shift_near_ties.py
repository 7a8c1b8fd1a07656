r"""How often grids of photographs score so alike that the rule for ties decides between them.

Scores that differ by at most `vitrail.shift.polyphase.TIE` of the largest count as equal, as on
some devices rounding could reverse their order. Which of them wins is then no longer what the
paper's equations say. Each photograph, its short side resized to the model's image size and its
centre cut out, passes through models of the paper's widths with one block in each stage, whose
weights are drawn. For every choice the gap of the best two scores is taken, relative to the
largest. The table has, for each family and selection, the number of choices whose gap is zero
(which the rule always decided), and above zero and within 1e-6 and 1e-5, and the photographs with
such a choice.

The photographs are the JPEG files below a folder, such as Oxford Flowers-102's:

    python benchmarks/shift_near_ties.py data/flowers102/flowers-102/jpg \
        --data "Flowers-102" --output benchmarks/shift_near_ties.csv

It takes about half an hour on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from unittest import mock

import vitrail.models  # noqa: F401  (before timm, as it repairs an import of torchvision)

# isort: split
import pandas as pd
import timm
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from vitrail.provenance import provenance
from vitrail.shift import polyphase

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "A-Swin": ("a_swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1)}),
    "A-CvT": ("a_cvt_13", {"depths": (1, 1, 1)}),
    "A-MViTv2": ("a_mvitv2_tiny", {"depths": (1, 1, 1, 1)}),
    "A-SwinV2": ("a_swinv2_tiny_window8_256", {"depths": (1, 1, 1, 1)}),
}
PARTS = (1e-6, 1e-5)


def photograph(path: Path, side: int) -> Tensor:
    """Return the centre of a photograph, ``(3, side, side)``, from -2 to 2."""
    with Image.open(path) as image:
        cut = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BICUBIC)
    return (pil_to_tensor(cut) / 255 - 0.5) / 0.25


def measure(family: str, selection: str, paths: list[Path], batch: int) -> dict[str, Any]:
    """Count the choices of a model of which the best two scores are close, over photographs."""
    torch.manual_seed(0)
    name, args = FAMILIES[family]
    model = timm.create_model(name, selection=selection, num_classes=10, **args).eval()
    side = model.default_cfg["input_size"][-1]
    near_best, gaps = polyphase.near_best, []

    def spy(scores: Tensor) -> Tensor:
        if scores[0].numel() > 1:
            first, second = scores.flatten(1).topk(2).values.double().unbind(dim=1)
            gaps[-1].append((first - second) / first)
        return near_best(scores)

    with mock.patch.object(polyphase, "near_best", spy), torch.inference_mode():
        for start in range(0, len(paths), batch):
            gaps.append([])
            model(torch.stack([photograph(path, side) for path in paths[start : start + batch]]))
    gap = torch.cat([torch.stack(choices, dim=1) for choices in gaps])  # (photographs, choices)
    counts = {"choices": gap.numel(), "equal": int((gap == 0).sum())}
    for part in PARTS:
        near = (gap > 0) & (gap <= part)
        counts[f"within_{part:g}"] = int(near.sum())
        counts[f"photographs_within_{part:g}"] = int(near.any(dim=1).sum())
    return {"model": family, "selection": selection, "photographs": len(gap), **counts}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with JPEG files")
    parser.add_argument("--data", required=True, help="the name of the photographs")
    parser.add_argument("--photographs", type=int, default=1000, help="evenly from all files")
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    every = sorted(args.folder.glob("*.jpg"))
    paths = [every[i * len(every) // args.photographs] for i in range(args.photographs)]
    origin = provenance("cpu")
    rows = []
    for family in FAMILIES:
        for selection in ("paper", "fast"):
            rows.append(measure(family, selection, paths, args.batch_size))
            print(rows[-1], flush=True)
            table = pd.DataFrame(rows).assign(
                data=args.data,
                device=origin["device"],
                torch=torch.__version__,
                commit=origin["commit"],
            )
            if args.output:
                table.to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
