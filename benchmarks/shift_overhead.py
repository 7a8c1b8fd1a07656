"""What shift-equivariance costs: each adaptive model against its plain one, side by side.

The models of a family take turns, one pass each in a round, so that a machine that slows down
slows all of them; each is compared with the plain one within the round. The table gives the median
ratio of times, the middle half of all rounds, and the target.

    python benchmarks/shift_overhead.py --output benchmarks/shift_overhead.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import timm
import torch
from torch import nn

import vitrine.models  # noqa: F401
from vitrine.measures.throughput import time_in_turns
from vitrine.provenance import provenance

# plain, adaptive, the most that "fast" should take of the plain one's time
FAMILIES = {
    "Swin-T": ("swin_tiny_patch4_window7_224", "a_swin_tiny_patch4_window7_224", 1.03),
    "SwinV2-T": ("swinv2_tiny_window8_256", "a_swinv2_tiny_window8_256", 1.03),
    "CvT-13": ("cvt_13", "a_cvt_13", 1.08),
    "MViTv2-T": ("mvitv2_tiny", "a_mvitv2_tiny", 1.08),
}


def forward(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    model.eval()

    def call() -> object:
        with torch.inference_mode():
            return model(images)

    return call


def training_step(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def call() -> None:
        model(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def compare(family: str, batch_size: int, rounds: int, device: str) -> pd.DataFrame:
    plain, adaptive, target = FAMILIES[family]
    torch.manual_seed(0)
    models = {
        "plain": timm.create_model(plain),
        "fast": timm.create_model(adaptive, selection="fast"),
        "paper": timm.create_model(adaptive, selection="paper"),
    }
    side = models["plain"].default_cfg["input_size"][-1]
    images = torch.randn(batch_size, 3, side, side, device=device)
    rows = []
    for step, prepare in (("forward", forward), ("training step", training_step)):
        calls = {name: prepare(model.to(device), images) for name, model in models.items()}
        seconds = time_in_turns(calls, device, rounds, warmup=2)
        base = pd.Series(seconds["plain"])
        for selection in ("fast", "paper"):
            ratio = pd.Series(seconds[selection]) / base
            low, middle, high = ratio.quantile([0.25, 0.5, 0.75])
            rows.append(
                {
                    "model": family,
                    "step": step,
                    "selection": selection,
                    "ratio": round(middle, 3),
                    "ratio_25": round(low, 3),
                    "ratio_75": round(high, 3),
                    "target": target if selection == "fast" else None,
                    "plain_ms": round(1000 * base.median(), 1),
                    "batch_size": batch_size,
                    "rounds": rounds,
                }
            )
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    origin = provenance(args.device)
    table = pd.concat(
        [compare(family, args.batch_size, args.rounds, args.device) for family in args.families]
    )
    table = table.assign(device=origin["device"], torch=torch.__version__, commit=origin["commit"])
    print(table.to_string(index=False))
    if args.output:
        table.to_csv(args.output, index=False)


if __name__ == "__main__":
    main()
