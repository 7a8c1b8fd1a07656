"""Time octic layers on a CPU: ours, the dense model, the authors' layout, and a lower bound.

All of them take turns, one pass each in a round, so that a machine that slows down slows all of
them. They are compared within the round. Each row of the table is a ViT-L block, or a full ViT-L or
ViT-H, in one precision and one mode: "eager", or "compiled" by `torch.compile`. A model is compiled
block by block, and all of its blocks share one compilation (to compile a whole model takes many
minutes). In the mode "eager" our block runs the code of `vitrail.octic.layers`, in the mode
"compiled" that of `vitrail.octic.fast_block`.

- ``dense_ms``, ``published_ms``, ``ours_ms``: median times. The authors' layout is that of
  `octic_published`, with the weights of our model.
- ``bound_ms``: the lower bound, which is the depth times the sum of three terms. They are measured
  in the same rounds, on tensors of the dense block's sizes. ``bound_linear_ms``: the time of the
  dense linear layers divided by 5.33. ``bound_attention_ms``: the time of the dense attention.
  ``bound_elementwise_ms``: the time of copies with the least memory traffic of all other work
  (`TRAFFIC`: 17 tensors of tokens are read or written). A model's patch embedding and head are left
  out.
- ``over_dense``, ``over_published``: how many times faster our code is, the median over the rounds.
  ``share_of_bound``: the bound divided by our time. Each has the quartiles over the rounds; the
  last two have targets.
- ``ours_linear_ms``, ``ours_attention_ms``, ``ours_other_ms``: our time, divided in the proportions
  that torch's profiler measures, to compare with the terms of the bound.

The difference between our time and the bound is in ``ours_other_ms``: the heads are gathered from
the planes and put back (a head's channels lie side by side for the attention, but plane by plane
for the linear layers), and the GELU needs two Fourier transforms. The authors' layout has the same
products of matrices and the same attention. So its time, too, is near the bound when it is
compiled; ``published_ms / bound_ms`` is the largest speed-up that any layout can have over it.

Models are timed with one image. The script refuses to run if other processes are busy. It takes
about eight minutes:

    python benchmarks/octic_cpu.py --output benchmarks/octic_cpu.csv
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import vitrail.models  # noqa: F401  # isort: skip
import pandas as pd
import psutil
import timm
import torch
from octic_published import PublishedLayout, to_irreps
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from replication.measures.throughput import every_one_compiled, time_in_turns
from vitrail.octic.group import from_channels
from vitrail.provenance import provenance

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MODES = ("eager", "compiled")
LINEAR_SAVING = 64 / 12  # octic, Sec. 3.4
TARGETS = {"over_published": 1.15, "share_of_bound": 0.85}
IDLE = 0.1  # number of cores that other processes may keep busy

# The least memory traffic of a block besides its linear layers and attention. The unit is the copy
# of a tensor (B, N, C): one read and one write. The terms: the first norm; the first residual and
# the second norm, which read two tensors and write two; the GELU, of four times the channels; the
# second residual, which reads two tensors and writes one.
TRAFFIC = (1, 2, 4, 1.5)


class Size(NamedTuple):
    """A dense model, its octic counterpart, and the sizes of both."""

    dense: str
    octic: str
    dim: int
    heads: int
    tokens: int
    depth: int


LARGE = Size("deit3_large_patch16_224", "octic_d8_vit_large_patch16_224", 1024, 16, 197, 24)
HUGE = Size("deit3_huge_patch14_224", "octic_d8_vit_huge_patch14_224", 1280, 16, 257, 32)
BLOCK = "ViT-L block"
MODELS = {"ViT-L": LARGE, "ViT-H": HUGE}

Calls = dict[str, Callable[[], object]]


class DenseLinears(nn.Module):
    """The linear layers of a block, each applied to its own tensor."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.layers = nn.ModuleList([block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2])

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """Apply each layer to its input."""
        return [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]


def bound_calls(size: Size, batch_size: int, dtype: torch.dtype, compiled: bool) -> Calls:
    """Return calls whose times are the three terms of the bound, for one block."""
    shape = (batch_size, size.tokens, size.dim)
    block = Block(size.dim, size.heads, qkv_bias=True).eval().to(dtype)
    linears = DenseLinears(block)
    inputs = [torch.randn(shape).to(dtype) for _ in range(3)]
    inputs.append(torch.randn(*shape[:2], 4 * size.dim).to(dtype))
    qkv = torch.randn(*shape[:2], 3, size.heads, size.dim // size.heads).to(dtype)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()  # views, as in timm's attention
    pairs = [torch.randn(2, int(part * torch.Size(shape).numel())).to(dtype) for part in TRAFFIC]

    def copy() -> None:
        for target, source in pairs:
            target.copy_(source)

    run = torch.compile(linears) if compiled else linears
    return {
        "linear": lambda: run(*inputs),
        "attention": partial(functional.scaled_dot_product_attention, q, k, v),
        "elementwise": copy,
    }


def layouts(
    what: str, batch_size: int, dtype: torch.dtype
) -> tuple[Size, dict[str, tuple[nn.Module, Any]]]:
    """Return a size, and its modules and their inputs: dense, the authors' layout, ours."""
    torch.manual_seed(0)
    size = LARGE if what == BLOCK else MODELS[what]
    ours = timm.create_model(size.octic, **({"depth": 1} if what == BLOCK else {}))
    published = PublishedLayout(ours).eval().to(dtype)
    ours = ours.eval().to(dtype)
    if what != BLOCK:
        images = torch.randn(batch_size, 3, 224, 224).to(dtype)
        dense = timm.create_model(size.dense).eval().to(dtype)
        modules = {"dense": dense, "published": published, "ours": ours}
        return size, {name: (module, images) for name, module in modules.items()}
    x = torch.randn(batch_size, size.tokens, size.dim).to(dtype)
    block = Block(size.dim, size.heads, qkv_bias=True, init_values=1e-4).eval().to(dtype)
    features = from_channels(x)
    return size, {
        "dense": (block, x),
        "published": (published.blocks[0], to_irreps(features)),
        "ours": (ours.blocks[0], features),
    }


def compare(what: str, precision: str, batch_size: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Time all layouts and the bound in each mode; yield a row for each mode."""
    torch.compiler.reset()  # frees the models of earlier calls
    dtype = PRECISIONS[precision]
    size, ways = layouts(what, batch_size, dtype)
    for mode in MODES:
        compiled = mode == "compiled"
        calls = bound_calls(size, batch_size, dtype, compiled)
        for name, (module, x) in ways.items():
            for block in [module] if what == BLOCK else module.blocks:
                if compiled:
                    block.compile()
            calls[name] = partial(module, x)
        with torch.inference_mode(), every_one_compiled():
            seconds = pd.DataFrame(time_in_turns(calls, "cpu", rounds, warmup=1))
            spent = profiled(calls["ours"])
        depth = 1 if what == BLOCK else size.depth
        row = {"model": what, "precision": precision, "mode": mode}
        row |= summary(seconds, depth, spent) | {"batch_size": batch_size, "rounds": rounds}
        print(row, flush=True)
        yield row


def summary(seconds: pd.DataFrame, depth: int, spent: dict[str, float]) -> dict[str, Any]:
    """Compare the times within each round; `spent` has the shares of our time by kind of work."""
    terms = seconds[["linear", "attention", "elementwise"]].copy()
    terms["linear"] /= LINEAR_SAVING
    terms *= depth
    seconds = seconds.assign(bound=terms.sum(axis=1))
    row: dict[str, Any] = {
        f"{name}_ms": milliseconds(seconds[name])
        for name in ("dense", "published", "ours", "bound")
    }
    for ratio, (numerator, denominator) in {
        "over_dense": ("dense", "ours"),
        "over_published": ("published", "ours"),
        "share_of_bound": ("bound", "ours"),
    }.items():
        low, middle, high = (seconds[numerator] / seconds[denominator]).quantile([0.25, 0.5, 0.75])
        row |= {
            ratio: round(middle, 2),
            f"{ratio}_25": round(low, 2),
            f"{ratio}_75": round(high, 2),
        }
        if ratio in TARGETS:
            row |= {f"{ratio}_target": TARGETS[ratio]}
            row[f"{ratio}_reached"] = bool(middle >= TARGETS[ratio])
    row |= {f"bound_{name}_ms": milliseconds(terms[name]) for name in terms}
    return row | {
        f"ours_{name}_ms": milliseconds(share * seconds["ours"]) for name, share in spent.items()
    }


def milliseconds(seconds: pd.Series) -> float:
    return round(1000 * float(seconds.median()), 1)


# Patterns of names in torch's profiler: products of matrices, also compiled ones, and attention.
_KINDS = {"linear": re.compile(r"mm\b|_mm|linear"), "attention": re.compile("attention")}


def profiled(call: Callable[[], object]) -> dict[str, float]:
    """Return which shares of a call's time go to linear layers, to attention, and elsewhere."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    microseconds = dict.fromkeys([*_KINDS, "other"], 0.0)
    for event in profiler.key_averages():
        kinds = (kind for kind, names in _KINDS.items() if names.search(event.key))
        microseconds[next(kinds, "other")] += event.self_cpu_time_total
    return {kind: spent / sum(microseconds.values()) for kind, spent in microseconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=4, help="of a block; a model has 1 image")
    parser.add_argument("--rounds", type=int, default=21, help="of a block; of a model at most 5")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="where to write the CSV")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    busy = psutil.cpu_percent(interval=3) / 100 * psutil.cpu_count()
    if busy > IDLE:
        sys.exit(f"other processes keep {busy:.1f} cores busy; time on an idle machine")
    origin = provenance("cpu")
    where = {"device": origin["device"], "torch": torch.__version__, "commit": origin["commit"]}
    sizes = {BLOCK: (args.batch_size, args.rounds)}
    sizes |= dict.fromkeys(MODELS, (1, min(args.rounds, 5)))
    rows: list[dict[str, Any]] = []
    for (what, size), precision in itertools.product(sizes.items(), PRECISIONS):
        for row in compare(what, precision, *size):
            rows.append({**row, **where})
            if args.output:  # written after each row, so that a later error loses nothing
                pd.DataFrame(rows).to_csv(args.output, index=False)
    print(pd.DataFrame(rows).T.to_string())


if __name__ == "__main__":
    main()
