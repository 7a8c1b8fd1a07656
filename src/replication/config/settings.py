"""Settings of the workflow, and the scales, which replace values of the papers.

No code asks for the name of the scale; it only reads these values.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.json_schema import SkipJsonSchema

from replication.config.schema import AsWritten, StandIns, Strict, merge, parse, read_mapping
from vitrail.errors import VitrailError, require_known

Step = Literal["train", "evaluate", "benchmark"]


def _as_folder(path: Any) -> Any:
    if path in (None, ""):
        raise ValueError("name a folder")
    if not isinstance(path, str):
        return path  # pydantic refuses it
    folder = os.path.expandvars(os.path.expanduser(path))
    if re.search(r"\$[\w{]", folder):
        raise ValueError("name a folder whose environment variables are set, or write it in full")
    if folder.startswith(("-", "~")) or {"{", "}"} & {*folder}:
        raise ValueError("name a folder without braces, whose name begins with no hyphen or tilde")
    return folder


# A folder of the workflow; "~" is the user's home, and $NAME an environment variable. A command
# would read a name that begins with a hyphen as an option, and Snakemake reads braces as wildcards.
Folder = Annotated[str, BeforeValidator(_as_folder)]


class Settings(Strict):
    """``configs/default.yaml``: the settings that ``snakemake --config key=value`` may change."""

    scale: str = Field("laptop", description="overlay of values: a file of configs/scales/")
    lead_paper: str = Field("shift", description="the paper whose targets also go by tableN, figN")
    data_root: Folder = Field("data", description="datasets and pretrained weights")
    runs_root: Folder = Field("runs", description="checkpoints, logs, weights, measurements")
    results_root: Folder = Field("results", description="tables, figures, reports")
    device: Literal["cpu", "cuda"] | None = Field(
        None, description="what trains and measures; null: the scale's"
    )
    fast_dev_run: bool = Field(
        False,
        description="a rehearsal: two steps of each training, a few images a measure, made-up "
        "images in place of files; its numbers mean nothing",
    )
    retrain: Literal["never", "changed"] = Field(
        "never", description="changed: train anew the runs that other code has trained"
    )
    extensions: bool | None = Field(
        None, description="whether rows that the papers lack are run; null: as the scale has it"
    )
    allocation: bool = Field(
        False, description="snakemake runs in a SLURM allocation, and starts its steps by srun"
    )

    @property
    def label(self) -> str:
        """Return the scale's name in results and their folder, with a suffix for a rehearsal."""
        return f"{self.scale}-fast_dev_run" if self.fast_dev_run else self.scale

    @property
    def runs(self) -> Path:
        """Return the folder of runs; a rehearsal has one of its own."""
        return Path(self.runs_root, "fast_dev_run" if self.fast_dev_run else "")

    @property
    def results(self) -> Path:
        """Return the folder of tables, figures and reports."""
        return Path(self.results_root, self.label)


class Resources(Strict):
    """The resources that a node of the plan asks for: machines, and what it needs of each."""

    nodes: PositiveInt = Field(1, description="of a training, which shares its steps among them")
    gpus: NonNegativeInt = 0
    threads: PositiveInt = 1
    mem_mb: PositiveInt = 2000
    runtime: PositiveInt = Field(30, description="minutes, at most what the partition allows")

    @property
    def devices(self) -> int:
        """Return the number of devices: GPUs, or one CPU per machine for a job without GPUs."""
        return self.nodes * max(1, self.gpus)


class TrainingOptions(Strict):
    """How a training is carried out; nothing here changes a bit of its weights.

    The object is passed unchanged from the scale to the training, so a new option needs only a
    field here and the code that reads it.
    """

    workers: NonNegativeInt = Field(0, description="data-loading processes of each device")
    checkpoint_minutes: NonNegativeFloat = Field(10, description="between checkpoints")
    validate_every: PositiveInt | None = Field(
        None,
        description="epochs between validations of a classifier or a segmenter in training, with "
        "one at the end; null: none",
    )


class RunSettings(TrainingOptions):
    """The number of runs of a recipe, their training options, and the resources of its nodes.

    The resources are kept as they are written, with their places; `resources_of` reads them.
    """

    seeds: PositiveInt = Field(
        1, description="runs of each recipe, seeded by one number after the other"
    )
    resources: Annotated[dict[Step, Resources], AsWritten] = {}

    @property
    def options(self) -> TrainingOptions:
        """Return the training options alone."""
        return TrainingOptions(**self.model_dump(include=set(TrainingOptions.model_fields)))

    def with_deltas(self, deltas: Iterable[RunSettings]) -> RunSettings:
        """Return these settings with those that `deltas` set merged over them, in their order."""
        own = set(RunSettings.model_fields)
        written = (
            {name: getattr(settings, name) for name in settings.model_fields_set & own}
            for settings in (self, *deltas)
        )
        return RunSettings.model_validate(merge({}, *written))

    def resources_of(self, step: Step) -> Resources:
        """Return the resources that a node of this step asks for."""
        return Resources.model_validate(self.resources.get(step, {}))


class Scale(RunSettings):
    """``configs/scales/<name>.yaml``: the values of a scale that apply to every paper."""

    name: SkipJsonSchema[str]
    description: str
    device: Literal["cpu", "cuda"]
    extensions: bool = Field(
        True, description="whether recipes of rows that the papers lack (`ours`) are run"
    )
    first_seed: NonNegativeInt = Field(
        0, description="of the runs: a scale that begins elsewhere draws what no other has seen"
    )
    datasets: StandIns = Field(
        {},
        description="dataset -> the one that stands in for it; null: this scale does not have "
        "these images, and what is measured on them is not run",
    )


def load_settings(root: Path, overrides: dict[str, Any] | None = None) -> Settings:
    """Read ``configs/default.yaml`` and merge `overrides` over it.

    Raises VitrailError if `root` is no checkout of Vitrail, or if a value is wrong.
    """
    path = root / "configs" / "default.yaml"
    if not path.is_file():
        raise VitrailError(
            f"{root.absolute()} has no configs/default.yaml; run this from the project's root"
        )
    return parse(Settings, merge(read_mapping(path), overrides or {}), str(path))


def snakemake_command(target: str, *options: str, config: Iterable[str]) -> str:
    """Return the command that makes a target; `config` are its settings, each ``key=value``."""
    settings = ["--config", *config] if config else []
    return shlex.join(["snakemake", target, *options, *settings])


def known_scales(root: Path) -> list[str]:
    """Return the names of all scales."""
    return sorted(file.stem for file in (root / "configs" / "scales").glob("*.yaml"))


def load_scale(root: Path, name: str) -> Scale:
    """Read a scale; raises VitrailError if it is missing or wrong."""
    require_known("scale", name, known_scales(root))
    path = root / "configs" / "scales" / f"{name}.yaml"
    return parse(Scale, merge(read_mapping(path), {"name": name}), str(path))
