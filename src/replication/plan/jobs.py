"""A job is a file: all that the training of a run, or a measurement, needs to know.

The rules take inputs and resources from it, and the job reads nothing else: it can be repeated from
it alone, whatever the YAML has come to say since. `identity` is the digest of what decides the
result (not where the data lie, or how many workers read them): where it changes, it is due again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from replication.plan.datasets import DatasetInfo
from replication.plan.recipe import AnyRecipe
from replication.plan.schema import Strict, parse
from replication.plan.settings import Resources
from vitrail.errors import VitrailError
from vitrail.files import atomic_path


class SeedFolders:
    """The folder of a run, with one in it for each seed."""

    folder: Path

    def seed_folder(self, seed: int) -> Path:
        """Where the run of one seed keeps its weights, log and provenance."""
        return self.folder / f"seed{seed}"

    def weights(self, seed: int) -> Path:
        """The file that a seed is trained to."""
        return self.seed_folder(seed) / "weights.safetensors"


class TrainedRun(SeedFolders, Strict):
    """A run as those find it who use its weights: where they lie, and what vouches for them.

    `receipts` are by seed.
    """

    name: str
    recipe_hash: str
    folder: Path
    receipts: Mapping[int, Path] = {}


class Job(Strict):
    """What both kinds have in common.

    `inputs` are the files that must be there before it starts, `output` is the one that it writes.
    """

    scale: str
    paper: str
    name: str
    output: Path
    inputs: tuple[Path, ...]
    resources: Resources
    identity: str
    device: str
    data_root: Path
    workers: NonNegativeInt

    @property
    def path(self) -> Path:
        """Where the job's own file lies."""
        return job_path(self.output, self.scale)

    def write(self) -> Path:
        """Write the job's file, unless it says the same; return its path, or raise VitrailError."""
        text = self.model_dump_json(indent=1) + "\n"
        if not self.path.is_file() or self.path.read_bytes() != text.encode():
            with atomic_path(self.path, durable=False) as temporary:  # it can be planned again
                temporary.write_text(text, encoding="utf-8")
        return self.path


class TrainingJob(Job):
    """Some seeds of one recipe, trained in turn; the output is the receipt.

    `published` is the file of the published weights that training starts from, `start` the run from
    whose weights of the same seed it does. With `retrain`, what other code has trained is trained
    anew. How it is watched (`validate_every` epochs, `tensorboard`) changes no bit of its weights.
    """

    kind: Literal["training"] = "training"
    recipe: AnyRecipe = Field(discriminator="task")
    dataset: DatasetInfo
    seeds: tuple[NonNegativeInt, ...]
    checkpoint_seconds: PositiveFloat
    published: Path | None = None
    start: TrainedRun | None = None
    retrain: bool = False
    validate_every: PositiveInt | None = None
    tensorboard: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.output.parent


class MeasurementJob(Job):
    """A function with its arguments, on trained models, on a recipe or on nothing.

    `run` says where the trained models lie; without it a `recipe` is measured untrained. `datasets`
    are those that the measure reads besides the recipe's own.
    """

    kind: Literal["measurement"] = "measurement"
    function: str
    args: dict[str, Any] = {}
    seeds: tuple[NonNegativeInt, ...]
    datasets: tuple[DatasetInfo, ...] = ()
    recipe: AnyRecipe | None = Field(None, discriminator="task")
    recipe_name: str | None = None
    dataset: DatasetInfo | None = None
    run: TrainedRun | None = None

    @property
    def reads(self) -> tuple[DatasetInfo, ...]:
        """The datasets whose images may be read: those named, and that of a trained model."""
        return (*((self.dataset,) if self.run and self.dataset else ()), *self.datasets)


JOBS: dict[str, type[TrainingJob | MeasurementJob]] = {
    "training": TrainingJob,
    "measurement": MeasurementJob,
}


def job_path(output: Path, scale: str) -> Path:
    """The file of the job that makes `output`; two scales may share a run and differ in the job."""
    folder = output.parent.parent if output.parent.name == "measurements" else output.parent
    return folder / "jobs" / scale / output.name


def read_job(path: Path) -> TrainingJob | MeasurementJob:
    """Read a job's file; raises VitrailError where it is missing or damaged."""
    content = _content(path)
    return parse(JOBS[content["kind"]], content, str(path))


def read_needs(path: Path) -> dict[str, Any]:
    """Read inputs, identity and resources of a job's file, for the rules; errors as `read_job`."""
    content = _content(path)
    needs = {name: content[name] for name in ("inputs", "identity")}
    return {**needs, **content["resources"]}


def _content(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        JOBS[content["kind"]], content["identity"], content["inputs"], content["resources"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VitrailError(
            f"{path} is no job ({type(error).__name__}: {error}); start snakemake again to have it "
            "planned anew"
        ) from None
    return content
