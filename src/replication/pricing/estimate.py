"""Estimate artifacts for `vitrail plan`: steps, device hours, time limits and disk."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size
from snakemake_executor_plugin_slurm.partitions import Partition

from replication.cluster.partition_file import (
    CONFIG,
    PARTITIONS,
    TOLD,
    longest,
    read_profile,
    suitable,
)
from replication.config.settings import Resources
from replication.cpu_limits import usable_cores
from replication.plan.catalog import Catalog
from replication.plan.resources import more_nodes
from replication.pricing.room import jobs_of, name_of, partitions_of, without_room
from replication.pricing.speed import ZERO, Costs, Range, training_images
from replication.records.specs import Artifact, Measurement, Run, by_recipe
from replication.report.progress import (
    STATES,
    State,
    count_states,
    datasets_needed,
    is_rendered,
    share_left,
    state_of,
    weights_needed,
)
from vitrail.commands import count, heading, say, table
from vitrail.provenance import duration

LEAST = 0.01  # smaller numbers are printed as "<0.01"


@dataclass(frozen=True)
class Work:
    """A number of nodes, and the device seconds of all of them and of those still to do."""

    nodes: int = 0
    whole: Range = ZERO
    left: Range = ZERO

    def __add__(self, other: Work) -> Work:
        return Work(self.nodes + other.nodes, self.whole + other.whole, self.left + other.left)

    @property
    def hours(self) -> dict[str, list[float]]:
        """Return both times in hours, as pairs of bounds."""
        return {"all": self.whole.hours, "to_do": self.left.hours}


@dataclass(frozen=True)
class LongJob:
    """A job that may take longer than its time limit: what it takes and what to do about it.

    A training takes `jobs`, one after the other; an evaluation must end in one.
    """

    name: str
    takes: str
    limit: str
    remedy: str
    jobs: int = 1

    @property
    def sentence(self) -> str:
        """Return all of it as a sentence."""
        return f"{self.name} takes {self.takes}, and its time limit is {self.limit}: {self.remedy}."


def training_work(runs: Sequence[Run], costs: Costs) -> Work:
    """Return the work of training some runs."""
    work = Work()
    for seeds in by_recipe(runs):
        seconds = costs.seconds(seeds[0])
        left = sum(map(share_left, seeds))
        work += Work(len(seeds), seconds.times(len(seeds)), seconds.times(left))
    return work


def runs_of_row(artifact: Artifact, row: str, catalog: Catalog) -> tuple[Run, ...]:
    """Return the runs that a row's cells need, without duplicates."""
    return catalog.runs_of(*(cell for cell in artifact.cells if cell.row == row))


@dataclass
class Estimate:
    """The estimate for some artifacts and the runs that they need, on one kind of device.

    `ours` are the runs of rows that the papers do not have; they may or may not be among the
    artifacts' runs. `at_once` is the number of trainings whose checkpoints count in `disk`.
    """

    catalog: Catalog
    artifacts: Sequence[Artifact]
    costs: Costs
    ours: Sequence[Run]
    at_once: float = 1

    def __post_init__(self) -> None:
        self.runs = self.catalog.runs_of(*self.artifacts)
        self.measurements = self.catalog.measurements_of(*self.artifacts)
        self.datasets = datasets_needed(self.artifacts, self.catalog)

    @cached_property
    def steps(self) -> dict[str, dict[State, int]]:
        """Return the number of steps of each kind by their state."""

        def states(done: Iterable[bool]) -> list[State]:
            return ["done" if finished else "missing" for finished in done]

        kinds: dict[str, list[State]] = {
            "train": [*map(state_of, self.runs)],
            "evaluate": states(m.path.is_file() for m in self.measurements if m.run),
            "benchmark": states(m.path.is_file() for m in self.measurements if not m.run),
            "render": states(is_rendered(artifact, self.catalog) for artifact in self.artifacts),
        }
        return {kind: count_states(found) for kind, found in kinds.items()}

    @property
    def submissions(self) -> int:
        """Return the number of jobs that the profile slurm submits; rendering is local."""
        submitted = [self.steps[kind] for kind in ("train", "evaluate", "benchmark")]
        return sum(sum(states.values()) - states["done"] for states in submitted)

    @cached_property
    def training(self) -> Work:
        """Return the work of all trainings."""
        return training_work(self.runs, self.costs)

    @cached_property
    def evaluations(self) -> tuple[dict[str, Work], list[str]]:
        """Return the work of evaluations by measure, and the measures that have no price."""
        priced: dict[str, Work] = defaultdict(Work)
        others: dict[str, None] = {}
        for taken in self.measurements:
            name = f"{taken.paper}/{taken.name}"
            if (seconds := self.costs.evaluation_seconds(taken)) is not None:
                priced[name] += Work(1, seconds, ZERO if taken.path.is_file() else seconds)
            elif taken.run:
                others[name] = None
        return dict(priced), list(others)

    @property
    def evaluation(self) -> Work:
        """Return the work of all evaluations that have a price."""
        return sum(self.evaluations[0].values(), Work())

    @cached_property
    def disk(self) -> list[tuple[str, Path, int]]:
        """Return what is still to be written or downloaded: what, where, and maximum bytes."""
        costs, runs_root = self.costs, self.catalog.runs_root
        missing = [run for run in self.runs if not (run.record.is_file() or run.weights.is_file())]
        weights = sum(costs.weights_bytes(run) for run in missing)
        each = sorted(map(costs.checkpoints_bytes, missing), reverse=True)
        each = each[: int(min(self.at_once, len(each)))]  # the largest of those that run at once
        checkpoints = sum(each)
        found = [
            ("weights still to be written", runs_root, weights),
            (f"checkpoints, at most, of {count(len(each), 'training')}", runs_root, checkpoints),
        ]
        # Datasets with the same folder share their files, so each folder counts once.
        downloads = {
            need.info.folder: need for need in self.datasets if need.state == "to download"
        }
        for folder, need in downloads.items():
            where = self.catalog.data_root / folder
            found.append((f"download of {need.info.name}", where, need.download_bytes))
        sizes = {run.recipe.model.published: costs.weights_bytes(run) for run in self.runs}
        for published in weights_needed(self.artifacts, self.catalog):
            if not published.path.is_file():
                what = f"published weights of {published.path.stem}"
                found.append((what, published.path.parent, sizes[published.model]))
        return found

    def figures(self) -> dict[str, Any]:
        """Return the content of the tables as plain data; hours are pairs of bounds."""
        return {
            "steps": self.steps,
            "submissions": self.submissions,
            "training_hours": self.training.hours,
            "training_hours_of_ours": {
                "all": training_work(self.ours, self.costs).whole.hours,
                "counted": self.catalog.scale.extensions,
            },
            "evaluation_hours": {**self.evaluation.hours, "not_priced": self.evaluations[1]},
            "without_room": self.without_room,
            "over_time_limit": [job.sentence for job in self.too_long],
            "retries": {"needed": self.retries_needed, "allowed": self.retries},
            "disk": [
                {"what": what, "where": str(where), "bytes": number}
                for what, where, number in self.disk
            ],
            "datasets": {need.info.name: need.state for need in self.datasets},
        }

    def print_all(self) -> None:
        """Print steps, trainings, hours, jobs over limits, and disk."""
        self._print_steps()
        self._print_trainings()
        self._print_hours()
        self._print_evaluations()
        if self.without_room:
            heading("Jobs that fit into no partition")
            say(*self.without_room, "")
        if self.too_long:
            self._print_too_long()
        if self._partitions and not (self.without_room or self.too_long):
            say(
                f"Each job fits into a partition of {PARTITIONS}. By these estimates each "
                "training, and each evaluation with a price, ends within its time limit.",
                *self._assumptions(),
                "",
            )
        self._print_disk()

    def _assumptions(self) -> Iterator[str]:
        """Yield a sentence on the limits of partitions that are not set, if there are any."""
        unset: dict[str, list[str]] = defaultdict(list)
        for partition in self._partitions:
            for field in TOLD:
                if getattr(partition.limits, field) == math.inf:
                    unset[field].append(partition.name)
        if unset:
            told = "; ".join(f"{field} of {', '.join(names)}" for field, names in unset.items())
            yield (
                f"Not set in {PARTITIONS}, so each is assumed to be large enough: {told}. Where "
                "SLURM answers, `vitrail doctor` compares them with its limits."
            )

    def _print_steps(self) -> None:
        title = "Steps (by the files that exist; snakemake -n says which of them are out of date)"
        rows = [[kind, *states.values()] for kind, states in self.steps.items()]
        table(["step", *STATES], rows, STATES, title)
        say(
            f"On a cluster, --profile slurm submits {count(self.submissions, 'job')}. Within one "
            "allocation of whole nodes (docs/cluster.md) they are steps of one job.",
            "",
        )

    def _print_trainings(self) -> None:
        costs = self.costs
        trained = [run for run in self.runs if training_images(run)]
        if untrained := len(self.runs) - len(trained):
            runs = count(untrained, "run")
            say(f"{runs} of zero epochs: nothing is trained, the weights stay as they are.", "")
        if not trained:
            return
        unit, seconds = _unit(max(self._time_of_a_training(run).high for run in trained))
        rows = []
        for seeds in by_recipe(trained):
            run = seeds[0]
            speed, source = costs.speed(run)
            gigaflops = costs.training_flops(run) / 1e9
            row = {
                "recipe": run.name,
                "seeds": f"{[*map(state_of, seeds)].count('done')} of {len(seeds)}",
                "images": _millions(training_images(run)),
                "GFLOPs": f"{gigaflops:,.0f}" if gigaflops >= 1000 else f"{gigaflops:.3g}",
                "images/s": between(speed),
                "from": source,
                unit: between(self._time_of_a_training(run).times(1 / seconds)),
                "GPUs": self.catalog.resources(run).devices,
            }
            rows.append([*row.values()])
        title = (
            f"Trainings on {costs.device.title} (seeds done, training GFLOPs of an image, images/s "
            f"of one device, {unit} of one training on all its devices)"
        )
        table([*row], rows, ["images", "GFLOPs", "images/s", unit, "GPUs"], title)
        low, high = costs.device.sustained
        meaning = {
            "measured": "the median of trainings of this recipe on such a device",
            "the paper": "the hours that the paper prints for an A100, scaled by the peaks of both "
            "GPUs",
            "FLOPs": f"{low / 1e12:.3g} to {high / 1e12:.3g} TFLOP/s, divided by the training "
            f"FLOPs of an image ({costs.device.source})",
        }
        used = {source for _, source in (costs.speed(run) for run in trained)}
        told = (f'"{source}": {text}.' for source, text in meaning.items() if source in used)
        say("Where images/s come from:", *told, "")

    def _time_of_a_training(self, run: Run) -> Range:
        """Return the seconds of a run's training when all its devices work together."""
        return self.costs.seconds(run).times(1 / self.catalog.resources(run).devices)

    def _print_hours(self) -> None:
        if len(self.artifacts) > 1:
            first = "artifact"
            parts = [
                (artifact.target, self.catalog.runs_of(artifact)) for artifact in self.artifacts
            ]
        else:
            (artifact,) = self.artifacts
            first = artifact.row_header or "row"
            parts = [(row, runs_of_row(artifact, row, self.catalog)) for row in artifact.rows]
        rows = {name: training_work(used, self.costs) for name, used in parts if used}
        self._print_work("Training", (first, "runs"), rows, "total, each run once", self.training)
        if self.ours:
            hours = between(training_work(self.ours, self.costs).whole.times(1 / 3600))
            runs = count(len(self.ours), "run")
            rows_of_ours = f"rows that the papers lack: {runs}, {hours} hours"
            if self.catalog.scale.extensions:
                say(f"Of these are for {rows_of_ours}.", "")
            else:
                adds = "snakemake --config extensions=true adds them"
                say(f"Not counted are {rows_of_ours}; {adds}.", "")

    def _print_evaluations(self) -> None:
        priced, others = self.evaluations
        if priced:
            self._print_work("Evaluation", ("measure", "steps"), priced, "total", self.evaluation)
        if others:
            say(f"Not priced: {', '.join(others)}.", "")
        if self.costs.device.match == "cpu:":
            cores = usable_cores()
            shared = (self.training.left + self.evaluation.left).times(1 / cores)
            # A training has one core, so the longest may take more than a core's share.
            left = [self.costs.seconds(run).times(share_left(run)) for run in self.runs]
            time = Range(
                max(each.low for each in (shared, *left)),
                max(each.high for each in (shared, *left)),
            )
            say(
                f"Trainings and evaluations still to do, divided among the {cores} cores of this "
                f"machine: {between(time, duration)}. Benchmarks, drawing and the "
                "start of processes are not counted; the last two take seconds for each step.",
                "",
            )

    def _print_work(
        self, title: str, header: tuple[str, str], rows: dict[str, Work], total: str, sums: Work
    ) -> None:
        """Print the work of each part: in total, and still to do."""
        unit, seconds = _unit(sums.whole.high)
        lines = [
            [name, work.nodes]
            + [between(range_.times(1 / seconds)) for range_ in (work.whole, work.left)]
            for name, work in [*rows.items(), (total, sums)]
        ]
        columns = [*header, unit, "still to do"]
        table(columns, lines, columns[1:], f"{title} {unit} of one {self.costs.device.title}")

    def _print_disk(self) -> None:
        rows = [(what, where, size(number)) for what, where, number in self.disk]
        table(["what", "where", "size"], rows, ["size"], "Disk")
        if present := [need.info.name for need in self.datasets if need.state == "present"]:
            say(f"Datasets present: {', '.join(present)}.")
        for need in self.datasets:
            if need.state == "missing":
                say(f"Dataset missing: {need.fault}")

    def _print_too_long(self) -> None:
        """Print the jobs that may not fit into their time limits, by what to do about them."""
        heading("Jobs that may not fit into their time limits")
        jobs: dict[str, list[LongJob]] = defaultdict(list)
        for job in self.too_long:
            jobs[job.remedy].append(job)
        for remedy, similar in jobs.items():
            say(*(f"{job.name}: {job.takes}, limit {job.limit}" for job in similar))
            say(f"  {remedy[0].upper()}{remedy[1:]}.", "")
        if 0 < self.retries_needed <= self.retries:
            say(f"Trainings: the retries of {CONFIG}, {self.retries}, are enough.", "")
        elif self.retries_needed:
            say(
                f"Trainings: give Snakemake --retries {self.retries_needed}, or set retries: "
                f"{self.retries_needed} in {CONFIG} (it has {self.retries}); that is enough for "
                "all of them.",
                "",
            )

    @cached_property
    def too_long(self) -> list[LongJob]:
        """Return the jobs that may take longer than their time limits."""
        found = []
        for job in jobs_of(self.catalog, self.artifacts):
            resources = self.catalog.resources(job)
            if self._partitions and not suitable(self._partitions, resources):
                continue  # `without_room` reports it
            if isinstance(job, Run):
                seconds: Range | None = self._time_of_a_training(job)
            else:
                seconds = self.costs.evaluation_seconds(job)
            if seconds is None or (jobs := self._jobs(seconds.high, resources)) == 1:
                continue
            if isinstance(job, Run):
                remedy = self._more_jobs(job, jobs)
            else:
                remedy, jobs = self._more_time(job, math.ceil(seconds.high / 60)), 1
            on = count(resources.devices, "GPU") if resources.gpus else "the CPU"
            takes = f"{between(seconds, duration)} on {on}"
            minutes = self._limit(resources) / 60
            limit = duration(60 * minutes)
            if suited := [
                partition.name
                for partition in suitable(self._partitions, resources)
                if partition.limits.max_runtime >= minutes
            ]:
                limit += f" in {' or '.join(suited)}"
            found.append(LongJob(name_of(job), takes, limit, remedy, jobs))
        return found

    def _limit(self, asked: Resources) -> float:
        """Return the time limit, in seconds, of a job that asks for these resources."""
        return 60 * min(asked.runtime, longest(self._partitions, asked))

    def _jobs(self, seconds: float, asked: Resources) -> int:
        """Return how many jobs with these resources, one after the other, take so long."""
        return max(1, math.ceil(seconds / self._limit(asked)))

    @property
    def retries_needed(self) -> int:
        """Return the number of retries that the longest training may need."""
        return max((job.jobs - 1 for job in self.too_long), default=0)

    @cached_property
    def retries(self) -> int:
        """Return the number of retries that the profile slurm sets."""
        return read_profile(self.catalog.root).retries

    @cached_property
    def without_room(self) -> list[str]:
        """Return a sentence for each group of jobs with equal resources that fits no partition."""
        return without_room(self.catalog, self.artifacts)

    @cached_property
    def _partitions(self) -> list[Partition]:
        """Return the partitions of the profile slurm, which limit a job's time; [] on a CPU."""
        return partitions_of(self.catalog)

    def _more_time(self, measurement: Measurement, minutes: int) -> str:
        """Return the advice for an evaluation that may take so many minutes."""
        if minutes > longest(self._partitions, self.catalog.resources(measurement)):
            return f"a partition with a longer max_runtime is needed ({PARTITIONS})"
        recipe = measurement.on.name if measurement.on else "*"
        line = self._line(measurement.paper, recipe, f"evaluate: {{runtime: {minutes}}}")
        return f"give the recipe more time, in {line}"

    def _more_jobs(self, run: Run, jobs: int) -> str:
        """Return the advice for a training that may need so many jobs."""
        goes_on = f"training goes on from the checkpoints in up to {jobs} jobs"
        if jobs - 1 <= self.retries or (nodes := self._enough_nodes(run)) is None:
            return goes_on
        line = self._line(run.paper, run.name, f"train: {{nodes: {nodes}}}")
        return f"{goes_on}; the retries that are set are enough if it gets {nodes} nodes, in {line}"

    def _enough_nodes(self, run: Run) -> int | None:
        """Return the smallest larger number of nodes with which the profile's retries are enough.

        None if no number is, or if no partition has room for so many nodes.
        """
        asked = self.catalog.resources(run)
        seconds = self._time_of_a_training(run).high
        for nodes in more_nodes(run, asked):
            more = asked.model_copy(update={"nodes": nodes})
            jobs = self._jobs(seconds * asked.nodes / nodes, more)
            has_room = not self._partitions or suitable(self._partitions, more)
            if has_room and jobs - 1 <= self.retries:
                return nodes
        return None

    def _line(self, paper: str, recipe: str, resources: str) -> str:
        """Return the line that sets resources of a recipe's jobs, after the name of its file."""
        file = f"configs/papers/{paper}/scales/{self.catalog.scale.name}.yaml"
        return f'{file}: runs: {{"{recipe}": {{resources: {{{resources}}}}}}}'


def _unit(longest: float) -> tuple[str, int]:
    """Return the unit in which times up to `longest` seconds are printed, and its seconds."""
    return ("hours", 3600) if longest >= 2 * 3600 else ("minutes", 60)


def _millions(number: int) -> str:
    return f"{number / 1e6:,.3g} M" if number >= 1e6 else f"{number:,}"


def _number(value: float) -> str:
    if 0 < value < LEAST:
        return f"<{LEAST}"
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.2g}"


def between(range_: Range, write: Callable[[float], str] = _number) -> str:
    """Write a range; a single number if both bounds are written alike."""
    low, high = write(range_.low), write(range_.high)
    return low if low == high else f"{low} to {high}"
