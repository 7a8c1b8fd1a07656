"""P-SHAP by a sweep: its difference from the CPU, and its speed in images per second."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch.utils.data import TensorDataset

from benchmarks.gpu.families import position
from benchmarks.gpu.running import Measured, Settings, Step
from replication.measures.throughput import elapsed
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.measure import position_shap

PERMUTATIONS = 4
EMBEDDINGS = ("ape", "rope")


def steps() -> Iterable[Step]:
    """Return one step, which runs alone because it measures times."""
    yield Step("P-SHAP", p_shap, limit=45, alone=True)


def p_shap(settings: Settings) -> Iterator[Measured]:
    """Measure P-SHAP of models with random weights; the labels are the models' predictions."""
    few, many = (8, 8) if settings.quick else (64, 4096)
    for name in EMBEDDINGS:
        model = position(settings.quick)[f"ViT {name}"].build()
        measured = permutable(model)
        images = torch.randn(many, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            on_cpu = model(images[:few]).argmax(dim=1)
        same = TensorDataset(images[:few], on_cpu)
        expected = position_shap(measured, same, permutations=PERMUTATIONS, batch_size=few).raw_mean
        model.to(settings.device)
        found = position_shap(measured, same, permutations=PERMUTATIONS, batch_size=few).raw_mean
        yield Measured(f"P-SHAP/{name}/difference from the CPU", abs(found - expected))
        data = TensorDataset(images, torch.zeros(many, dtype=torch.long))
        times = []
        for _ in range(1 if settings.quick else 3):
            result = position_shap(
                measured,
                data,
                permutations=PERMUTATIONS,
                batch_size=min(many, 1024),
            )
            times.append(result.samples_per_second)
        speed = statistics.median(times)
        yield Measured(f"P-SHAP/{name}/images per second", speed, "images/s")
        classify = partial(_classify, model, images)
        plain = [elapsed(classify, settings.device) for _ in range(3)]
        ratio = many / speed / statistics.median(plain)
        yield Measured(f"P-SHAP/{name}/over plain inference", ratio, "x")


def _classify(model: torch.nn.Module, images: torch.Tensor) -> None:
    device = next(model.parameters()).device
    with torch.inference_mode():
        for part in images.split(1024):
            model(part.to(device)).argmax(dim=1).cpu()
