"""What shift-equivariance costs: the time of adaptive models relative to plain ones.

The models of a family take turns, one pass each in a round, so that a machine that slows down
slows all of them. They are compared within the round. The table gives medians over the rounds:

- ``ratio``: time relative to the plain model, which is timm's or our CvT.
- ``ratio_off``, with its quartiles: time relative to the same code with ``selection="none"``, so
  that only the method differs. ``target`` is the largest value that it should have: 1.02 for
  "fast", and 1.04 plus ``extra_macs`` for "paper".
- ``extra_macs``: additional multiply-adds, relative to those of "none".
- ``tie_rule``: time for ordering grids of equal scores, relative to the time of "none"; measured
  for the forward pass only.

It takes about 8 minutes on two cores, which must be idle:

    python benchmarks/shift_overhead.py --output benchmarks/shift_overhead.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import vitrail.models  # noqa: F401  (before timm, as it repairs an import of torchvision)

# isort: split
import pandas as pd
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from replication.measures.throughput import time_in_turns
from vitrail.provenance import provenance
from vitrail.shift import polyphase
from vitrail.shift import selection as grids

FAMILIES = {
    "Swin-T": ("swin_tiny_patch4_window7_224", "a_swin_tiny_patch4_window7_224"),
    "SwinV2-T": ("swinv2_tiny_window8_256", "a_swinv2_tiny_window8_256"),
    "CvT-13": ("cvt_13", "a_cvt_13"),
    "MViTv2-T": ("mvitv2_tiny", "a_mvitv2_tiny"),
}
SELECTIONS = ("none", "fast", "paper")


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


def without_tie_rule(call: Callable[[], object]) -> Callable[[], object]:
    def unsettled() -> object:
        with (
            mock.patch.multiple(polyphase, tie_break_scores=_same, break_ties=_first),
            mock.patch.multiple(grids, tie_break_scores=_same, break_ties=_first),
        ):
            return call()

    return unsettled


def _same(energies: torch.Tensor) -> torch.Tensor:
    return energies


def _first(scores: torch.Tensor, ties: torch.Tensor) -> torch.Tensor:
    return scores


def multiply_adds(model: nn.Module, images: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(images)
    return counter.get_total_flops() // 2


def compare(family: str, batch_size: int, rounds: int, device: str) -> pd.DataFrame:
    plain, adaptive = FAMILIES[family]
    torch.manual_seed(0)
    models = {"plain": timm.create_model(plain).to(device)}
    for selection in SELECTIONS:
        models[selection] = timm.create_model(adaptive, selection=selection).to(device)
    side = models["plain"].default_cfg["input_size"][-1]
    images = torch.randn(batch_size, 3, side, side, device=device)
    macs = {name: multiply_adds(models[name], images[:1]) for name in SELECTIONS}
    rows = []
    for step, prepare in (("forward", forward), ("training step", training_step)):
        calls = {name: prepare(model, images) for name, model in models.items()}
        if prepare is forward:
            for name in SELECTIONS[1:]:
                calls[f"{name}, ties open"] = without_tie_rule(calls[name])
        seconds = pd.DataFrame(time_in_turns(calls, device, rounds, warmup=2))
        for name in SELECTIONS:
            of_off = seconds[name] / seconds["none"]
            low, middle, high = of_off.quantile([0.25, 0.5, 0.75])
            extra = macs[name] / macs["none"] - 1
            row = {
                "model": family,
                "step": step,
                "selection": name,
                "ratio": (seconds[name] / seconds["plain"]).median(),
                "ratio_off": middle,
                "ratio_off_25": low,
                "ratio_off_75": high,
                "target": {"none": None, "fast": 1.02, "paper": 1.04 + extra}[name],
                "extra_macs": extra,
            }
            if f"{name}, ties open" in calls:
                rule = seconds[name] - seconds[f"{name}, ties open"]
                row["tie_rule"] = (rule / seconds["none"]).median()
            row["plain_ms"] = 1000 * seconds["plain"].median()
            rows.append({**row, "batch_size": batch_size, "rounds": rounds})
            print(rows[-1], flush=True)
    return pd.DataFrame(rows).round(3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
