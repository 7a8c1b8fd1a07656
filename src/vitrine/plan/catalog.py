"""The catalogue: the papers' folders at one scale, linked into runs, measurements and artifacts.

It answers every question that the graph and the commands ask (which files make this target, which
run stands behind this cell, what does this run need) and imports no torch, so that building the
graph stays fast. Nothing here knows a paper, a dataset or a scale by name.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vitrine.errors import VitrineError, require_known
from vitrine.plan.code import measuring_digest, training_digest
from vitrine.plan.datasets import DatasetInfo, find, load_registry
from vitrine.plan.jobs import MeasurementJob, SeedFolders, TrainedRun, TrainingJob, identity_of
from vitrine.plan.paper import (
    ArtifactSpec,
    CellSpec,
    Delta,
    Labelled,
    PaperInfo,
    Printed,
    read_reference,
)
from vitrine.plan.recipe import AnyRecipe, SegmentationRecipe, short_hash
from vitrine.plan.resolution import PaperAtScale
from vitrine.plan.schema import load
from vitrine.plan.settings import Resources, Scale, Settings, Step, load_scale, load_settings
from vitrine.provenance import read_provenance


@dataclass(frozen=True)
class Run(SeedFolders):
    """A recipe at this scale with its seeds, and the folder that holds them.

    Recipes of a paper that come out equal share one; it is called after the first of them.
    """

    paper: str
    name: str
    recipe: AnyRecipe
    info: DatasetInfo
    seeds: tuple[int, ...]
    seeds_per_job: int
    folder: Path
    source: Run | None = field(metadata={"doc": "the run whose weights training starts from"})

    @property
    def jobs(self) -> tuple[tuple[int, ...], ...]:
        """The seeds that each training job does in turn."""
        step = self.seeds_per_job
        return tuple(self.seeds[i : i + step] for i in range(0, len(self.seeds), step))

    def receipt(self, seeds: tuple[int, ...]) -> Path:
        """The file that says that these seeds are trained, with the digests of their weights."""
        return self.folder / f"trained-{'-'.join(map(str, seeds))}.json"

    def receipts_of(self, seeds: Iterable[int]) -> tuple[Path, ...]:
        """The receipts of the jobs that train these seeds."""
        return tuple(self.receipt(job) for job in self.jobs if not set(job).isdisjoint(seeds))

    @property
    def receipts(self) -> tuple[Path, ...]:
        """One receipt for each training job."""
        return self.receipts_of(self.seeds)

    @property
    def lineage(self) -> tuple[Run, ...]:
        """The runs that must be trained for this one, in that order; it is the last."""
        return (*(self.source.lineage if self.source else ()), self)

    @property
    def code(self) -> str:
        """The digest of the code that would train it now."""
        return training_digest(self.recipe, self.info)

    def trained_by(self, seeds: Iterable[int]) -> set[str]:
        """The digests of the code that has trained these seeds, joined by "+" if several did."""
        facts = (read_provenance(self.seed_folder(seed)) for seed in seeds)
        return {str(one.get("code", "unknown")) for one in facts if one}


def trained_run(run: Run) -> TrainedRun:
    """Where the trained models of a run lie, as jobs are told it."""
    receipts = {seed: run.receipt(job) for job in run.jobs for seed in job}
    return TrainedRun(
        name=run.name, recipe_hash=run.recipe.hash, folder=run.folder, receipts=receipts
    )


def with_sources(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Some runs and those that they start from, each once."""
    return tuple({one.folder: one for run in runs for one in run.lineage}.values())


@dataclass(frozen=True)
class Measurement:
    """One JSON of numbers: a function with its arguments, on a run, on a recipe or on nothing.

    `described` is the run whose recipe is measured before it is trained, if it ever is;
    `as_printed` says that arguments and datasets are the paper's own.
    """

    paper: str
    name: str
    function: str
    args: Delta
    seeds: tuple[int, ...]
    device: str
    datasets: tuple[str, ...]
    run: Run | None
    described: Run | None
    path: Path
    as_printed: bool

    def __hash__(self) -> int:
        """Hash by path: two measurements of one path are the same."""
        return hash(self.path)

    @property
    def on(self) -> Run | None:
        """The run that is measured, trained or not."""
        return self.run or self.described


@dataclass(frozen=True)
class Cell:
    """One number of an artifact: where it stands, what measures it, what the paper printed.

    `exact` marks a deterministic fact; `digits` are the decimals that the paper prints;
    `comparable` says that nothing stands in for the paper's recipe, arguments and hardware;
    `of_hardware` marks times and memory, which another machine changes.
    """

    row: str
    column: str
    metric: str
    unit: str
    measurement: Measurement | None
    key: str
    digits: int | None
    exact: bool
    comparable: bool
    of_hardware: bool
    printed: Printed | None


@dataclass(frozen=True)
class Artifact:
    """A table or figure of a paper."""

    paper: str
    name: str
    kind: Literal["table", "figure"]
    title: str
    caption: str
    source: str
    note: str
    row_header: str
    rows: tuple[str, ...]
    columns: tuple[Labelled, ...]
    cells: tuple[Cell, ...]
    measurements: tuple[Measurement, ...]
    draw: str | None
    digits: int | None

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The files that it is rendered to."""
        return (".csv", ".md", ".tex") if self.kind == "table" else (".csv", ".svg", ".png")

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that must be trained for its measurements, each once."""
        return with_sources(m.run for m in self.measurements if m.run is not None)


@dataclass(frozen=True)
class Target:
    """What one may ask Snakemake for by name."""

    name: str
    caption: str
    files: tuple[Path, ...]
    artifacts: tuple[Artifact, ...]


class Paper(PaperAtScale):
    """One paper at one scale, its recipes, measures and artifacts linked."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.name = folder.name
        self._catalog = catalog
        self.info = load(PaperInfo, folder / "paper.yaml")
        super().__init__(folder, catalog.scale, catalog.datasets, catalog.root)

    @functools.cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts that exist at this scale."""
        specs = self.artifacts_file.artifacts
        made = (self._artifact(name, specs[name]) for name in self.artifact_names)
        return {one.name: one for one in made if one.measurements}

    def run(self, name: str) -> Run:
        """Return the run of a recipe at this scale, which others that come out equal share.

        Raises:
            VitrineError: no such recipe, or a resolved recipe is not valid.
        """
        self.require(name)
        return self._runs[name]

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def measurement(self, name: str, recipe: str | None) -> Measurement:
        """Resolve a measure at this scale, on a run or a recipe if it measures one.

        Raises:
            VitrineError: no such measure, or a recipe is missing or out of place.
        """
        specs = self.artifacts_file.measures
        where = str(self.artifacts_path)
        require_known(f"{where}: measure", name, specs)
        spec = self.measure(name)
        if (spec.on is None) != (recipe is None):
            rule = "needs a recipe; name one" if recipe is None else "takes no recipe; remove it"
            raise VitrineError(f"{where}: measure '{name}' {rule}")
        catalog = self._catalog
        on = None
        if recipe is not None:
            on = self._printed_run(recipe) if spec.on == "paper" else self.run(recipe)
        run, described = (on, None) if spec.on == "run" else (None, on)
        seeds = tuple(range(spec.seeds)) if spec.seeds else (run.seeds if run else (0,))
        if run and not set(seeds) <= set(run.seeds):
            raise VitrineError(
                f"{where}: measure '{name}' wants {len(seeds)} seeds and recipe '{run.name}' has "
                f"{len(run.seeds)} at scale '{catalog.scale.name}'; give both as many"
            )
        device = "cpu" if spec.device == "cpu" else catalog.scale.device
        datasets = tuple(self.stand_ins.get(name, name) for name in spec.datasets)
        identity = {
            "function": spec.function,
            "args": spec.args,
            "seeds": list(seeds),
            "device": device,
            "datasets": list(datasets),
        }
        folder = run.folder if run else catalog.runs_root / self.name
        subject = f"{name}-{described.folder.name}" if described else name
        return Measurement(
            paper=self.name,
            name=name,
            function=spec.function,
            args=spec.args,
            seeds=seeds,
            device=device,
            datasets=datasets,
            run=run,
            described=described,
            path=folder / "measurements" / f"{subject}-{short_hash(identity)}.json",
            as_printed=spec.args == specs[name].args and datasets == spec.datasets,
        )

    @functools.cached_property
    def _runs(self) -> dict[str, Run]:
        """The run of every recipe, the same for those that come out equal."""
        runs: dict[str, Run] = {}
        shared: dict[tuple[str, tuple[int, ...]], Run] = {}
        # Sources come first. Equal recipes have as many, so among them the file's order is kept.
        for name in sorted(self.recipes, key=lambda name: len(self.sources(name))):
            run = self._run(name, next((runs[one] for one in self.sources(name)), None))
            runs[name] = shared.setdefault((run.recipe.canonical_json(), run.seeds), run)
        return runs

    def _run(self, name: str, source: Run | None) -> Run:
        catalog, recipe = self._catalog, self.recipe(name)
        if source and not isinstance(recipe, SegmentationRecipe):  # which has no such field
            model = recipe.model.model_copy(update={"weights_from": source.folder.name})
            recipe = recipe.model_copy(update={"model": model})
        jobs = self.jobs(name)
        seeds = jobs.seeds
        if source and seeds > len(source.seeds):
            raise VitrineError(
                f"{self.recipes_path}: recipe '{name}' has {seeds} seeds at scale "
                f"'{catalog.scale.name}', and '{recipe.model.weights_from}', whose weights it "
                f"starts from, has {len(source.seeds)}; give it no more"
            )
        return Run(
            paper=self.name,
            name=name,
            recipe=recipe,
            info=find(recipe.data.dataset, catalog.datasets),
            seeds=tuple(range(seeds)),
            seeds_per_job=jobs.seeds_per_job,
            folder=catalog.runs_root / self.name / f"{name}-{recipe.hash}",
            source=source,
        )

    def _printed_run(self, name: str) -> Run:
        """A recipe of the paper as a run that is only ever described."""
        recipe = self.printed(name)
        return Run(
            paper=self.name,
            name=name,
            recipe=recipe,
            info=find(recipe.data.dataset, self._catalog.datasets),
            seeds=(0,),
            seeds_per_job=1,
            folder=self._catalog.runs_root / self.name / f"{name}-{recipe.hash}",
            source=None,
        )

    def _artifact(self, name: str, spec: ArtifactSpec) -> Artifact:
        where = f"{self.artifacts_path}, {name}"
        printed = read_reference(self.folder / "reference" / f"{name}.csv")
        cells = tuple(self._cells(spec, printed, where))
        stray = printed.keys() - {(cell.row, cell.column) for cell in cells}
        if stray:
            raise VitrineError(
                f"{self.folder / 'reference' / name}.csv: the cell {sorted(stray)[0]} is not in "
                f"artifacts.yaml; give both the same labels"
            )
        measured = [cell.measurement for cell in cells if cell.measurement is not None]
        same = ("kind", "title", "source", "row_header", "columns", "draw", "digits")
        return Artifact(
            paper=self.name,
            name=name,
            caption=" ".join(spec.caption.split()),
            note=" ".join([*spec.note.split(), *self._changes_of(measured)]),
            rows=tuple(row.full_label for row in spec.rows),
            cells=cells,
            measurements=tuple(dict.fromkeys(measured)),
            **{field: getattr(spec, field) for field in same},
        )

    def _changes_of(self, measurements: Iterable[Measurement]) -> list[str]:
        """What the scale changes of the recipes that are measured, where it is to be said."""
        if not self.lists_changes:
            return []
        found: dict[str, dict[str, None]] = {}  # the changes of each field, each once
        for name in dict.fromkeys(one.run.name for one in measurements if one.run):
            for field_name, change in self.changes(name).items():
                found.setdefault(field_name, {})[change] = None
        changes = [f"{name} {', '.join(values)}" for name, values in found.items()]
        return [f"Changed at this scale: {'; '.join(changes)}."] if changes else []

    def _measures_what_is_printed(self, cell: CellSpec) -> bool:
        of_paper = cell.measure and self.artifacts_file.measures[cell.measure].on == "paper"
        return bool(cell.recipe is None or of_paper or self.as_printed(cell.recipe))

    def _cells(
        self, spec: ArtifactSpec, printed: Mapping[tuple[str, str], Printed], where: str
    ) -> Iterator[Cell]:
        for row in spec.rows:
            for column in spec.columns:
                cell = spec.cell_at(row, column, where)
                missing = not cell.measure or (cell.recipe and self.without(cell.recipe))
                measurement = None if missing else self.measurement(cell.measure, cell.recipe)
                same = ("metric", "unit", "key", "digits", "exact")
                yield Cell(
                    row=row.full_label,
                    column=column.full_label,
                    measurement=measurement,
                    comparable=measurement is not None
                    and cell.comparable
                    and measurement.as_printed
                    and self._measures_what_is_printed(cell),
                    of_hardware=not cell.comparable,
                    printed=printed.get((row.full_label, column.full_label)),
                    **{field: getattr(cell, field) for field in same},
                )


class Catalog:
    """All papers at one scale; every path that the graph uses comes from here."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.scale: Scale = load_scale(root, settings.scale)
        self.runs_root = Path(settings.runs_root)
        self.data_root = Path(settings.data_root)
        self.results = Path(settings.results_root) / self.scale.name
        self.datasets = load_registry(root / "configs" / "datasets.yaml")
        folders = sorted(file.parent for file in (root / "configs" / "papers").glob("*/paper.yaml"))
        self.papers = {folder.name: Paper(folder, self) for folder in folders}
        self._refuse_ambiguous_names()

    def _refuse_ambiguous_names(self) -> None:
        """Refuse a name that is a table in one paper and a figure in another.

        Snakemake tells the rules `table` and `figure` apart by it.
        """
        kinds: dict[str, tuple[str, str]] = {}
        for paper in self.papers.values():
            for name, spec in paper.artifacts_file.artifacts.items():
                other, known = kinds.setdefault(name, (paper.name, spec.kind))
                if known != spec.kind:
                    raise VitrineError(
                        f"'{name}' is a {known} in '{other}' and a {spec.kind} in '{paper.name}'; "
                        "rename one"
                    )

    @property
    def artifacts(self) -> Iterator[Artifact]:
        """Every artifact of every paper at this scale."""
        for paper in self.papers.values():
            yield from paper.artifacts.values()

    def paper(self, name: str) -> Paper:
        """Return a paper by its folder's name."""
        require_known("paper", name, self.papers)
        return self.papers[name]

    def artifact(self, paper: str, name: str) -> Artifact:
        """Return one artifact.

        Raises:
            VitrineError: the paper has none of that name at this scale.
        """
        artifacts = self.paper(paper).artifacts
        require_known(f"scale '{self.scale.name}' of '{paper}': artifact", name, artifacts)
        return artifacts[name]

    def files(self, artifact: Artifact) -> tuple[Path, ...]:
        """Where an artifact is rendered to."""
        stem = self.results / artifact.paper / artifact.name
        return tuple(stem.with_name(stem.name + suffix) for suffix in artifact.suffixes)

    def place_of(self, target: Target) -> str:
        """Where to look for what a target has made: its page, or the folder of several."""
        if self.report in target.files:
            return f"{self.results}/, all on one page in {self.reports[1]}"
        shown = [str(path) for path in target.files if path.suffix in (".md", ".png")]
        return shown[0] if len(shown) == 1 else f"{os.path.commonpath(target.files)}/"

    @property
    def report(self) -> Path:
        """The page that links every artifact and says which claims hold."""
        return self.results / "report.md"

    @property
    def reports(self) -> tuple[Path, Path]:
        """The report in Markdown, and as a page of HTML."""
        return self.report, self.report.with_suffix(".html")

    @functools.cached_property
    def runs(self) -> dict[Path, Run]:
        """The runs behind all artifacts of this scale, by folder."""
        return {run.folder: run for artifact in self.artifacts for run in artifact.runs}

    def job(self, output: Path) -> TrainingJob | MeasurementJob:
        """The job that makes a receipt or a measurement.

        Raises:
            VitrineError: no recipe or artifact of this scale has it.
        """
        if output in self.measurements:
            return self.measurement_job(self.measurements[output])
        run = self.runs.get(output.parent)
        seeds = next((job for job in run.jobs if run.receipt(job) == output), None) if run else None
        if run is None or seeds is None:
            raise VitrineError(
                f"{output} belongs to no recipe and no artifact at scale '{self.scale.name}'; "
                "ask for a target (snakemake --list-target-rules)"
            )
        return self.training_job(run, seeds)

    @functools.cached_property
    def measurements(self) -> dict[Path, Measurement]:
        """The measurements behind all artifacts of this scale, by path."""
        return {m.path: m for artifact in self.artifacts for m in artifact.measurements}

    def resources(self, job: Run | Measurement) -> Resources:
        """What the training of a run, or a measurement, asks for.

        A training of no epochs only copies weights, and a measurement on the CPU needs no GPU.
        """
        if isinstance(job, Run):
            step: Step = "train"
            run: Run | None = job
            on_cpu = not job.recipe.steps(job.info.train_images)
        else:
            step = "evaluate" if job.run else "benchmark"
            run = job.on
            on_cpu = job.device == "cpu"
        resources = self.paper(job.paper).jobs(run.name if run else None).resources_of(step)
        update = {"nodes": 1, "gpus": 0, "threads": 1} if on_cpu else {}
        return resources.model_copy(update=update)

    def training_job(self, run: Run, seeds: tuple[int, ...]) -> TrainingJob:
        """The job that trains some seeds of a run.

        The code counts in its identity as it was when the run was trained, for trainings are not
        repeated because code has changed, unless `retrain` asks for it.
        """
        published = run.recipe.model.published
        weights = self.weights_of(published) if published else None
        jobs = self.paper(run.paper).jobs(run.name)
        start = trained_run(run.source) if run.source else None
        inputs = [self.receipt_of(run.recipe.data.dataset), *([weights] if weights else [])]
        if start:
            inputs += [start.receipts[seed] for seed in seeds]
        changed = any(one.trained_by(seeds) - {one.code} for one in run.lineage)
        retrain = self.settings.retrain == "changed" and changed
        # Of one that other code has resumed, the last planned it.
        last = {one.rpartition("+")[2] for one in run.trained_by(seeds)}
        code = "+".join(sorted(last)) if last and not retrain else run.code
        return TrainingJob(
            scale=self.scale.name,
            paper=run.paper,
            name=run.name,
            output=run.receipt(seeds),
            inputs=tuple(dict.fromkeys(inputs)),
            resources=self.resources(run),
            identity=identity_of(recipe=run.recipe.canonical_json(), seeds=seeds, code=code),
            # A training of no epochs only copies weights, in a job that is given no GPU.
            device=self.scale.device if run.recipe.steps(run.info.train_images) else "cpu",
            data_root=self.data_root,
            workers=self.scale.workers,
            recipe=run.recipe,
            dataset=run.info,
            seeds=seeds,
            checkpoint_seconds=60 * self.scale.checkpoint_minutes,
            published=weights,
            start=start,
            retrain=retrain,
            validate_every=jobs.validate_every,
            tensorboard=jobs.tensorboard,
        )

    def measurement_job(self, measurement: Measurement) -> MeasurementJob:
        """The job that takes a measurement."""
        run, on = measurement.run, measurement.on
        read = list(measurement.datasets) + ([run.recipe.data.dataset] if run else [])
        receipts = run.receipts_of(measurement.seeds) if run else ()
        inputs = (*receipts, *map(self.receipt_of, sorted(set(read))))
        named = tuple(find(name, self.datasets) for name in measurement.datasets)
        reads = (*((on.info,) if on else ()), *named)
        recipe = on.recipe if on else None
        code = measuring_digest(measurement.function, measurement.args, recipe, reads)
        fields: dict[str, Any] = {
            "function": measurement.function,
            "args": measurement.args,
            "seeds": measurement.seeds,
            "device": measurement.device,
        }
        return MeasurementJob(
            scale=self.scale.name,
            paper=measurement.paper,
            name=measurement.name,
            output=measurement.path,
            inputs=inputs,
            resources=self.resources(measurement),
            identity=identity_of(
                **fields,
                datasets=[
                    one.name if one.version == 1 else f"{one.name}@{one.version}" for one in named
                ],
                recipe=recipe.hash if recipe else None,
                code=code,
            ),
            data_root=self.data_root,
            workers=self.scale.workers,
            recipe=recipe,
            recipe_name=on.name if on else None,
            dataset=on.info if on else None,
            datasets=named,
            run=trained_run(run) if run else None,
            **fields,
        )

    def makes(self, file: Path) -> bool:
        """Tell whether some rule makes a file at this scale."""
        rendered = (path for artifact in self.artifacts for path in self.files(artifact))
        receipts = (receipt for run in self.runs.values() for receipt in run.receipts)
        fetched = map(self.receipt_of, self.datasets)
        published = filter(None, (run.recipe.model.published for run in self.runs.values()))
        weights = map(self.weights_of, published)
        known = (*self.measurements, *self.reports, *rendered, *receipts, *fetched, *weights)
        return file in known

    def receipt_of(self, dataset: str) -> Path:
        """The file that says that a dataset is there and sound."""
        return self.data_root / ".verified" / f"{dataset}.json"

    def weights_of(self, published: str) -> Path:
        """The file that holds published weights: those of a timm model, or at a URL."""
        name = Path(published.rpartition("/")[2]).stem if "://" in published else published
        return self.data_root / "weights" / f"{name}.safetensors"

    @functools.cached_property
    def targets(self) -> dict[str, Target]:
        """Everything one may ask for by name; short names too for the lead paper's artifacts."""
        targets: dict[str, Target] = {}

        def add(name: str, caption: str, artifacts: list[Artifact], *more: Path) -> None:
            files = tuple(file for artifact in artifacts for file in self.files(artifact))
            targets[name] = Target(name, caption, (*files, *more), tuple(artifacts))

        everything = list(self.artifacts)
        for artifact in everything:
            summary = f"{artifact.source}: {artifact.caption}"
            add(f"{artifact.paper}_{artifact.name}", summary, [artifact])
            if artifact.paper == self.settings.lead_paper:
                add(artifact.name, summary, [artifact])
        for name, paper in self.papers.items():
            add(name, f"every table and figure of: {paper.info.title}", [*paper.artifacts.values()])
        for kind in ("table", "figure"):
            chosen = [artifact for artifact in everything if artifact.kind == kind]
            add(f"{kind}s", f"every {kind} of every paper", chosen)
        add(
            "all",
            "every table and figure of every paper, and the report",
            everything,
            *self.reports,
        )
        return targets

    def target(self, name: str) -> Target:
        """Return a target by name.

        Raises:
            VitrineError: no target of this scale is called so.
        """
        require_known("target", name, self.targets)
        return self.targets[name]


def load_catalog(root: Path = Path(), **overrides: Any) -> Catalog:
    """Read the catalogue from a checkout; `overrides` are laid over ``configs/default.yaml``.

    Raises:
        VitrineError: `root` is no checkout of Vitrine, or a file in it is wrong.
    """
    if not (root / "configs" / "default.yaml").is_file():
        raise VitrineError(
            f"{root.absolute()} has no configs/default.yaml; run this from the project's root"
        )
    return Catalog(root, load_settings(root, overrides))


def rerun_trigger(artifact: Artifact) -> str:
    """A digest that changes with anything written in an artifact: Snakemake renders it again then.

    The measurements' content is an input of its own, but which cell shows which is not.
    """
    cells = [
        {
            **{name: getattr(cell, name) for name in ("row", "column", "metric", "unit", "key")},
            **{name: getattr(cell, name) for name in ("digits", "exact", "comparable")},
            "measurement": str(cell.measurement.path) if cell.measurement else None,
        }
        for cell in artifact.cells
    ]
    words = ("title", "caption", "source", "note", "row_header", "digits", "draw")
    return short_hash({"cells": cells, **{word: getattr(artifact, word) for word in words}})


def is_target_name(text: str) -> bool:
    """Tell a target's name from a file's path on the command line."""
    return re.fullmatch(r"[\w-]+", text) is not None
