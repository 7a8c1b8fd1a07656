"""What equivariance costs a segmenter: the time of adaptive Swin-T + UperNet over the plain one's.

The models take turns, one forward pass each in a round, so that a machine that slows down slows all
of them. Each is compared with the plain model within the round. All give logits at the size of the
image; those of the plain model are resized by mmseg. The table gives the median ratio of times and
its quartiles over the rounds.

    python benchmarks/segmentation_overhead.py --output benchmarks/segmentation_overhead.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import vitrail.segmentation  # noqa: F401  # isort: skip
import pandas as pd
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from mmseg.registry import MODELS
from torch import nn

from replication.measures.throughput import time_in_turns
from vitrail.provenance import provenance

CONFIGS = Path(__file__).parents[1] / "configs" / "segmentation"
# the plain configuration and the side of its crops
FAMILIES = {
    "Swin-T": ("swin_t_upernet_ade20k_circular", 448),
    "SwinV2-T": ("swinv2_t_upernet_ade20k_circular", 512),
}


def build(name: str, device: str, **backbone: str) -> nn.Module:
    config = Config.fromfile(CONFIGS / f"{name}.py")
    config.model.backbone.update(backbone)
    with DefaultScope.overwrite_default_scope("mmseg"):
        model: nn.Module = revert_sync_batchnorm(MODELS.build(config.model))
    return model.eval().to(device)


def forward(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    told = [{"img_shape": images.shape[2:]}] * len(images)

    def call() -> object:
        with torch.inference_mode():
            return model.encode_decode(images, told)

    return call


def compare(family: str, batch_size: int, rounds: int, device: str) -> pd.DataFrame:
    plain, side = FAMILIES[family]
    models = {
        "plain": build(plain, device),
        "fast": build(f"a_{plain}", device, selection="fast"),
        "paper": build(f"a_{plain}", device, selection="paper"),
    }
    images = torch.randn(batch_size, 3, side, side, device=device)
    calls = {name: forward(model, images) for name, model in models.items()}
    seconds = time_in_turns(calls, device, rounds, warmup=1)
    base = pd.Series(seconds["plain"])
    rows = []
    for selection in ("fast", "paper"):
        low, middle, high = (pd.Series(seconds[selection]) / base).quantile([0.25, 0.5, 0.75])
        rows.append(
            {
                "model": f"{family} + UperNet",
                "step": "forward",
                "selection": selection,
                "ratio": round(middle, 3),
                "ratio_25": round(low, 3),
                "ratio_75": round(high, 3),
                "plain_ms": round(1000 * base.median(), 1),
                "image_size": side,
                "batch_size": batch_size,
                "rounds": rounds,
            }
        )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    origin = provenance(args.device)
    table = pd.concat(
        [compare(family, args.batch_size, args.rounds, args.device) for family in args.families]
    )
    table = table.assign(
        threads=args.threads,
        device=origin["device"],
        torch=torch.__version__,
        commit=origin["commit"],
    )
    print(table.to_string(index=False))
    if args.output:
        table.to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
