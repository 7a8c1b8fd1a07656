"""One paper at one scale: recipes, measures and artifacts, linked into runs and measurements.

`Links` looks these up, in a paper and in the catalogue of all papers. `replication.plan.resolve`
decides the values of recipes and measures.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.config.datasets import DatasetInfo, find
from replication.config.paper import (
    ArtifactSpec,
    CellSpec,
    MeasureSpec,
    PaperInfo,
    Printed,
    ShownColumn,
    read_reference,
)
from replication.config.recipe import short_hash
from replication.config.recipe_types import AnyRecipe
from replication.config.schema import load
from replication.config.settings import Scale, Settings
from replication.config.tuning import Trial, TuningResult
from replication.plan import fast_dev_run
from replication.plan.preregistration import digests_of, registered
from replication.plan.resolve import PaperAtScale
from replication.plan.search_table import Score, search_table, trial_scores
from replication.records.specs import (
    Artifact,
    Cell,
    Measurement,
    Run,
    with_sources,
)
from vitrail.errors import VitrailError, require_known


class Links:
    """Look up the measurements and runs of artifacts and cells, which hold paths of records."""

    if TYPE_CHECKING:  # `Paper` has it as an attribute, `Catalog` as a cached property

        @property
        def measured(self) -> Mapping[Path, Measurement]:
            """Return the measurements by the paths of their records."""

    def measurements_of(self, *shown: Artifact | Cell) -> tuple[Measurement, ...]:
        """Return the measurements of artifacts or cells, one for each seed, without duplicates."""
        records = dict.fromkeys(path for each in shown for path in each.records)
        return tuple(self.measured[path] for path in records)

    def measurement_of(self, cell: Cell) -> Measurement | None:
        """Return a cell's measurement under its first seed; None if nothing is measured."""
        return self.measured[cell.records[0]] if cell.records else None

    def runs_of(self, *shown: Artifact | Cell) -> tuple[Run, ...]:
        """Return the runs to train for artifacts or cells, sources included, without duplicates."""
        measured = self.measurements_of(*shown)
        return with_sources(measurement.run for measurement in measured if measurement.run)


class Paper(PaperAtScale, Links):
    """One paper at one scale, with its recipes, measures and artifacts linked to each other."""

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        datasets: Mapping[str, DatasetInfo],
        root: Path,
        settings: Settings,
        config: tuple[str, ...],
    ) -> None:
        """Read the files; errors as `PaperAtScale`. `config` has Snakemake's --config values."""
        self.name = folder.name
        self._runs_root = settings.runs
        self.label, self.config = settings.label, config
        self.measured: dict[Path, Measurement] = {}
        self.info = load(PaperInfo, folder / "paper.yaml")
        super().__init__(folder, scale, datasets, root, settings.fast_dev_run)

    @functools.cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """Return the artifacts of this scale by name, without those that have no measurement."""
        specs = self.artifacts_file.artifacts
        made = (self._artifact(name, specs[name]) for name in self.artifact_names)
        return {artifact.name: artifact for artifact in made if artifact.measurements}

    @functools.cached_property
    def trials(self) -> dict[Trial, Score]:
        """Return the trials of this scale's searches, each with the place of its score."""
        return trial_scores(self, self._runs_root)

    @functools.cached_property
    def search(self) -> Artifact | None:
        """Return the table of this scale's searches; None without searches. `all` omits it."""
        self.measured |= {
            score.measurement.path: score.measurement for score in self.trials.values()
        }
        return search_table(self, self.trials, self.label, self.config)

    @functools.cached_property
    def tuning_results(self) -> dict[str, TuningResult] | None:
        """Return what searches found, by the hash of each covered recipe; None without searches."""
        if not self.searches.groups:
            return None
        return {
            runs[0].recipe.hash: result
            for name, runs in self._runs.items()
            if (result := self.tuning_result(name))
        }

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """Return the digest of each empirical claim at this scale, by id (`digests_of`)."""
        return digests_of(self.claims, self.artifacts, self.measurements_of)

    @property
    def registered(self) -> dict[str, str] | None:
        """Return when each claim that is unchanged since was registered; None if none was."""
        return registered(self.folder, self.scale.name, self.digests)

    def runs(self, name: str) -> tuple[Run, ...]:
        """Return the runs of a recipe, one for each seed.

        Raises VitrailError if there is no such recipe, or if any recipe of the paper is not valid.
        """
        self.require(name)
        return self._runs[name]

    def run(self, name: str) -> Run:
        """Return the run of a recipe under its first seed; errors as `runs`."""
        return self.runs(name)[0]

    def measurement(self, name: str, recipe: str | None) -> Measurement:
        """Return a measurement under its first seed; errors as `measurements`."""
        return self.measurements(name, recipe)[0]

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def measurements(self, name: str, recipe: str | None) -> tuple[Measurement, ...]:
        """Return the measurements of a measure at this scale, one for each seed.

        `recipe` is the name of the recipe whose runs, or which itself, is measured; None for a
        measure that needs no recipe.

        Raises VitrailError if the measure is unknown, if it needs a recipe and none is given, or if
        one is given and it takes none.
        """
        where = str(self.artifacts_path)
        require_known(f"{where}: measure", name, self.artifacts_file.measures)
        spec = self.measure(name)
        if (spec.on is None) != (recipe is None):
            rule = "needs a recipe; name one" if recipe is None else "takes no recipe; remove it"
            raise VitrailError(f"{where}: measure '{name}' {rule}")
        decided: dict[str, Any] = {
            "args": spec.args,
            "device": "cpu" if spec.device == "cpu" else self.scale.device,
            "datasets": tuple(self.stand_ins.get(dataset, dataset) for dataset in spec.datasets),
        }
        made = tuple(
            Measurement(
                paper=self.name,
                name=name,
                function=spec.function,
                args=spec.args,
                seed=seed,
                device=decided["device"],
                datasets=tuple(find(dataset, self.datasets) for dataset in decided["datasets"]),
                path=folder / "measurements" / f"{subject}-seed{seed}-{short_hash(decided)}.json",
                run=run,
                described=described,
            )
            for seed, run, described, folder, subject in self._subjects(name, spec, recipe)
        )
        self.measured |= {measurement.path: measurement for measurement in made}
        return made

    def _subjects(
        self, name: str, spec: MeasureSpec, recipe: str | None
    ) -> Iterator[tuple[int, Run | None, Run | None, Path, str]]:
        """Yield for each measurement: seed, run, described run, folder and name of its record."""
        root = self._runs_root / self.name
        if spec.on == "run" and recipe is not None:
            runs = self.runs(recipe)
            if spec.seeds and spec.seeds > len(runs):
                raise VitrailError(
                    f"{self.artifacts_path}: measure '{name}' wants {spec.seeds} seeds and recipe "
                    f"'{runs[0].name}' has {len(runs)} at scale '{self.scale.name}'; give both as "
                    "many"
                )
            for run in runs[: spec.seeds]:
                yield run.seed, run, None, run.home, name
            return
        described = None
        if recipe is not None:
            printed = spec.on == "paper"
            first = self._as_run(recipe, self.printed(recipe)) if printed else self.run(recipe)
            described, name = first, f"{name}-{first.home.name}"
        for seed in range(spec.seeds or 1):
            yield seed, None, described, root, name

    @functools.cached_property
    def _runs(self) -> dict[str, tuple[Run, ...]]:
        """Return the runs of every recipe by name; equal recipes share their runs."""
        runs: dict[str, tuple[Run, ...]] = {}
        shared: dict[tuple[str, int], tuple[Run, ...]] = {}
        # A recipe comes after those that it starts from. Equal recipes start from equally many, and
        # the sort is stable, so that they stay in the order of the file.
        for name in sorted(self.recipes, key=lambda name: len(self.sources(name))):
            made = self._runs_of(
                name, next((runs[source_name] for source_name in self.sources(name)), ())
            )
            runs[name] = shared.setdefault((made[0].recipe.canonical_json(), len(made)), made)
        return runs

    def _runs_of(self, name: str, sources: tuple[Run, ...]) -> tuple[Run, ...]:
        recipe, seeds = self.recipe(name), self.run_settings(name).seeds
        if sources:
            start = sources[0].home.name
            if seeds > len(sources):
                raise VitrailError(
                    f"{self.recipes_path}: recipe '{name}' has {seeds} seeds at scale "
                    f"'{self.scale.name}', and '{start}', whose weights it starts from, has "
                    f"{len(sources)}; give it no more"
                )
            model = recipe.model.model_copy(update={"weights_from": start})
            recipe = recipe.model_copy(update={"model": model})
        return tuple(
            self._as_run(name, recipe, number, sources[number] if sources else None)
            for number in range(seeds)
        )

    def _as_run(
        self, name: str, recipe: AnyRecipe, number: int = 0, source: Run | None = None
    ) -> Run:
        """Return the run of a recipe; its seed is the scale's first seed plus `number`."""
        return Run(
            paper=self.name,
            name=name,
            recipe=recipe,
            dataset=find(recipe.data.dataset, self.datasets).of_part(recipe.data.part),
            seed=self.scale.first_seed + number,
            home=self._runs_root / self.name / f"{name}-{recipe.hash}",
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
        shared = self._one_training((specs[place].recipe, cell) for place, cell in made.items())
        variants = spec.variants
        cells = tuple(
            cell.model_copy(
                update={"one_training": place in shared, "variant_of": variants.get(place)}
            )
            for place, cell in made.items()
        )
        if stray := printed.keys() - {(cell.row, cell.column) for cell in cells}:
            raise VitrailError(
                f"{reference / name}.csv: the cell {sorted(stray)[0]} is not in artifacts.yaml; "
                "give both the same labels"
            )
        shown = tuple(dict.fromkeys(cell.records for cell in cells if cell.records))
        measured = [self.measured[records[0]] for records in shown]
        same = ("kind", "title", "source", "row_header", "draw", "digits", "collection")
        return Artifact(
            scale=self.label,
            config=self.config,
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
            columns=tuple(
                ShownColumn(label=column.label, group=column.group) for column in spec.columns
            ),
            cells=cells,
            measurements=shown,
            stand_ins=self._stand_ins_in(measured),
            **{field: getattr(spec, field) for field in same},
        )

    def _stand_ins_in(self, measurements: Iterable[Measurement]) -> dict[str, str]:
        """Return the stand-ins that measurements read, each with the names of what it replaces."""
        read = {
            name
            for measurement in measurements
            for name in (
                *(info.name for info in measurement.datasets),
                *([measurement.on.dataset.name] if measurement.on else []),
            )
        }
        return {here: names for here, names in self.names_replaced.items() if here in read}

    def _changes_of(self, measurements: Iterable[Measurement]) -> list[str]:
        """Return a sentence on what the scale changes of the measured recipes, as a list.

        The list is empty if nothing changes, or if the scale does not list its changes
        (`PaperScale.lists_changes`).
        """
        if not self.overlay.lists_changes:
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
        """Return sentences on the datasets that this scale lacks for the cells of an artifact.

        Each names the scales that make the artifact with these datasets, if there are any.
        """
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
        measured = () if missing else self.measurements(spec.measure, spec.recipe)
        comparable = False
        if measured and spec.comparable and not spec.hardware and self._as_printed(measured[0]):
            of_paper = self.artifacts_file.measures[measured[0].name].on == "paper"
            comparable = spec.recipe is None or of_paper or self.as_printed(spec.recipe)
        same = ("metric", "unit", "key", "digits", "exact")
        return Cell(
            row=row,
            column=column,
            records=tuple(measurement.path for measurement in measured),
            comparable=comparable,
            of_hardware=spec.hardware,
            printed=printed,
            **{field: getattr(spec, field) for field in same},
        )

    def _as_printed(self, measurement: Measurement) -> bool:
        """Tell whether the arguments and datasets of a measurement are the paper's own."""
        printed = self.artifacts_file.measures[measurement.name]
        names = tuple(info.name for info in measurement.datasets)
        return (measurement.args, names) == (printed.args, printed.datasets)

    def _one_training(self, cells: Iterable[tuple[str | None, Cell]]) -> set[tuple[str, str]]:
        """Return the places (row, column) of cells of one row that show the same training."""
        found: dict[object, list[tuple[str | None, Cell]]] = defaultdict(list)
        for recipe, cell in cells:
            if (measurement := self.measurement_of(cell)) and measurement.run:
                found[measurement.run.home, cell.row, cell.metric].append((recipe, cell))
        return {
            (cell.row, cell.column)
            for alike in found.values()
            if len({recipe for recipe, _ in alike}) > 1
            and len({other.records for _, other in alike}) > 1
            for _, cell in alike
        }
