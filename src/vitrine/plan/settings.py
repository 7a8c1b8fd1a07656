"""Settings of the workflow and the scales: which values stand in for the papers' own.

A scale is an overlay of values. No code asks what scale it is; it only reads these values.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from vitrine.errors import VitrineError, did_you_mean
from vitrine.plan.schema import Strict, parse, read_yaml

STEPS = ("train", "evaluate", "benchmark")
Step = Literal["train", "evaluate", "benchmark"]


class Settings(Strict):
    """``configs/default.yaml``: what one may change with ``snakemake --config key=value``."""

    scale: str = Field("laptop", description="overlay of values: a file of configs/scales/")
    lead_paper: str = Field("shift", description="the paper whose targets also go by tableN, figN")
    data_root: str = Field("data", description="datasets and pretrained weights")
    runs_root: str = Field("runs", description="checkpoints, logs, weights, measurements")
    results_root: str = Field("results", description="tables, figures, reports")
    retrain: Literal["never", "changed"] = Field(
        "never", description="changed: train anew the runs that other code has trained"
    )


class Resources(Strict):
    """What one job asks of the scheduler."""

    gpus: NonNegativeInt = 0
    threads: PositiveInt = 1
    mem_mb: PositiveInt = 2000
    runtime: PositiveInt = Field(30, description="minutes; doubled at each retry")


class Scale(Strict):
    """``configs/scales/<name>.yaml``."""

    name: str
    description: str
    device: Literal["cpu", "cuda"] = "cpu"
    seeds: PositiveInt = Field(1, description="runs of each recipe, seeded 0, 1, ...")
    seeds_per_job: PositiveInt = Field(1, description="runs that one training job does in turn")
    workers: NonNegativeInt = Field(0, description="data-loading processes of each device")
    checkpoint_minutes: PositiveFloat = 10
    datasets: dict[str, str] = Field({}, description="dataset -> the one that stands in for it")
    recipe: dict[str, Any] = Field({}, description="delta over every classifier's recipe")
    segmentation: dict[str, Any] = Field({}, description="delta over every segmenter's recipe")
    resources: dict[Step, Resources] = {}

    def resources_of(self, step: Step) -> Resources:
        """Return what a job of this step asks for."""
        return self.resources.get(step, Resources())


def load_settings(root: Path, overrides: dict[str, Any] | None = None) -> Settings:
    """Read ``configs/default.yaml`` and lay `overrides` over it."""
    path = root / "configs" / "default.yaml"
    written = read_yaml(path)
    if isinstance(written, dict):
        written |= overrides or {}
    return parse(Settings, written, str(path))


def known_scales(root: Path) -> list[str]:
    """Return the names of all scales."""
    return sorted(file.stem for file in (root / "configs" / "scales").glob("*.yaml"))


def load_scale(root: Path, name: str) -> Scale:
    """Read one scale; it is called like its file.

    Raises:
        VitrineError: no such scale, or its file is wrong.
    """
    known = known_scales(root)
    if name not in known:
        raise VitrineError(f"scale '{name}' is unknown{did_you_mean(name, known)}")
    path = root / "configs" / "scales" / f"{name}.yaml"
    written = read_yaml(path)
    return parse(
        Scale, {**written, "name": name} if isinstance(written, dict) else written, str(path)
    )


if __name__ == "__main__":
    # The schema that editors check configs/default.yaml with; a test keeps the file in step.
    print(json.dumps(Settings.model_json_schema(), indent=2))
