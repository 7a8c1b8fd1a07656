"""Images per second of several models, measured side by side (Rojas-Gomez et al., Table 3).

Models take turns, one forward pass each. If the machine is slower for a while, it is so for all
models, and the ratio of their mean times varies less than the times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch._dynamo

from replication.context import Context, Values
from replication.measures.parameters import architectures, comparisons, count
from replication.training.model_factory import Precision, autocast
from vitrail.errors import VitrailError


def throughput(
    context: Context,
    models: Mapping[str, Mapping[str, Any]],
    pairs: Mapping[str, str | Sequence[str]] | None = None,
    batch_size: int = 128,
    passes: int = 100,
    warmup: int = 10,
    precision: Precision = "fp32",
    compile: bool = False,
) -> Values:
    """Measure the inference throughput of untrained models on noise (shift, Sec. 5.4).

    Args:
        context: device and seed.
        models: fields of `replication.measures.parameters.Architecture` for each label.
        pairs: for a label, the label of its partner, the model with which it is compared, or a list
            of several.
        batch_size: images of a forward pass.
        passes: timed forward passes of each model.
        warmup: forward passes of each model before these.
        precision: in which the models run.
        compile: use torch.compile.

    Returns:
        ``"<label>/..."`` with ``images_per_second`` (at the mean time of a pass), ``parameters``,
        ``millions`` (of parameters) and ``batch_size``. For a model in `pairs` also ``gain``, its
        throughput divided by its partner's, and ``change``, by how many percent its throughput is
        lower.

    Raises:
        VitrailError: a model does not exist or refuses its arguments, a pair is not measured, or
            nothing is timed.
    """
    compared = comparisons(pairs, models)
    if passes < 1 or batch_size < 1:
        raise VitrailError(
            f"passes is {passes} and batch_size is {batch_size}; give at least 1 of each"
        )
    calls: dict[str, Callable[[], object]] = {}
    values: dict[str, float] = {}
    for label, architecture in architectures(models).items():
        model = architecture.build(context.seed).eval()
        images = architecture.images(batch_size, model, context.seed).to(context.device)
        values |= {f"{label}/{unit}": number for unit, number in count(model).items()}
        values[f"{label}/batch_size"] = batch_size
        model.to(context.device)
        if compile:
            model.compile(dynamic=False)
        calls[label] = partial(model, images)
    with torch.inference_mode(), autocast(context.device, precision), every_one_compiled():
        seconds = time_in_turns(calls, context.device, passes, warmup)
    means = {label: statistics.mean(times) for label, times in seconds.items()}
    values |= {f"{label}/images_per_second": batch_size / mean for label, mean in means.items()}
    for label, plain, end in compared:
        ratio = means[plain] / means[label]
        values |= {f"{label}/gain{end}": ratio, f"{label}/change{end}": 100 * (1 - ratio)}
    return values


def every_one_compiled() -> AbstractContextManager[object]:
    """Return a context in which torch compiles all models that share a `forward`, or raises.

    By default torch compiles eight of them and runs the others uncompiled, with a message in its
    log only. The settings have their names of torch 2.6, which later versions also accept.
    """
    return torch._dynamo.config.patch(cache_size_limit=1000, fail_on_cache_limit_hit=True)


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], device: str, passes: int, warmup: int
) -> dict[str, list[float]]:
    """Time calls in rounds, each call once in a round; return for each name the seconds by round.

    `warmup` rounds are not timed; `passes` rounds are.
    """
    for _ in range(warmup):
        for call in calls.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(passes):
        for name, call in calls.items():
            seconds[name].append(elapsed(call, device))
    return seconds


def elapsed(call: Callable[[], object], device: str) -> float:
    """Return the time of one call in seconds; on a GPU until its work there is done."""
    if torch.device(device).type == "cuda":
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()  # wait for the end of the previous call
            start.record()
            call()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1000
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
