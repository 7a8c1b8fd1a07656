"""What octic layers save on a CPU: an octic block and model against the dense ones, side by side.

The two take turns, one pass each in a round, so that a machine that slows down slows both; they are
compared within the round. The first table gives the median ratio of times, dense over octic, the
middle half of all rounds, and the target; the second says where a block's time goes, layer by
layer, in eager mode, and the bound of the ratio if linear layers alone were faster, by all of
their 5.33: the faster a machine multiplies matrices, the lower it lies.

The multiply-adds of a block allow 4.59 (ViT-L at 197 tokens: 5.33 in the linear layers, nothing in
the attention itself). What keeps the clock from it, as the second table shows: the attention costs
what it does in the dense block, and copies between planes and heads come on top; the GELU works on
as many numbers as the dense one and transforms them twice; a layer norm of planes is five passes
over them where the dense one is a fused kernel; and linear layers that read and write as much as
dense ones, for a fifth of the arithmetic, wait for memory where dense ones compute. At bfloat16,
where matrix units multiply several times faster, all of that weighs more. Scales of norms and of
layer scale are not folded into weights: compiled, they are fused into passes that are made anyway,
and in eager mode they take about a twentieth of a block. Full models, ViT-L and ViT-H, are timed in
all modes, too, in at most five rounds.

    python benchmarks/octic_cpu.py --output benchmarks/octic_cpu.csv
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vitrine.models  # noqa: F401  # isort: skip
import pandas as pd
import timm
import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from vitrine.measures.throughput import time_in_turns
from vitrine.octic.group import from_channels
from vitrine.octic.layers import OcticBlock
from vitrine.provenance import provenance

DIM, HEADS, TOKENS = 1024, 16, 197  # of ViT-L at 224 pixels
MODELS = {
    "ViT-L": ("deit3_large_patch16_224", "octic_d8_vit_large_patch16_224"),
    "ViT-H": ("deit3_huge_patch14_224", "octic_d8_vit_huge_patch14_224"),
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BLOCK = "ViT-L block"
LIMITS = {BLOCK: 4.59, "ViT-L": 4.55, "ViT-H": 4.57}  # ratios of multiply-adds
TARGETS = {("float32", "compiled"): 4.0, ("float32", "eager"): 3.7, ("bfloat16", "compiled"): 3.0}

LAYERS = {
    "layer norm": ["norm1", "norm2"],
    "linear": ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"],
    "GELU": ["mlp.act"],
    "layer scale": ["ls1", "ls2"],
}


def blocks(batch_size: int, dtype: torch.dtype) -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    x = torch.randn(batch_size, TOKENS, DIM)
    dense = Block(DIM, HEADS, qkv_bias=True, init_values=1e-4)
    octic = OcticBlock(DIM, HEADS, init_values=1e-4)
    return {
        "dense": (dense.eval().to(dtype), x.to(dtype)),
        "octic": (octic.eval().to(dtype), from_channels(x).to(dtype)),
    }


def models(size: str, batch_size: int, dtype: torch.dtype) -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    x = torch.randn(batch_size, 3, 224, 224).to(dtype)
    names = zip(("dense", "octic"), MODELS[size], strict=True)
    return {way: (timm.create_model(name).eval().to(dtype), x) for way, name in names}


def compare(what: str, precision: str, mode: str, batch_size: int, rounds: int) -> dict[str, Any]:
    sizes = (batch_size, PRECISIONS[precision])
    calls: dict[str, Callable[[], object]] = {}
    for way, (module, x) in (blocks(*sizes) if what == BLOCK else models(what, *sizes)).items():
        run = torch.compile(module) if mode == "compiled" else module
        calls[way] = lambda run=run, x=x: run(x)
    with torch.inference_mode():
        seconds = time_in_turns(calls, "cpu", rounds, warmup=3)
    ratio = pd.Series(seconds["dense"]) / pd.Series(seconds["octic"])
    low, middle, high = ratio.quantile([0.25, 0.5, 0.75])
    target = TARGETS.get((precision, mode)) if what == BLOCK else None
    row = {
        "model": what,
        "precision": precision,
        "mode": mode,
        "ratio": round(middle, 2),
        "ratio_25": round(low, 2),
        "ratio_75": round(high, 2),
        "target": target,
        "reached": target and middle >= target,
        "limit": LIMITS[what],
        "dense_ms": round(1000 * statistics.median(seconds["dense"]), 1),
        "octic_ms": round(1000 * statistics.median(seconds["octic"]), 1),
        "batch_size": batch_size,
        "rounds": rounds,
    }
    print(row, flush=True)
    return row


def milliseconds_by_layer(block: Any, x: Tensor, rounds: int) -> dict[str, float]:
    """Time a block's layers from within; what no layer accounts for is attention and residuals."""
    started: dict[str, float] = {}
    passes: list[dict[str, float]] = []

    def watch(name: str, module: nn.Module) -> None:
        def before(*_: Any) -> None:
            started[name] = time.perf_counter()

        def after(*_: Any) -> None:
            passes[-1][name] += time.perf_counter() - started[name]

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    for name in ["attn", *itertools.chain(*LAYERS.values())]:
        watch(name, block.get_submodule(name))
    watch("block", block)
    with torch.inference_mode():
        for _ in range(rounds + 3):
            passes.append(defaultdict(float))
            block(x)
    took = {name: statistics.median(one[name] for one in passes[3:]) for name in passes[0]}
    layers = {layer: sum(took[name] for name in names) for layer, names in LAYERS.items()}
    layers["attention"] = took["attn"] - took["attn.qkv"] - took["attn.proj"]
    layers["residuals"] = took["block"] - sum(layers.values())
    return {layer: 1000 * seconds for layer, seconds in {**layers, "all": took["block"]}.items()}


def layer_table(batch_size: int, rounds: int) -> pd.DataFrame:
    rows = []
    for precision, dtype in PRECISIONS.items():
        dense, octic = (
            milliseconds_by_layer(block, x, rounds)
            for block, x in blocks(batch_size, dtype).values()
        )
        # What remains if linear layers save all of their 5.33 and the others nothing.
        rest = dense["all"] - dense["linear"]
        dense["bound"], octic["bound"] = dense["all"], dense["linear"] * 12 / 64 + rest
        rows += [
            {
                "precision": precision,
                "layer": layer,
                "dense_ms": round(dense[layer], 2),
                "octic_ms": round(octic[layer], 2),
                "ratio": round(dense[layer] / octic[layer], 2),
            }
            for layer in dense
        ]
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="where to write the CSV; _layers.csv beside it")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    origin = provenance("cpu")
    rows = [
        compare(what, precision, mode, args.batch_size, rounds)
        for what, rounds in {
            BLOCK: args.rounds,
            **dict.fromkeys(MODELS, min(args.rounds, 5)),
        }.items()
        for precision in PRECISIONS
        for mode in ("eager", "compiled")
    ]
    where = {"device": origin["device"], "torch": torch.__version__, "commit": origin["commit"]}
    tables = {
        "": pd.DataFrame(rows).assign(**where),
        "_layers": layer_table(args.batch_size, args.rounds).assign(**where),
    }
    for suffix, table in tables.items():
        print(table.to_string(index=False))
        if args.output:
            path = args.output.with_name(f"{args.output.stem}{suffix}{args.output.suffix}")
            table.to_csv(path, index=False)


if __name__ == "__main__":
    main()
