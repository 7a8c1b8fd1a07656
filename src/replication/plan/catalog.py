"""The catalogue: the papers' folders at one scale, linked into runs, measurements and artifacts.

It answers every question that the graph and the commands ask (which files make this target, which
run stands behind this cell, what does this run need). It imports no torch, so that building the
graph stays fast, and knows no paper, dataset or scale by name.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from replication.config.datasets import find, load_registry
from replication.config.paper import (
    ArtifactSpec,
    CellSpec,
    PaperInfo,
    Printed,
    ShownColumn,
    read_reference,
)
from replication.config.recipe import short_hash
from replication.config.recipe_types import AnyRecipe
from replication.config.schema import load
from replication.config.settings import (
    Resources,
    Settings,
    known_scales,
    load_scale,
    load_settings,
    snakemake_command,
)
from replication.config.tuning import Trial, TuningResult
from replication.config.weights import REGISTRY, find_weights, load_weights_registry
from replication.plan import fast_dev_run
from replication.plan.code_digest import (
    Code,
    measurement_code,
    preparation_code,
    rendering_code,
    report_code,
    require_function,
    training_code,
)
from replication.plan.graph import (
    Artifact,
    Cell,
    Measurement,
    Run,
    Target,
    trained_run,
    with_sources,
)
from replication.plan.module_digest import file_of
from replication.plan.preregistration import digests_of, registered
from replication.plan.resolve import PaperAtScale
from replication.plan.search_table import SEARCH, Score, search_table, trial_scores
from replication.records.nodes import (
    AnyNode,
    MeasurementNode,
    RenderingNode,
    ReportedPaper,
    ReportNode,
    ShownCell,
    TrainingNode,
    report_files,
    target_of,
)
from vitrail.errors import VitrailError, did_you_mean, require_known
from vitrail.provenance import DIRTY, changed_files, checkout, head

# What runs on the CPU at a scale of GPUs takes at most so much memory, and what runs on a GPU at a
# scale of CPUs at least so much. A training of no steps copies weights, in so many minutes.
SMALL_MEM_MB, COPYING_MINUTES = 16000, 60


class Paper(PaperAtScale):
    """One paper at one scale, its recipes, measures and artifacts linked."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.name = folder.name
        self._runs_root = catalog.runs_root
        self.info = load(PaperInfo, folder / "paper.yaml")
        rehearsed = catalog.settings.fast_dev_run
        super().__init__(folder, catalog.scale, catalog.datasets, catalog.root, rehearsed)

    @functools.cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts that exist at this scale."""
        specs = self.artifacts_file.artifacts
        made = (self._artifact(name, specs[name]) for name in self.artifact_names)
        return {artifact.name: artifact for artifact in made if artifact.measurements}

    @functools.cached_property
    def trials(self) -> dict[Trial, Score]:
        """The trials of this scale's searches, and where their scores are."""
        return trial_scores(self, self._runs_root)

    @functools.cached_property
    def search(self) -> Artifact | None:
        """The table of this scale's searches, which `all` leaves out; None without searches."""
        return search_table(self, self.trials)

    @functools.cached_property
    def stands_for(self) -> dict[str, list[str]]:
        """Each stand-in of this scale, with the names of the paper's datasets that it replaces."""
        measures = self.artifacts_file.measures.values()
        pairs = [
            (self.recipe(name).data.dataset, self.printed(name).data.dataset)
            for name in self.recipes
            if not self.without(name)
        ] + [
            (here, dataset)
            for measure in measures
            for dataset in measure.datasets
            if (here := self.stand_ins.get(dataset, dataset)) is not None
        ]
        found: dict[str, list[str]] = {}
        for here, printed in dict.fromkeys(pairs):
            if here != printed:
                found.setdefault(here, []).append(printed)
        return found

    @functools.cached_property
    def names_replaced(self) -> dict[str, str]:
        """Each stand-in of this scale, with what the paper calls the datasets that it replaces."""
        return {
            here: " and ".join(dict.fromkeys(self.datasets[name].called for name in replaced))
            for here, replaced in self.stands_for.items()
        }

    @functools.cached_property
    def tuning_results(self) -> dict[str, TuningResult] | None:
        """What searches found of the recipes, by their hashes; None without searches."""
        if not self.searches.groups:
            return None
        return {
            run.recipe.hash: result
            for name, run in self._runs.items()
            if (result := self.tuning_result(name))
        }

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """What decides each empirical claim at this scale."""
        return digests_of(self.claims, self.artifacts)

    @property
    def registered(self) -> dict[str, str] | None:
        """When the claims were registered that are as they were then; None if none was."""
        return registered(self.folder, self.scale.name, self.digests)

    def run(self, name: str) -> Run:
        """The run of a recipe; raises VitrailError if it is unknown, or a recipe is not valid."""
        self.require(name)
        return self._runs[name]

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def measurement(self, name: str, recipe: str | None) -> Measurement:
        """Resolve a measure at this scale, on a run or a recipe if it measures one.

        Raises VitrailError where the measure is unknown, or a recipe is missing or out of place.
        """
        where = str(self.artifacts_path)
        require_known(f"{where}: measure", name, self.artifacts_file.measures)
        printed, spec = self.artifacts_file.measures[name], self.measure(name)
        if (spec.on is None) != (recipe is None):
            rule = "needs a recipe; name one" if recipe is None else "takes no recipe; remove it"
            raise VitrailError(f"{where}: measure '{name}' {rule}")
        on = None
        if recipe is not None:
            described_only = spec.on == "paper"
            on = self._as_run(recipe, self.printed(recipe)) if described_only else self.run(recipe)
        run, described = (on, None) if spec.on == "run" else (None, on)
        first = self.scale.first_seed if run else 0
        several = tuple(range(first, first + (spec.seeds or 1)))
        seeds = run.seeds if run and not spec.seeds else several
        if run and not set(seeds) <= set(run.seeds):
            raise VitrailError(
                f"{where}: measure '{name}' wants {len(seeds)} seeds and recipe '{run.name}' has "
                f"{len(run.seeds)} at scale '{self.scale.name}'; give both as many"
            )
        decided: dict[str, Any] = {
            "args": spec.args,
            "seeds": seeds,
            "device": "cpu" if spec.device == "cpu" else self.scale.device,
            "datasets": tuple(self.stand_ins.get(dataset, dataset) for dataset in spec.datasets),
        }
        folder = run.folder if run else self._runs_root / self.name
        subject = f"{name}-{described.folder.name}" if described else name
        return Measurement(
            paper=self.name,
            name=name,
            function=spec.function,
            run=run,
            described=described,
            path=folder / "measurements" / f"{subject}-{short_hash(decided)}.json",
            as_printed=(spec.args, decided["datasets"]) == (printed.args, printed.datasets),
            **decided,
        )

    @functools.cached_property
    def _runs(self) -> dict[str, Run]:
        """The run of every recipe, the same for those that come out equal."""
        runs: dict[str, Run] = {}
        shared: dict[tuple[str, tuple[int, ...]], Run] = {}
        # Sources come first. Equal recipes have as many, so among them the file's order is kept.
        for name in sorted(self.recipes, key=lambda name: len(self.sources(name))):
            run = self._run(
                name, next((runs[source_name] for source_name in self.sources(name)), None)
            )
            runs[name] = shared.setdefault((run.recipe.canonical_json(), run.seeds), run)
        return runs

    def _run(self, name: str, source: Run | None) -> Run:
        recipe, wanted = self.recipe(name), self.run_settings(name)
        if source and wanted.seeds > len(source.seeds):
            raise VitrailError(
                f"{self.recipes_path}: recipe '{name}' has {wanted.seeds} seeds at scale "
                f"'{self.scale.name}', and '{source.folder.name}', whose weights it "
                f"starts from, has {len(source.seeds)}; give it no more"
            )
        if source:
            model = recipe.model.model_copy(update={"weights_from": source.folder.name})
            recipe = recipe.model_copy(update={"model": model})
        return self._as_run(name, recipe, wanted.seeds, wanted.seeds_per_training, source)

    def _as_run(
        self,
        name: str,
        recipe: AnyRecipe,
        seeds: int = 1,
        seeds_per_training: int = 1,
        source: Run | None = None,
    ) -> Run:
        return Run(
            paper=self.name,
            name=name,
            recipe=recipe,
            info=find(recipe.data.dataset, self.datasets).of_part(recipe.data.part),
            seeds=tuple(range(self.scale.first_seed, self.scale.first_seed + seeds)),
            seeds_per_training=seeds_per_training,
            folder=self._runs_root / self.name / f"{name}-{recipe.hash}",
            source=source,
        )

    def _artifact(self, name: str, spec: ArtifactSpec) -> Artifact:
        where, reference = f"{self.artifacts_path}, {name}", self.folder / "reference"
        printed = read_reference(reference / f"{name}.csv")
        specs = {
            (row.full_label, column.full_label): spec.cell_at(row, column, where)
            for row in spec.rows
            for column in spec.columns
        }
        made = {
            place: self._cell(cell, *place, printed.get(place)) for place, cell in specs.items()
        }
        shared = _one_training((specs[place].recipe, cell) for place, cell in made.items())
        variants = spec.variants
        cells = tuple(
            dataclasses.replace(cell, one_training=place in shared, variant_of=variants.get(place))
            for place, cell in made.items()
        )
        if stray := printed.keys() - {(cell.row, cell.column) for cell in cells}:
            raise VitrailError(
                f"{reference / name}.csv: the cell {sorted(stray)[0]} is not in artifacts.yaml; "
                "give both the same labels"
            )
        measured = [cell.measurement for cell in cells if cell.measurement is not None]
        same = ("kind", "title", "source", "row_header", "columns", "draw", "digits", "collection")
        return Artifact(
            paper=self.name,
            name=name,
            caption=" ".join(spec.caption.split()),
            note=" ".join(
                [
                    *([fast_dev_run.NOTE] if self.rehearsed else []),
                    *spec.note.split(),
                    *self._changes_of(measured),
                    *self._not_measured(name, specs.values()),
                ]
            ),
            rows=tuple(row.full_label for row in spec.rows),
            cells=cells,
            measurements=tuple(dict.fromkeys(measured)),
            stand_ins=self._stand_ins_in(measured),
            **{field: getattr(spec, field) for field in same},
        )

    def _stand_ins_in(self, measurements: Iterable[Measurement]) -> dict[str, str]:
        """The stand-ins that measurements read, with what they replace."""
        read = {
            name
            for measurement in measurements
            for name in (
                *measurement.datasets,
                *([measurement.on.info.name] if measurement.on else []),
            )
        }
        return {here: names for here, names in self.names_replaced.items() if here in read}

    def _changes_of(self, measurements: Iterable[Measurement]) -> list[str]:
        """What the scale changes of the recipes that are measured, where it is to be said."""
        if not self.lists_changes:
            return []
        found: dict[str, dict[str, None]] = {}  # the changes of each field, each once
        for name in dict.fromkeys(
            measurement.run.name for measurement in measurements if measurement.run
        ):
            for field, change in self.changes(name).items():
                found.setdefault(field, {})[change] = None
        changes = [f"{name} {', '.join(values)}" for name, values in found.items()]
        return [f"Changed at this scale: {'; '.join(changes)}."] if changes else []

    def _not_measured(self, artifact: str, cells: Iterable[CellSpec]) -> list[str]:
        """The datasets of cells that this scale lacks, and where the artifact is made of them."""
        lacking = dict.fromkeys(
            dataset for cell in cells for dataset in self.lacking(cell.measure, cell.recipe)
        )
        elsewhere: dict[str, list[str]] = {}
        for dataset in lacking:
            scales = " and ".join(self.scales_with(dataset, artifact))
            elsewhere.setdefault(scales, []).append(self.datasets[dataset].called)
        return [
            f"Not measured at scale {self.scale.name}, which does not have the images: "
            f"{', '.join(dict.fromkeys(names))}"
            + (f"; they are at scale {scales}." if scales else ".")
            for scales, names in elsewhere.items()
        ]

    def _cell(self, spec: CellSpec, row: str, column: str, printed: Printed | None) -> Cell:
        missing = (
            not spec.measure
            or (spec.recipe and self.without(spec.recipe))
            or self.lacking(spec.measure, spec.recipe)
        )
        measurement = None if missing else self.measurement(spec.measure, spec.recipe)
        comparable = False
        if measurement and spec.comparable and not spec.hardware and measurement.as_printed:
            of_paper = self.artifacts_file.measures[measurement.name].on == "paper"
            comparable = spec.recipe is None or of_paper or self.as_printed(spec.recipe)
        same = ("metric", "unit", "key", "digits", "exact")
        return Cell(
            row=row,
            column=column,
            measurement=measurement,
            comparable=comparable,
            of_hardware=spec.hardware,
            printed=printed,
            **{field: getattr(spec, field) for field in same},
        )


class Catalog:
    """All papers at one scale; every path that the graph uses comes from here."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root, self.settings = root, settings
        scale = load_scale(root, settings.scale)
        if settings.fast_dev_run:
            scale = fast_dev_run.scale_of(scale)
        given = {name: getattr(settings, name) for name in ("extensions", "device")}
        given = {name: value for name, value in given.items() if value is not None}
        self.scale = scale.model_copy(update=given)
        self.runs_root = settings.runs
        self.data_root = Path(settings.data_root)
        self.results = settings.results
        # Links every artifact, says which claims hold.
        self.report = self.results / "report.json"
        self.reports = report_files(self.report)
        self.datasets = load_registry(root / "configs" / "datasets.yaml")
        folders = sorted(file.parent for file in (root / "configs" / "papers").glob("*/paper.yaml"))
        require_known("lead_paper", settings.lead_paper, [folder.name for folder in folders])
        # The lead paper first, and last what prints nothing.
        folders.sort(
            key=lambda folder: (
                folder.name != settings.lead_paper,
                not (folder / "reference").is_dir(),
            )
        )
        self.papers = {folder.name: Paper(folder, self) for folder in folders}
        self._refuse_ambiguous_names()

    def _refuse_ambiguous_names(self) -> None:
        """Refuse a table of one paper called as another's figure: Snakemake's rules go by names."""
        kinds: dict[str, tuple[str, str]] = {}
        for paper in self.papers.values():
            for name, spec in paper.artifacts_file.artifacts.items():
                if name == SEARCH:
                    raise VitrailError(
                        f"{paper.artifacts_path}: '{SEARCH}' is the table of learning rates; "
                        "rename the artifact"
                    )
                other, known = kinds.setdefault(name, (paper.name, spec.kind))
                if known != spec.kind:
                    raise VitrailError(
                        f"'{name}' is a {known} in '{other}' and a {spec.kind} in '{paper.name}'; "
                        "rename one"
                    )

    def extended(self) -> Catalog:
        """Return the catalogue with the rows that the papers lack, whatever the scale says."""
        settings = self.settings.model_copy(update={"extensions": True})
        return self if self.scale.extensions else Catalog(self.root, settings)

    @property
    def artifacts(self) -> Iterator[Artifact]:
        """Every artifact of every paper at this scale, but for the tables of searches."""
        for paper in self.papers.values():
            yield from paper.artifacts.values()

    @property
    def everything(self) -> Iterator[Artifact]:
        """The artifacts, and the table of each paper's searches."""
        yield from self.artifacts
        yield from filter(None, (paper.search for paper in self.papers.values()))

    def paper(self, name: str) -> Paper:
        """Return a paper by its folder's name."""
        require_known("paper", name, self.papers)
        return self.papers[name]

    def artifact(self, paper: str, name: str) -> Artifact:
        """Return one artifact; raises VitrailError where the paper has none such at this scale."""
        artifacts = self.paper(paper).artifacts
        require_known(f"scale '{self.scale.name}' of '{paper}': artifact", name, artifacts)
        return artifacts[name]

    def files(self, artifact: Artifact) -> tuple[Path, ...]:
        """Where an artifact is rendered to."""
        stem = self.results / artifact.paper / artifact.name
        return tuple(stem.with_name(stem.name + suffix) for suffix in artifact.suffixes)

    def place_of(self, target: Target) -> str:
        """Where to look for what a target has made: its page, or the folder of several."""
        if self.reports[0] in target.files:
            return f"{self.results}/, all on one page in {self.reports[1]}"
        shown = [str(path) for path in target.files if path.suffix in (".md", ".png")]
        return shown[0] if len(shown) == 1 else f"{os.path.commonpath(target.files)}/"

    @functools.cached_property
    def runs(self) -> dict[Path, Run]:
        """The runs behind all artifacts of this scale, by folder."""
        return {run.folder: run for artifact in self.artifacts for run in artifact.runs}

    @functools.cached_property
    def measurements(self) -> dict[Path, Measurement]:
        """The measurements behind all artifacts and searches of this scale, by path."""
        return {m.path: m for artifact in self.everything for m in artifact.measurements}

    @functools.cached_property
    def trainings(self) -> dict[Path, tuple[Run, tuple[int, ...]]]:
        """The trainings behind all artifacts and searches, by record: a run, and its seeds."""
        runs = with_sources(run for artifact in self.everything for run in artifact.runs)
        return {run.record(seeds): (run, seeds) for run in runs for seeds in run.trainings}

    @functools.cached_property
    def records(self) -> frozenset[Path]:
        """The records of all trainings, measurements and renderings of this scale."""
        return frozenset((*self.trainings, *self.measurements, *self.renderings))

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def node(self, output: Path) -> AnyNode:
        """The node whose record is `output`.

        Raises VitrailError where no recipe or artifact of this scale has it.
        """
        if output in self.measurements:
            return self.measurement_node(self.measurements[output])
        if output in self.renderings:
            return self.rendering_node(self.renderings[output])
        if output == self.report:
            return self.report_node
        if output in self.trainings:
            return self.training_node(*self.trainings[output])
        raise VitrailError(
            f"{output} belongs to no recipe and no artifact at scale '{self.scale.name}'; "
            f"ask for a target ({self.snakemake('--list-target-rules')})"
        )

    @functools.cached_property
    def renderings(self) -> dict[Path, Artifact]:
        """The artifacts and searches of this scale, by the records of their renderings."""
        return {self.rendering(artifact): artifact for artifact in self.everything}

    def rendering(self, artifact: Artifact) -> Path:
        """The record of an artifact's rendering."""
        return self.results / artifact.paper / f"{artifact.name}.json"

    def resources(self, of: Run | Measurement) -> Resources:
        """What the training of a run, or a measurement, asks for.

        What runs on the CPU at a scale of GPUs (what a measure or --config device=cpu says, and a
        training of no steps, which only copies weights) has no GPU, nor the memory of what has one.
        What runs on a GPU at a scale of CPUs has one.
        """
        run = of if isinstance(of, Run) else of.on
        settings = self.paper(of.paper).run_settings(run.name if run else None)
        if isinstance(of, Run):
            asked, device = settings.resources_of("train"), self._training_device(of)
        else:
            asked, device = settings.resources_of("evaluate" if of.run else "benchmark"), of.device
        update: dict[str, int] = {}
        if device == "cpu" and asked.gpus:
            mem_mb = min(SMALL_MEM_MB, asked.mem_mb)
            update = {"nodes": 1, "gpus": 0, "threads": 1, "mem_mb": mem_mb}
        elif device != "cpu" and not asked.gpus:
            update = {"gpus": 1, "mem_mb": max(SMALL_MEM_MB, asked.mem_mb)}
        if isinstance(of, Run) and not of.recipe.steps(of.info.train_images):
            update["runtime"] = min(COPYING_MINUTES, asked.runtime)
        return asked.model_copy(update=update)

    def _training_device(self, run: Run) -> str:
        """The scale's; but a training of no epochs only copies weights, without a GPU."""
        return self.scale.device if run.recipe.steps(run.info.train_images) else "cpu"

    def training_node(self, run: Run, seeds: tuple[int, ...]) -> TrainingNode:
        """The node that trains some seeds of a run.

        The code counts in its identity as it was when the run was trained, for trainings are not
        repeated because code has changed, unless `retrain` asks for it. Then the engine finds
        which of its seeds the present code has trained: its record may be gone.

        Raises:
            VitrailError: the devices that it asks for cannot share its steps equally.
        """
        self._require_devices(run)
        published = run.recipe.model.published
        weights = self.weights_of(published) if published else None
        settings = self.paper(run.paper).run_settings(run.name)
        start = trained_run(run.source) if run.source else None
        inputs = [self.receipt_of(run.recipe.data.dataset), *([weights] if weights else [])]
        if start:
            inputs += [start.records[seed] for seed in seeds]
        retrain = self.settings.retrain == "changed"
        return TrainingNode(
            **self._common(run, run.record(seeds), inputs),
            **self._where,
            code=run.code if retrain else run.planned_code(seeds),
            commit=self.commit(training_code(run.recipe, run.info)),
            device=self._training_device(run),
            recipe=run.recipe,
            dataset=run.info,
            data=run.data[:-1],
            seeds=seeds,
            checkpoint_seconds=60 * self.scale.checkpoint_minutes,
            published=weights,
            start=start,
            retrain=retrain,
            validate_every=settings.validate_every,
        )

    def measurement_node(self, measurement: Measurement) -> MeasurementNode:
        """The node that takes a measurement."""
        run, on = measurement.run, measurement.on
        named = tuple(find(name, self.datasets) for name in measurement.datasets)
        read = {*measurement.datasets, *([run.recipe.data.dataset] if run else [])}
        records = run.records_of(measurement.seeds) if run else ()
        inputs = (*records, *map(self.receipt_of, sorted(read)))
        recipe, info = (on.recipe, on.info) if on else (None, None)
        same = ("function", "args", "seeds", "device")
        opened = (*([run.info] if run else []), *named)
        code = measurement_code(measurement.function, measurement.args, recipe, opened)
        return MeasurementNode(
            **self._common(measurement, measurement.path, inputs),
            **self._where,
            code=code.digest,
            commit=self.commit(code),
            recipe=recipe,
            recipe_name=on.name if on else None,
            dataset=info,
            data=on.data[:-1] if on else [],
            datasets=named,
            run=trained_run(run) if run else None,
            **{name: getattr(measurement, name) for name in same},
        )

    def rendering_node(self, artifact: Artifact) -> RenderingNode:
        """The node that renders an artifact."""
        measurements = tuple(measurement.path for measurement in artifact.measurements)
        code = rendering_code(artifact.draw)
        same = ("title", "caption", "source", "note", "row_header", "rows", "draw")
        return RenderingNode(
            scale=self.settings.label,
            paper=artifact.paper,
            name=artifact.name,
            config=self._config(),
            output=self.rendering(artifact),
            inputs=measurements,
            code=code.digest,
            commit=self.commit(code),
            shape=artifact.kind,
            columns=tuple(
                ShownColumn(label=column.label, group=column.group) for column in artifact.columns
            ),
            cells=tuple(map(_shown, artifact.cells)),
            measurements=measurements,
            digits=artifact.digits,
            stand_ins=artifact.stand_ins,
            **{name: getattr(artifact, name) for name in same},
        )

    @functools.cached_property
    def report_node(self) -> ReportNode:
        """The node that writes the report."""
        code = report_code()
        renderings = tuple(map(self.rendering, self.artifacts))
        return ReportNode(
            scale=self.settings.label,
            paper="",
            name="report",
            config=self._config(),
            output=self.report,
            inputs=renderings,
            code=code.digest,
            commit=self.commit(code),
            description=self.scale.description,
            findings=_text_of(self.root / "FINDINGS.md"),
            papers=tuple(_reported(paper) for paper in self.papers.values() if paper.artifacts),
            renderings=renderings,
            trainings=tuple(record for run in self.runs.values() for record in run.records),
        )

    @functools.cached_property
    def _where(self) -> dict[str, Any]:
        return {"data_root": self.data_root, "workers": self.scale.workers}

    def commit(self, code: Code) -> str | None:
        """The commit of the checkout, "-dirty" appended where a file of this code differs."""
        head, changed = self._checkout
        if head is None or changed is None:
            return head and head + DIRTY
        return head + DIRTY if changed & set(map(file_of, code.modules)) else head

    @functools.cached_property
    def _checkout(self) -> tuple[str | None, set[Path] | None]:
        """The commit, and the files that differ from it; None where git cannot tell."""
        changed = changed_files()
        return head(), None if changed is None else {checkout() / name for name in changed}

    def _common(self, of: Run | Measurement, output: Path, inputs: Iterable[Path]) -> Any:
        """The fields that trainings and measurements have, but for what decides the result."""
        return {
            "scale": self.settings.label,
            "paper": of.paper,
            "name": of.name,
            "config": self._config(),
            "output": output,
            "inputs": tuple(dict.fromkeys(inputs)),
            "resources": self.resources(of),
        }

    def makes(self, file: Path) -> bool:
        """Tell whether some rule makes a file at this scale."""
        rendered = (path for artifact in self.everything for path in self.files(artifact))
        fetched = map(self.receipt_of, self.datasets)
        published = filter(None, (run.recipe.model.published for run in self.runs.values()))
        weights = map(self.weights_of, published)
        files = (self.report, *self.reports, *rendered, *fetched, *weights)
        return file in self.records or file in files

    def receipt_of(self, dataset: str) -> Path:
        """The file that says that a dataset is there and sound."""
        return self.fetched / f"{dataset}.json"

    @property
    def fetched(self) -> Path:
        """The folder of receipts and logs of what is fetched, one for each data root.

        It lies below the runs, since the data root may be a folder of others, which is only read.
        """
        return self.runs_root / f"data-{short_hash(str(self.data_root))}"

    def made_of(self, dataset: str) -> str:
        """What decides whether a dataset is fetched again, as JSON.

        That is what its entry says of the files and their images, and the code that makes them.
        """
        info = find(dataset, self.datasets)
        code = preparation_code(info).digest
        return json.dumps({"entry": info.identity_fields, "digest": info.digest, "code": code})

    def weights_of(self, published: str) -> Path:
        """The file that holds published weights: those of a timm model, or at a URL."""
        name = Path(published.rpartition("/")[2]).stem if "://" in published else published
        return self.data_root / "weights" / f"{name}.safetensors"

    @functools.cached_property
    def targets(self) -> dict[str, Target]:
        """Everything one may ask for by name; short names too for the lead paper's artifacts."""
        targets: dict[str, Target] = {}

        def add(name: str, caption: str, artifacts: Iterable[Artifact], *more: Path) -> None:
            chosen = tuple(artifacts)
            files = (file for artifact in chosen for file in self.files(artifact))
            targets[name] = Target(name, caption, (*files, *more), chosen)

        everything = list(self.artifacts)
        for artifact in everything:
            summary = f"{artifact.source}: {artifact.caption}"
            add(artifact.target, summary, [artifact])
            if artifact.paper == self.settings.lead_paper:
                add(artifact.name, summary, [artifact])
        for paper in self.papers.values():
            if table := paper.search:
                add(table.target, f"learning rates of {paper.info.title}, to be chosen", [table])
        for name, paper in self.papers.items():
            if paper.artifacts:
                caption = f"every table and figure of: {paper.info.title}"
                add(name, caption, paper.artifacts.values())
        for kind in ("table", "figure"):
            chosen = (artifact for artifact in everything if artifact.kind == kind)
            add(f"{kind}s", f"every {kind} of every paper", chosen)
        # After the lead paper's short names, of which a collection's name may be one.
        for collection in dict.fromkeys(artifact.collection for artifact in everything):
            if collection is not None:
                members = [each for each in everything if each.collection == collection]
                listed = ", ".join(each.target for each in members)
                add(collection, f"the {collection}: {listed}", members)
        whole = "every table and figure of every paper, and the report"
        add("all", whole, everything, *self.reports)
        return targets

    def require_code(self, artifacts: Iterable[Artifact] | None = None) -> None:
        """Raise a `VitrailError` where a measure or a drawing names code that is not ours.

        So a misspelt function or argument is told before anything is trained. Loading a catalogue
        does not ask for it, since it takes the time of reading the sources. Without `artifacts`
        all of the scale are checked.
        """
        for artifact in self.artifacts if artifacts is None else artifacts:
            for measurement in artifact.measurements:
                where = f"{measurement.paper}: measure '{measurement.name}'"
                require_function(measurement.function, measurement.args, where)
            if artifact.draw:
                where = f"{artifact.paper}: artifact '{artifact.name}'"
                require_function(artifact.draw, (), where)

    def require_devices(self, artifacts: Iterable[Artifact] | None = None) -> None:
        """Raise a `VitrailError` where the GPUs of a training cannot share its steps equally.

        Without `artifacts` the trainings behind all of the scale are checked.
        """
        chosen = self.artifacts if artifacts is None else artifacts
        for run in with_sources(run for artifact in chosen for run in artifact.runs):
            self._require_devices(run)

    def _require_devices(self, run: Run) -> None:
        asked = self.resources(run)
        try:
            run.recipe.batch.share(asked.devices)
        except VitrailError as error:
            raise VitrailError(
                f"{self.paper(run.paper).folder}: recipe '{run.name}' has resources: {{train: "
                f"{{nodes: {asked.nodes}, gpus: {asked.gpus}}}}} at scale '{self.scale.name}', but "
                f"{error}, counted over all nodes"
            ) from error

    def require_weights(self, artifacts: Iterable[Artifact] | None = None) -> None:
        """Raise a `VitrailError` where published weights are not in the registry.

        Without `artifacts` those behind all of the scale are looked up.
        """
        chosen = self.artifacts if artifacts is None else artifacts
        names = {run.recipe.model.published for artifact in chosen for run in artifact.runs} - {
            None
        }
        registry = load_weights_registry(self.root / REGISTRY) if names else {}
        for name in sorted(names):
            find_weights(self.weights_of(name).stem, registry)

    def snakemake(self, target: str, *options: str, **changes: str) -> str:
        """Write the command that makes a target with these settings, of which some are changed."""
        return snakemake_command(target, *options, config=self._config(**changes))

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def _config(self, **changes: str) -> tuple[str, ...]:
        """What --config gives: the scale, and what is not as ``configs/default.yaml`` has it."""
        written = load_settings(self.root)
        return tuple(
            f"{name}={value}"
            for name, value in (self.settings.model_dump() | changes).items()
            if name == "scale" or value != getattr(written, name)
        )

    def target(self, name: str) -> Target:
        """Return a target by name.

        Raises:
            VitrailError: this scale does not make it; the error names the scales that do, or else
                the closest name.
        """
        if name in self.targets:
            return self.targets[name]
        written = {
            target_of(paper.name, artifact)
            for paper in self.papers.values()
            for artifact in (*paper.artifacts_file.artifacts, SEARCH)
        }
        if name not in written and name not in self.papers:
            raise VitrailError(
                f"target '{name}' is unknown{did_you_mean(name, {*self.targets, *written})}"
            )
        others = [
            scale
            for scale in known_scales(self.root)
            if scale != self.scale.name and name in load_catalog(self.root, scale=scale).targets
        ]
        raise VitrailError(
            f"scale '{self.scale.name}' does not make '{name}'; give one of the scales that do "
            "(snakemake --config scale=NAME, vitrail --scale NAME): "
            f"{', '.join(others) or 'there is none'}"
        )


def load_catalog(root: Path = Path(), **overrides: Any) -> Catalog:
    """Read the catalogue from a checkout; `overrides` are laid over ``configs/default.yaml``.

    Raises VitrailError where `root` is no checkout of Vitrail, or a file in it is wrong.
    """
    if not (root / "configs" / "default.yaml").is_file():
        raise VitrailError(
            f"{root.absolute()} has no configs/default.yaml; run this from the project's root"
        )
    return Catalog(root, load_settings(root, overrides))


def _one_training(cells: Iterable[tuple[str | None, Cell]]) -> set[tuple[str, str]]:
    """The places of cells, given with their recipes, that show one quantity of one run in a row.

    Their recipes and measurements differ: a copy of a measurement is told as such.
    """
    found: dict[object, list[tuple[str | None, Cell]]] = defaultdict(list)
    for recipe, cell in cells:
        if cell.measurement and cell.measurement.run:
            found[cell.measurement.run.folder, cell.row, cell.metric].append((recipe, cell))
    return {
        (cell.row, cell.column)
        for alike in found.values()
        if len({recipe for recipe, _ in alike}) > 1
        and len({other.measurement for _, other in alike}) > 1
        for _, cell in alike
    }


def _shown(cell: Cell) -> ShownCell:
    """A cell as its rendering needs it."""
    fields = {name: getattr(cell, name) for name in ShownCell.model_fields}
    path = cell.measurement.path if cell.measurement else None
    return ShownCell(**fields | {"measurement": path})


def _reported(paper: Paper) -> ReportedPaper:
    """A paper as the report needs it."""
    return ReportedPaper(
        name=paper.name,
        **{name: getattr(paper.info, name) for name in ("title", "authors", "venue", "url")},
        deviations=_text_of(paper.folder / "deviations.md"),
        stand_ins=paper.names_replaced,
        claims=paper.claims,
        tuning_results=paper.tuning_results,
        registered=paper.registered,
    )


def _text_of(path: Path) -> str:
    """The text of a file; none where there is no such file."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def is_target_name(text: str) -> bool:
    """Tell a target's name from a file's path on the command line."""
    return re.fullmatch(r"[\w-]+", text) is not None
