"""The catalogue: the papers' folders at one scale, linked into runs, measurements and artifacts.

It answers every question that the graph and the commands ask (which files make this target, which
run stands behind this cell, what does this run need) and imports no torch, so that building the
graph stays fast. Nothing here knows a paper, a dataset or a scale by name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from vitrine.data.registry import DatasetInfo, find, load_registry
from vitrine.errors import VitrineError, did_you_mean
from vitrine.paper import (
    ArtifactsFile,
    ArtifactSpec,
    ArtifactsScale,
    Delta,
    MeasureScale,
    PaperInfo,
    PaperScale,
    Printed,
    RecipesFile,
    read_reference,
)
from vitrine.recipe import Recipe, short_hash
from vitrine.schema import load, merge, parse
from vitrine.settings import (
    Resources,
    Scale,
    Settings,
    Step,
    known_scales,
    load_scale,
    load_settings,
)


@dataclass(frozen=True)
class Run:
    """A recipe at this scale with its seeds, and the folder that holds them."""

    paper: str
    name: str
    recipe: Recipe
    info: DatasetInfo
    seeds: tuple[int, ...]
    seeds_per_job: int
    folder: Path
    as_printed: bool = field(metadata={"doc": "the recipe is the paper's own, no stand-in"})

    def seed_folder(self, seed: int) -> Path:
        """Where the run of one seed keeps its weights, log and provenance."""
        return self.folder / f"seed{seed}"

    @property
    def jobs(self) -> tuple[tuple[int, ...], ...]:
        """The seeds that each training job does in turn."""
        step = self.seeds_per_job
        return tuple(self.seeds[i : i + step] for i in range(0, len(self.seeds), step))

    def receipt(self, seeds: tuple[int, ...]) -> Path:
        """The file that says that these seeds are trained, with the digests of their weights."""
        return self.folder / f"trained-{'-'.join(map(str, seeds))}.json"

    @property
    def receipts(self) -> tuple[Path, ...]:
        """One receipt for each training job."""
        return tuple(self.receipt(seeds) for seeds in self.jobs)


@dataclass(frozen=True)
class Measurement:
    """One JSON of numbers: a function with its arguments, on a run or on nothing."""

    paper: str
    name: str
    function: str
    args: Delta
    seeds: tuple[int, ...]
    device: str
    datasets: tuple[str, ...]
    run: Run | None
    path: Path
    as_printed: bool

    def __hash__(self) -> int:
        """Hash by path: two measurements of one path are the same."""
        return hash(self.path)


@dataclass(frozen=True)
class Column:
    """A column's label, and the group that it stands under."""

    label: str
    group: str | None = None

    @property
    def full_label(self) -> str:
        """The label under its group, as reference files write it."""
        return f"{self.group} / {self.label}" if self.group else self.label


@dataclass(frozen=True)
class Cell:
    """One number of an artifact: where it stands, what measures it, what the paper printed.

    `exact` marks a deterministic fact; `digits` are the decimals that the paper prints;
    `comparable` says that nothing stands in for the paper's recipe and arguments.
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
    columns: tuple[Column, ...]
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
        """The runs behind its measurements, each once."""
        runs = {m.run.folder: m.run for m in self.measurements if m.run is not None}
        return tuple(runs.values())


@dataclass(frozen=True)
class Target:
    """What one may ask Snakemake for by name."""

    name: str
    caption: str
    files: tuple[Path, ...]
    artifacts: tuple[Artifact, ...]


class Paper:
    """One paper's folder, read once and resolved at one scale."""

    def __init__(self, name: str, folder: Path, catalog: Catalog) -> None:
        self.name = name
        self.folder = folder
        self._catalog = catalog
        self.info = load(PaperInfo, folder / "paper.yaml")
        self._recipes_path = folder / "recipes.yaml"
        self._artifacts_path = folder / "artifacts.yaml"
        self._recipes_file = load(RecipesFile, self._recipes_path)
        self._artifacts_file = load(ArtifactsFile, self._artifacts_path)
        scale = catalog.scale.name
        self._scale = self._recipes_file.scales.get(scale, PaperScale())
        self._artifacts_scale = self._artifacts_file.scales.get(scale, ArtifactsScale())
        self._refuse_unknown_names()

    @functools.cached_property
    def recipes(self) -> dict[str, Delta]:
        """Every recipe of the paper, as written, before any scale."""
        return self._recipes_file.expand(str(self._recipes_path))

    @functools.cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts that exist at this scale."""
        specs = self._artifacts_file.artifacts
        names = self._artifacts_scale.artifacts
        return {
            name: self._artifact(name, spec)
            for name, spec in specs.items()
            if names is None or name in names
        }

    @property
    def kinds(self) -> dict[str, str]:
        """Whether each artifact, at any scale, is a table or a figure."""
        return {name: spec.kind for name, spec in self._artifacts_file.artifacts.items()}

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def run(self, name: str) -> Run:
        """Resolve a recipe at this scale.

        Raises:
            VitrineError: no such recipe, or the resolved recipe is not valid.
        """
        if name not in self.recipes:
            raise VitrineError(
                f"{self._recipes_path}: no recipe is called '{name}'"
                f"{did_you_mean(name, self.recipes)}"
            )
        catalog = self._catalog
        printed = self._recipe(name, self.recipes[name])
        recipe = self._recipe(name, self._at_scale(name))
        scale = self._scale
        return Run(
            paper=self.name,
            name=name,
            recipe=recipe,
            info=find(recipe.data.dataset, catalog.datasets),
            seeds=tuple(range(scale.seeds or catalog.scale.seeds)),
            seeds_per_job=scale.seeds_per_job or catalog.scale.seeds_per_job,
            folder=catalog.runs_root / self.name / f"{name}-{recipe.hash}",
            as_printed=recipe == printed,
        )

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def measurement(self, name: str, recipe: str | None) -> Measurement:
        """Resolve a measure at this scale, on a run if it measures one.

        Raises:
            VitrineError: no such measure, or a recipe is missing or out of place.
        """
        specs = self._artifacts_file.measures
        where = str(self._artifacts_path)
        if name not in specs:
            raise VitrineError(f"{where}: measure '{name}' is unknown{did_you_mean(name, specs)}")
        spec = specs[name]
        if spec.on_run != (recipe is not None):
            rule = "needs a recipe; name one" if recipe is None else "takes no recipe; remove it"
            raise VitrineError(f"{where}: measure '{name}' {rule}")
        catalog = self._catalog
        overlay = self._artifacts_scale.measures.get(name, MeasureScale())
        args = merge(spec.args, overlay.args)
        run = self.run(recipe) if recipe is not None else None
        count = overlay.seeds or spec.seeds
        seeds = tuple(range(count)) if count else (run.seeds if run else (0,))
        if run and not set(seeds) <= set(run.seeds):
            raise VitrineError(
                f"{where}: measure '{name}' wants {len(seeds)} seeds and recipe '{run.name}' has "
                f"{len(run.seeds)} at scale '{catalog.scale.name}'; give both as many"
            )
        device = "cpu" if spec.device == "cpu" else catalog.scale.device
        datasets = tuple(catalog.scale.datasets.get(name, name) for name in spec.datasets)
        identity = {
            "function": spec.function,
            "args": args,
            "seeds": list(seeds),
            "device": device,
            "datasets": list(datasets),
        }
        folder = run.folder if run else catalog.runs_root / self.name
        stem = f"{name}-{short_hash(identity)}.json"
        return Measurement(
            paper=self.name,
            name=name,
            function=spec.function,
            args=args,
            seeds=seeds,
            device=device,
            datasets=datasets,
            run=run,
            path=folder / "measurements" / stem,
            as_printed=args == spec.args
            and datasets == spec.datasets
            and (run is None or run.as_printed),
        )

    def resources(self, step: Step) -> Resources:
        """What a job of this step asks for, by the paper's own word or the scale's."""
        own = self._scale.resources.get(step)
        return own or self._catalog.scale.resources_of(step)

    def _at_scale(self, name: str) -> Delta:
        """Lay the scale's values over a recipe: deltas first, then stand-ins by name."""
        scale, own = self._catalog.scale, self._scale
        by_name = [delta for pattern, delta in own.recipes.items() if fnmatch(name, pattern)]
        raw = merge(self.recipes[name], scale.recipe, own.recipe, *by_name)
        model, data = raw.get("model", {}), raw.get("data", {})
        dataset = data.get("dataset")
        return merge(
            raw,
            {"model": own.models.get(model.get("name"), {})},
            {"data": {"dataset": scale.datasets.get(dataset, dataset)}},
        )

    def _recipe(self, name: str, raw: Delta) -> Recipe:
        dataset = raw.get("data", {}).get("dataset")
        if dataset is not None:
            version = find(dataset, self._catalog.datasets).version
            raw = merge(raw, {"data": {"version": version}})
        where = f"{self._recipes_path}, recipe '{name}' at scale '{self._catalog.scale.name}'"
        return parse(Recipe, raw, where)

    def _artifact(self, name: str, spec: ArtifactSpec) -> Artifact:
        where = f"{self._artifacts_path}, {name}"
        printed = read_reference(self.folder / "reference" / f"{name}.csv")
        cells = tuple(self._cells(spec, printed, where))
        stray = printed.keys() - {(cell.row, cell.column) for cell in cells}
        if stray:
            raise VitrineError(
                f"{self.folder / 'reference' / name}.csv: the cell {sorted(stray)[0]} is not in "
                f"artifacts.yaml; give both the same labels"
            )
        measured = [cell.measurement for cell in cells if cell.measurement is not None]
        return Artifact(
            paper=self.name,
            name=name,
            kind=spec.kind,
            title=spec.title,
            caption=" ".join(spec.caption.split()),
            source=spec.source,
            note=" ".join(spec.note.split()),
            row_header=spec.row_header,
            rows=tuple(row.full_label for row in spec.rows),
            columns=tuple(Column(column.label, column.group) for column in spec.columns),
            cells=cells,
            measurements=tuple(dict.fromkeys(measured)),
            draw=spec.draw,
            digits=spec.digits,
        )

    def _cells(
        self, spec: ArtifactSpec, printed: Mapping[tuple[str, str], Printed], where: str
    ) -> Iterator[Cell]:
        for row in spec.rows:
            for column in spec.columns:
                cell = spec.cell_at(row, column, where)
                measurement = self.measurement(cell.measure, cell.recipe) if cell.measure else None
                labels = (row.full_label, column.full_label)
                yield Cell(
                    row=labels[0],
                    column=labels[1],
                    metric=cell.metric,
                    unit=cell.unit,
                    measurement=measurement,
                    key=cell.key,
                    digits=cell.digits,
                    exact=cell.exact,
                    comparable=measurement is not None and measurement.as_printed,
                    printed=printed.get(labels),
                )

    def _refuse_unknown_names(self) -> None:
        """Refuse what a scale's section names and nothing has: it would silently do nothing."""
        recipes, artifacts = str(self._recipes_path), str(self._artifacts_path)
        scales = known_scales(self._catalog.root)
        measures = self._artifacts_file.measures
        models = {recipe.get("model", {}).get("name", "") for recipe in self.recipes.values()}
        _refuse_unknown(recipes, "scale", self._recipes_file.scales, scales)
        _refuse_unknown(artifacts, "scale", self._artifacts_file.scales, scales)
        _refuse_unknown(recipes, "model", self._scale.models, models)
        _refuse_unknown(artifacts, "measure", self._artifacts_scale.measures, measures)
        names = self._artifacts_scale.artifacts or ()
        _refuse_unknown(artifacts, "artifact", names, self._artifacts_file.artifacts)
        for pattern in self._scale.recipes:
            if not any(fnmatch(name, pattern) for name in self.recipes):
                _refuse_unknown(recipes, "recipe", [pattern], self.recipes)
        for measure in measures.values():
            for dataset in measure.datasets:
                find(dataset, self._catalog.datasets)


def _refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise VitrineError(f"{where}: {what} '{name}' is unknown{did_you_mean(name, known)}")


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
        for name in [*self.scale.datasets, *self.scale.datasets.values()]:
            find(name, self.datasets)
        folders = sorted(file.parent for file in (root / "configs" / "papers").glob("*/paper.yaml"))
        self.papers = {folder.name: Paper(folder.name, folder, self) for folder in folders}
        self._refuse_ambiguous_names()

    def _refuse_ambiguous_names(self) -> None:
        """Refuse a name that is a table in one paper and a figure in another.

        Snakemake tells the rules `table` and `figure` apart by it.
        """
        kinds: dict[str, tuple[str, str]] = {}
        for paper in self.papers.values():
            for name, kind in paper.kinds.items():
                other, known = kinds.setdefault(name, (paper.name, kind))
                if known != kind:
                    raise VitrineError(
                        f"'{name}' is a {known} in '{other}' and a {kind} in '{paper.name}'; "
                        "rename one"
                    )

    @property
    def artifacts(self) -> Iterator[Artifact]:
        """Every artifact of every paper at this scale."""
        for paper in self.papers.values():
            yield from paper.artifacts.values()

    def paper(self, name: str) -> Paper:
        """Return a paper by its folder's name."""
        if name not in self.papers:
            raise VitrineError(f"paper '{name}' is unknown{did_you_mean(name, self.papers)}")
        return self.papers[name]

    def artifact(self, paper: str, name: str) -> Artifact:
        """Return one artifact.

        Raises:
            VitrineError: the paper has none of that name at this scale.
        """
        artifacts = self.paper(paper).artifacts
        if name not in artifacts:
            raise VitrineError(
                f"'{paper}' has no '{name}' at scale '{self.scale.name}'"
                f"{did_you_mean(name, artifacts)}"
            )
        return artifacts[name]

    def files(self, artifact: Artifact) -> tuple[Path, ...]:
        """Where an artifact is rendered to."""
        stem = self.results / artifact.paper / artifact.name
        return tuple(stem.with_name(stem.name + suffix) for suffix in artifact.suffixes)

    @property
    def report(self) -> Path:
        """The page that links every artifact and says which claims hold."""
        return self.results / "report.md"

    @functools.cached_property
    def runs(self) -> dict[Path, Run]:
        """The runs behind all artifacts of this scale, by folder."""
        return {run.folder: run for artifact in self.artifacts for run in artifact.runs}

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
            on_cpu = not job.recipe.schedule.epochs
        else:
            step = "evaluate" if job.run else "benchmark"
            on_cpu = job.device == "cpu"
        resources = self.paper(job.paper).resources(step)
        return resources.model_copy(update={"gpus": 0, "threads": 1}) if on_cpu else resources

    def receipt_of(self, dataset: str) -> Path:
        """The file that says that a dataset is there and sound."""
        return self.data_root / ".verified" / f"{dataset}.json"

    def weights_of(self, model: str) -> Path:
        """The file that holds a model's published weights."""
        return self.data_root / "weights" / f"{model}.safetensors"

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
        add("all", "every table and figure of every paper, and the report", everything, self.report)
        return targets

    def target(self, name: str) -> Target:
        """Return a target by name.

        Raises:
            VitrineError: no target of this scale is called so.
        """
        if name not in self.targets:
            raise VitrineError(
                f"target '{name}' is unknown at scale '{self.scale.name}'"
                f"{did_you_mean(name, self.targets)} (snakemake --list-target-rules lists all)"
            )
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
