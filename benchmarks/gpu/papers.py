"""The measurements of octic Tables 1 and 2 and of shift Tables 3, 4 and A1.

Models, pairs and shapes are those that the tables name in ``configs/papers``. The measures are
those of `replication`.
"""

from __future__ import annotations

import statistics
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import vitrail.models  # noqa: F401  # isort: skip  (before timm: it repairs torchvision's import)

import timm
import torch
import yaml

from benchmarks.gpu.families import OCTIC
from benchmarks.gpu.running import Measured, Settings, Step, each
from benchmarks.shift_ties import FAMILIES as NARROW
from replication.measures.memory import peak
from replication.measures.parameters import Architecture
from replication.measures.throughput import every_one_compiled, throughput, time_in_turns
from replication.papers.octic.measures import block_operations
from replication.papers.shift.measures import module_runtime
from vitrail.octic.group import from_channels

PAPERS = Path(__file__).parents[2] / "configs" / "papers"
SIZES = ("L", "22B", "H", "G", "e")  # of octic Table 1, in the order in which they are measured
BATCH = 64  # octic, App. E.4
Models = Mapping[str, Mapping[str, Any]]


def compilation_steps() -> Iterable[Step]:
    """Return one step, the longest of those that need not run alone."""
    yield Step("octic/compilation", compilation, limit=150, needs_cuda=True)


def steps() -> Iterable[Step]:
    """Yield the steps of memory, then those that need the device alone."""
    for label in octic_models(quick=False):
        yield Step(f"octic/memory/{label}", partial(octic_memory, label=label), 45, needs_cuda=True)
    for label in shift_models(quick=False):
        yield Step(f"shift/memory/{label}", partial(shift_memory, label=label), 45, needs_cuda=True)
    yield Step("octic/table1", blocks, limit=110, alone=True)
    for batch_size in (128, 1):
        name = f"shift/table3, batch {batch_size}"
        measure = partial(shift_throughput, batch_size=batch_size)
        yield Step(name, measure, limit=60, alone=True)
    yield Step("octic/table2", octic_throughput, limit=75, alone=True)
    yield Step("octic/table2 compiled", compiled_models, limit=90, alone=True, needs_cuda=True)
    yield Step("shift/table4", shift_modules, limit=30, alone=True)


def _artifacts(paper: str) -> dict[str, Any]:
    """Return ``artifacts.yaml`` of a paper as plain YAML, without the parser of the plan."""
    text = (PAPERS / paper / "artifacts.yaml").read_text(encoding="utf-8")
    written: dict[str, Any] = yaml.safe_load(text)
    return written


def _timed(paper: str, measure: str) -> dict[str, Any]:
    """Return the models that a measure of a paper times, by label."""
    return _artifacts(paper)["measures"][measure]["args"]["models"]


def octic_models(quick: bool) -> dict[str, Mapping[str, Any]]:
    """Return models of octic Table 2: all of ViT-L's size, and ViT-H, I8(ViT-H), D8(ViT-H)."""
    models: Models = _timed("octic", "throughput")
    wanted = {label: m for label, m in models.items() if label.endswith("-l")}
    wanted |= {label: models[label] for label in ("vit-h", "i8-h", "d8-h")}
    return {label: _small(model) if quick else model for label, model in wanted.items()}


def _small(model: Mapping[str, Any]) -> Mapping[str, Any]:
    side = 56 if "patch14" in model["name"] else 64
    return {"name": model["name"], "args": {**OCTIC, "img_size": side}, "image_size": side}


def shift_models(quick: bool) -> dict[str, Mapping[str, Any]]:
    """Return the models of shift Tables 3 and A1, and the adaptive ones with selection "fast"."""
    models: Models = _timed("shift", "throughput")
    found: dict[str, Mapping[str, Any]] = {}
    for label, model in models.items():
        found[label] = model
        if (model.get("args") or {}).get("selection") == "paper":
            found[f"{label}_fast"] = {**model, "args": {"selection": "fast"}}
    if not quick:
        return found
    # timm's MViTv2 cannot be made narrow by its arguments.
    narrow = {name: args for label, (name, args) in NARROW.items() if label != "A-MViTv2"}
    narrow |= {name.removeprefix("a_"): args for name, args in narrow.items()}
    return {
        label: {**m, "args": {**narrow.get(m["name"], {}), **(m.get("args") or {})}}
        for label, m in found.items()
    }


def blocks(settings: Settings) -> Iterator[Measured]:
    """Time a dense and an octic block of each size of octic Table 1, in bf16, and count both."""
    shapes = _artifacts("octic")["measures"]["block_ratios"]["args"]["shapes"]
    rounds = 2 if settings.quick else 30

    def compare(size: str) -> Iterator[Measured]:
        dense_macs, octic_macs = block_operations(**shapes[size])
        yield Measured(f"octic/block ViT-{size}/FLOPs", dense_macs / octic_macs, "x", "")
        for mode in ("eager", "compiled") if settings.cuda else ("eager",):
            yield from _block_times(settings, size, mode == "compiled", rounds)
        if not settings.cuda:
            yield Measured(f"octic/block ViT-{size}/compiled", None, note="needs CUDA")

    yield from each(SIZES[:1] if settings.quick else SIZES, compare)


def _block_times(settings: Settings, size: str, compiled: bool, rounds: int) -> Iterator[Measured]:
    measures = ("throughput", "wide_throughput", "widest_throughput")
    named = ChainMap(*(_timed("octic", measure) for measure in measures))
    calls = {}
    with torch.inference_mode():
        for kind in ("vit", "d8"):
            model = named[f"{kind}-{size.lower()}"]
            model = _small(model) if settings.quick else model
            args = {**model.get("args", {}), "depth": 1}
            with torch.device(settings.device):
                built: Any = timm.create_model(model["name"], **args)
                x = torch.randn(*_tokens(size, settings.quick), built.embed_dim)
            block, x = built.blocks[0].eval().to(torch.bfloat16), x.to(torch.bfloat16)
            del built  # frees its embeddings and head
            if compiled:
                block.compile(dynamic=False)
            calls[kind] = partial(block, from_channels(x) if kind == "d8" else x)
        with every_one_compiled():
            seconds = time_in_turns(calls, settings.device, rounds, warmup=3)
    mode = "compiled" if compiled else "eager"
    gain = statistics.median(a / b for a, b in zip(seconds["vit"], seconds["d8"], strict=True))
    name = f"octic/block ViT-{size}/{mode}"
    yield Measured(f"{name}/gain", gain, "x", "bfloat16")
    for kind, times in seconds.items():
        yield Measured(f"{name}/{kind}", 1000 * statistics.median(times), "ms", "bfloat16")


def _tokens(size: str, quick: bool) -> tuple[int, int]:
    """Return the number of images of a batch, and of tokens of an image with the class token."""
    return (4, 17) if quick else (BATCH, 257 if size == "H" else 197)


def compilation(settings: Settings) -> Iterator[Measured]:
    """Compile the blocks that `blocks` times; torch then takes them from its disk cache."""
    for size in SIZES:
        for _ in _block_times(settings, size, compiled=True, rounds=1):
            pass
    yield Measured("octic/compilation", float(len(SIZES)), "pairs of blocks", "bfloat16")


def octic_throughput(settings: Settings) -> Iterator[Measured]:
    """Time the models of octic Table 2, in bf16 and not compiled."""
    for width in ("-l",) if settings.quick else ("-l", "-h"):
        models = {k: m for k, m in octic_models(settings.quick).items() if k.endswith(width)}
        pairs = {label: f"vit{width}" for label in models if not label.startswith("vit")}
        passes, batch_size = (1, 1) if settings.quick else (15, BATCH)
        values = throughput(
            settings.context, models, pairs, batch_size, passes, warmup=2, precision="bf16"
        )
        yield from _speeds("octic/table2 eager", values, models, pairs)


def compiled_models(settings: Settings) -> Iterator[Measured]:
    """Time ViT-L and D8(ViT-L), compiled block by block: all blocks share one compilation.

    Both are also timed as CUDA graphs. A replayed graph starts the same kernels without Python, so
    the difference of the times is the time that the GPU waits for the CPU.
    """
    calls = {}
    for label in ("vit-l", "d8-l"):
        architecture = Architecture(**octic_models(quick=False)[label])
        model: Any = architecture.build(0).eval().to(settings.device, torch.bfloat16)
        images = architecture.images(BATCH, model, 0).to(settings.device, torch.bfloat16)
        for block in model.blocks:
            block.compile(dynamic=False)
        calls[label] = partial(model, images)
    for mode in ("compiled", "compiled, CUDA graph"):
        with torch.inference_mode(), every_one_compiled():
            if mode.endswith("graph"):
                calls = {label: _graph(call) for label, call in calls.items()}
            seconds = time_in_turns(calls, settings.device, passes=30, warmup=3)
        gain = statistics.median(a / b for a, b in zip(*seconds.values(), strict=True))
        yield Measured(f"octic/table2 {mode}/d8-l/gain", gain, "x", "bfloat16")
        for label, times in seconds.items():
            speed = BATCH / statistics.median(times)
            name = f"octic/table2 {mode}/{label}/images per second"
            yield Measured(name, speed, "images/s", "bfloat16")


def _graph(call: Callable[[], object]) -> Callable[[], object]:
    """Record the kernels of a call, which must have run before; return their replay."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def shift_throughput(settings: Settings, batch_size: int) -> Iterator[Measured]:
    """Time the models of shift Table 3, plain and adaptive, in float32 without TF32."""
    models = shift_models(settings.quick)
    pairs = {
        label: label.removeprefix("a_").removesuffix("_fast").removesuffix("_off")
        for label in models
        if label.startswith("a_")
    }
    passes = 1 if settings.quick else 20
    batch = 1 if settings.quick else batch_size
    values = throughput(settings.context, models, pairs, batch, passes, warmup=1 + passes // 10)
    yield from _speeds(f"shift/table3 batch {batch_size}", values, models, pairs)


def _speeds(
    table: str, values: Mapping[str, Any], models: Models, pairs: Mapping[str, str]
) -> Iterator[Measured]:
    dtype = "bfloat16" if table.startswith("octic") else "float32"
    for label in models:
        speed = values[f"{label}/images_per_second"]
        yield Measured(f"{table}/{label}/images per second", speed, "images/s", dtype)
        if label in pairs:
            gain, note = values[f"{label}/gain"], f"of the throughput of {pairs[label]}"
            yield Measured(f"{table}/{label}/gain", gain, "x", dtype, note)


def shift_modules(settings: Settings) -> Iterator[Measured]:
    """Time the modules of shift Table 4."""
    batch_size, passes = (1, 1) if settings.quick else (128, 30)
    values = module_runtime(settings.context, batch_size, passes)
    for name, value in values.items():
        if name != "batch_size":
            assert isinstance(value, float)
            yield Measured(f"shift/table4/{name}", value, "ms")


def octic_memory(settings: Settings, label: str) -> Iterator[Measured]:
    """Measure the peak memory of inference in bf16 of this process (octic Tables 1 and 2)."""
    architecture = Architecture(**octic_models(settings.quick)[label])
    peaks = peak(architecture, "inference", BATCH, settings.context, "bf16")
    yield Measured(f"octic/memory/{label}", peaks["allocated"], "MiB", "bfloat16")


def shift_memory(settings: Settings, label: str) -> Iterator[Measured]:
    """Measure the peak memory of training of this process (shift Table A1)."""
    architecture = Architecture(**shift_models(settings.quick)[label])
    peaks = peak(architecture, "training", BATCH, settings.context)
    yield Measured(f"shift/memory/{label}/training", peaks["allocated"], "MiB")
