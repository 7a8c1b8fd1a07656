"""The catalogue: all papers at one scale, and the nodes of the graph.

It answers every question that the graph and the commands ask: which files belong to a target, which
runs a cell's number comes from, which inputs and resources a run needs. It imports no torch, so
that building the graph stays fast, and it contains no name of a paper, dataset or scale.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replication.config.datasets import find, load_registry
from replication.config.recipe import short_hash
from replication.config.settings import (
    Resources,
    RunSettings,
    Settings,
    known_scales,
    load_scale,
    load_settings,
    snakemake_command,
)
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
from replication.plan.module_digest import file_of
from replication.plan.paper import Links, Paper
from replication.plan.resources import require_devices, resources_of, trains
from replication.plan.search_table import SEARCH
from replication.records.nodes import (
    AnyNode,
    MeasurementNode,
    RenderingNode,
    ReportNode,
    TrainingNode,
    report_files,
)
from replication.records.specs import (
    Artifact,
    Measurement,
    Report,
    ReportedPaper,
    Run,
    target_of,
)
from vitrail.errors import VitrailError, did_you_mean, require_known
from vitrail.provenance import DIRTY, changed_files, checkout, head


@dataclass(frozen=True)
class Target:
    """A name that can be given to Snakemake, with the files and artifacts that it makes."""

    name: str
    caption: str
    files: tuple[Path, ...]
    artifacts: tuple[Artifact, ...]


class Catalog(Links):
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
        # The record of the report, which links every artifact and has the status of every claim.
        self.report = self.results / "report.json"
        self.reports = report_files(self.report)
        self.datasets = load_registry(root / "configs" / "datasets.yaml")
        folders = sorted(file.parent for file in (root / "configs" / "papers").glob("*/paper.yaml"))
        require_known("lead_paper", settings.lead_paper, [folder.name for folder in folders])
        # The lead paper comes first; folders without printed values come last.
        folders.sort(
            key=lambda folder: (
                folder.name != settings.lead_paper,
                not (folder / "reference").is_dir(),
            )
        )
        shared = (self.scale, self.datasets, root, settings, self.config())
        self.papers = {folder.name: Paper(folder, *shared) for folder in folders}
        self._refuse_ambiguous_names()

    def _refuse_ambiguous_names(self) -> None:
        """Raise VitrailError if a name is both a table and a figure, or is `search`."""
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
        """Return the catalogue with `extensions` set: with the rows that the papers do not have."""
        settings = self.settings.model_copy(update={"extensions": True})
        return self if self.scale.extensions else Catalog(self.root, settings)

    @property
    def artifacts(self) -> Iterator[Artifact]:
        """Yield every artifact of every paper at this scale, without the tables of searches."""
        for paper in self.papers.values():
            yield from paper.artifacts.values()

    @property
    def everything(self) -> Iterator[Artifact]:
        """Yield every artifact, then the table of searches of each paper that has one."""
        yield from self.artifacts
        yield from filter(None, (paper.search for paper in self.papers.values()))

    def paper(self, name: str) -> Paper:
        """Return a paper by its folder's name."""
        require_known("paper", name, self.papers)
        return self.papers[name]

    def files(self, artifact: Artifact) -> tuple[Path, ...]:
        """Return the files that an artifact is rendered to."""
        return artifact.files_in(self.results / artifact.paper)

    def place_of(self, target: Target) -> str:
        """Return where to look at a target's results: its one page, or the common folder."""
        if self.reports[0] in target.files:
            return f"{self.results}/, all on one page in {self.reports[1]}"
        shown = [str(path) for path in target.files if path.suffix in (".md", ".png")]
        return shown[0] if len(shown) == 1 else f"{os.path.commonpath(target.files)}/"

    @functools.cached_property
    def runs(self) -> dict[Path, Run]:
        """Return the runs that all artifacts of this scale need, by their records."""
        return {run.record: run for run in self.runs_of(*self.artifacts)}

    @functools.cached_property
    def measurements(self) -> dict[Path, Measurement]:
        """Return the measurements of all artifacts and searches of this scale, by their records."""
        return {measured.path: measured for measured in self.measurements_of(*self.everything)}

    @functools.cached_property
    def measured(self) -> Mapping[Path, Measurement]:
        """Return the measurements of all papers by the paths of their records."""
        for _ in self.everything:  # building an artifact fills `measured` of its paper
            pass
        return ChainMap(*(paper.measured for paper in self.papers.values()))

    @functools.cached_property
    def trainings(self) -> dict[Path, Run]:
        """Return the runs that artifacts and searches of this scale need, by their records."""
        return {run.record: run for run in self.runs_of(*self.everything)}

    @functools.cached_property
    def records(self) -> frozenset[Path]:
        """Return the records of all trainings, measurements and renderings of this scale."""
        return frozenset((*self.trainings, *self.measurements, *self.renderings))

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def node(self, output: Path) -> AnyNode:
        """Return the node whose record is `output`.

        Raises VitrailError if no recipe and no artifact of this scale has this record.
        """
        if output in self.measurements:
            return self.measurement_node(self.measurements[output])
        if output in self.renderings:
            return self.rendering_node(self.renderings[output])
        if output == self.report:
            return self.report_node
        if output in self.trainings:
            return self.training_node(self.trainings[output])
        raise VitrailError(
            f"{output} belongs to no recipe and no artifact at scale '{self.scale.name}'; "
            f"ask for a target ({self.snakemake('--list-target-rules')})"
        )

    @functools.cached_property
    def renderings(self) -> dict[Path, Artifact]:
        """Return artifacts and tables of searches of this scale, by their renderings' records."""
        return {self.rendering(artifact): artifact for artifact in self.everything}

    def rendering(self, artifact: Artifact) -> Path:
        """Return the path of the record of an artifact's rendering."""
        return self.results / artifact.paper / f"{artifact.name}.json"

    def resources(self, of: Run | Measurement) -> Resources:
        """Return the resources that the training of a run, or a measurement, asks for."""
        return resources_of(of, self.run_settings(of), self.scale.device)

    def run_settings(self, of: Run | Measurement) -> RunSettings:
        """Return the settings of the recipe of a run, or of the one that a measurement is of."""
        run = of if isinstance(of, Run) else of.on
        return self.paper(of.paper).run_settings(run.name if run else None)

    def training_node(self, run: Run) -> TrainingNode:
        """Return the node that trains a run.

        Raises:
            VitrailError: the devices that it asks for cannot share its steps equally.
        """
        self._require_devices(run)
        published = run.recipe.model.published
        weights = self.weights_of(published) if published else None
        inputs = [self.receipt_of(run.dataset.name), *([weights] if weights else [])]
        inputs += [run.source.record] if run.source else []
        code = training_code(run.recipe, run.dataset)
        return TrainingNode(
            **self._common(run, run.record, inputs, code),
            run=run,
            device=self.scale.device if trains(run) else "cpu",
            options=self.paper(run.paper).run_settings(run.name).options,
            published=weights,
            retrain=self.settings.retrain == "changed",
        )

    def measurement_node(self, measurement: Measurement) -> MeasurementNode:
        """Return the node that takes a measurement."""
        read = sorted({info.name for info in measurement.reads})
        records = (measurement.run.record,) if measurement.run else ()
        recipe = measurement.on.recipe if measurement.on else None
        code = measurement_code(measurement.function, measurement.args, recipe, measurement.reads)
        inputs = (*records, *map(self.receipt_of, read))
        return MeasurementNode(
            **self._common(measurement, measurement.path, inputs, code),
            measurement=measurement,
            workers=self.scale.workers,
        )

    def rendering_node(self, artifact: Artifact) -> RenderingNode:
        """Return the node that renders an artifact."""
        code = rendering_code(artifact.draw)
        return RenderingNode(
            scale=self.settings.label,
            config=self.config(),
            output=self.rendering(artifact),
            inputs=artifact.records,
            code=code.digest,
            commit=self.commit(code),
            artifact=artifact,
        )

    @functools.cached_property
    def said(self) -> Report:
        """Return the texts and claims that the report shows besides the artifacts."""
        return Report(
            scale=self.scale.name,
            description=self.scale.description,
            findings=_text_of(self.root / "FINDINGS.md"),
            papers=tuple(_reported(paper) for paper in self.papers.values() if paper.artifacts),
            trainings=tuple(self.runs),
        )

    @functools.cached_property
    def report_node(self) -> ReportNode:
        """Return the node that writes the report."""
        code = report_code()
        renderings = tuple(map(self.rendering, self.artifacts))
        return ReportNode(
            scale=self.settings.label,
            config=self.config(),
            output=self.report,
            inputs=renderings,
            code=code.digest,
            commit=self.commit(code),
            report=self.said.digest,
            renderings=renderings,
        )

    def commit(self, code: Code) -> str | None:
        """Return the commit of the checkout, with "-dirty" appended if a file of this code differs.

        "-dirty" is also appended if git cannot list the changed files. None if there is no commit.
        """
        head, changed = self._checkout
        if head is None or changed is None:
            return head and head + DIRTY
        return head + DIRTY if changed & set(map(file_of, code.modules)) else head

    @functools.cached_property
    def _checkout(self) -> tuple[str | None, set[Path] | None]:
        """Return the commit and the files that differ from it; None for what git cannot tell."""
        changed = changed_files()
        return head(), None if changed is None else {checkout() / name for name in changed}

    def _common(
        self, of: Run | Measurement, output: Path, inputs: Iterable[Path], code: Code
    ) -> dict[str, Any]:
        """Return the fields that the nodes of trainings and of measurements have in common."""
        return {
            "scale": self.settings.label,
            "config": self.config(),
            "output": output,
            "inputs": tuple(dict.fromkeys(inputs)),
            "resources": self.resources(of),
            "code": code.digest,
            "commit": self.commit(code),
            "data_root": self.data_root,
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
        """Return a dataset's receipt: the file which states that its files are complete."""
        return self.fetched / f"{dataset}.json"

    @property
    def fetched(self) -> Path:
        """Return the folder of receipts and logs of fetched datasets, one for each data root.

        It lies in the folder of runs, since the data root may belong to other people and is only
        read.
        """
        return self.runs_root / f"data-{short_hash(str(self.data_root))}"

    def made_of(self, dataset: str) -> str:
        """Return, as JSON, what decides whether a dataset is fetched again.

        This is the part of its registry entry that decides its files and images, the digest of the
        images, and the digest of the code that prepares the files.
        """
        info = find(dataset, self.datasets)
        code = preparation_code(info).digest
        return json.dumps({"entry": info.identity_fields, "digest": info.digest, "code": code})

    def weights_of(self, published: str) -> Path:
        """Return the file of published weights, named by a timm model or by their URL."""
        name = Path(published.rpartition("/")[2]).stem if "://" in published else published
        return self.data_root / "weights" / f"{name}.safetensors"

    @functools.cached_property
    def targets(self) -> dict[str, Target]:
        """Return all targets by name; artifacts of the lead paper also have a short name."""
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
        # Added after the lead paper's short names: a collection replaces one of the same name.
        for collection in dict.fromkeys(artifact.collection for artifact in everything):
            if collection is not None:
                members = [each for each in everything if each.collection == collection]
                listed = ", ".join(each.target for each in members)
                add(collection, f"the {collection}: {listed}", members)
        whole = "every table and figure of every paper, and the report"
        add("all", whole, everything, *self.reports)
        return targets

    def require_code(self, artifacts: Iterable[Artifact]) -> None:
        """Raise a `VitrailError` if a measure or figure names an unknown function or argument.

        A misspelt name is thus reported before anything is trained. Loading a catalogue does not
        check this, since reading the sources takes time.
        """
        for artifact in artifacts:
            for measurement in self.measurements_of(artifact):
                where = f"{measurement.paper}: measure '{measurement.name}'"
                require_function(measurement.function, measurement.args, where)
            if artifact.draw:
                where = f"{artifact.paper}: artifact '{artifact.name}'"
                require_function(artifact.draw, (), where)

    def require_devices(self, artifacts: Iterable[Artifact]) -> None:
        """Raise a `VitrailError` if the GPUs of a training cannot share its steps equally."""
        for run in self.runs_of(*artifacts):
            self._require_devices(run)

    def _require_devices(self, run: Run) -> None:
        folder = self.paper(run.paper).folder
        where = f"{folder}, scale '{self.scale.name}': recipe '{run.name}'"
        require_devices(run, self.resources(run), where)

    def require_weights(self, artifacts: Iterable[Artifact]) -> None:
        """Raise a `VitrailError` if published weights are not in the registry."""
        names = {run.recipe.model.published for run in self.runs_of(*artifacts)} - {None}
        registry = load_weights_registry(self.root / REGISTRY) if names else {}
        for name in sorted(names):
            find_weights(self.weights_of(name).stem, registry)

    @property
    def profile_hint(self) -> str:
        """Return the words on SLURM's profile to add to a command; "" if the scale needs no GPU."""
        return "" if self.scale.device == "cpu" else ", on a SLURM cluster with --profile slurm"

    def snakemake(self, target: str, *options: str, **changes: str) -> str:
        """Return the command that makes a target with these settings, after `changes` to them."""
        return snakemake_command(target, *options, config=self.config(**changes))

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def config(self, **changes: str) -> tuple[str, ...]:
        """Return the --config values: the scale, and each setting that is not the default."""
        written = load_settings(self.root)
        return tuple(
            f"{name}={value}"
            for name, value in (self.settings.model_dump() | changes).items()
            if name == "scale" or value != getattr(written, name)
        )

    @functools.cached_property
    def written(self) -> frozenset[str]:
        """The targets of all tables and figures that the papers' files name, at any scale."""
        return frozenset(
            target_of(paper.name, artifact)
            for paper in self.papers.values()
            for artifact in (*paper.artifacts_file.artifacts, SEARCH)
        )

    def target(self, name: str) -> Target:
        """Return a target by name.

        Raises:
            VitrailError: this scale does not make it; the error names the scales that do, or, if no
                scale knows the name, the closest name.
        """
        if name in self.targets:
            return self.targets[name]
        if name not in self.written and name not in self.papers:
            if any(name.rpartition("/")[2] in self.paper(paper).recipes for paper in self.papers):
                raise VitrailError(
                    f"'{name}' is a recipe, no target; 'vitrail show --recipe {name}' prints it "
                    "(docs/targets.md lists the targets)"
                )
            swapped = "_".join(reversed(name.split("_", 1)))  # table1_shift
            known = {*self.targets, *self.written}
            meant = (
                f"; did you mean '{swapped}'?" if swapped in known else did_you_mean(name, known)
            )
            raise VitrailError(f"target '{name}' is unknown{meant} (docs/targets.md lists all)")
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
    """Read the catalogue from a checkout; `overrides` replace values of ``configs/default.yaml``.

    Raises VitrailError if `root` is no checkout of Vitrail, or if a file in it is wrong.
    """
    return Catalog(root, load_settings(root, overrides))


def _reported(paper: Paper) -> ReportedPaper:
    """Return what the report shows of a paper."""
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
    """Return the text of a file; "" if there is no such file."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def is_target_name(text: str) -> bool:
    """Tell whether an argument on the command line is a target's name and not a file's path."""
    return re.fullmatch(r"[\w-]+", text) is not None
