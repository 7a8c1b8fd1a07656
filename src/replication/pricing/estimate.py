"""What `vitrail plan` prints of some artifacts: nodes, device hours, disk, and missing data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.filesize import decimal as size
from snakemake_executor_plugin_slurm.partitions import Partition

from replication.cluster.partition_file import PARTITIONS, PROFILE, longest, read_partitions
from replication.config.schema import read_mapping
from replication.cpu_limits import usable_cores
from replication.plan.catalog import Catalog
from replication.pricing.cost import (
    ZERO,
    Costs,
    Range,
    evaluation_seconds,
    keeps_rows,
    kept_bytes,
    training_images,
)
from replication.records.specs import Artifact, Measurement, Run, by_recipe
from replication.report.progress import (
    STATES,
    DatasetNeed,
    State,
    count_states,
    datasets_needed,
    is_rendered,
    share_left,
    state_of,
    training_state,
    weights_needed,
)
from vitrail.commands import count, heading, say, table
from vitrail.provenance import duration

LONG = 86400  # seconds: a training that takes longer may rather take several nodes
NODES = (1, 2, 4)
LEAST = 0.01  # smaller numbers are not told apart


def device_seconds(runs: Sequence[Run], costs: Costs) -> tuple[Range, Range]:
    """Seconds of one device to train some runs: in all, and still to do."""
    whole = left = ZERO
    for seeds in by_recipe(runs):
        seconds = costs.seconds(seeds[0])
        whole += seconds.times(len(seeds))
        left += seconds.times(sum(map(share_left, seeds)))
    return whole, left


Evaluations = tuple[int, Range, Range]
"""How many there are, seconds of one device for all, and for those still to do."""


def price_evaluations(
    measurements: Iterable[Measurement], costs: Costs
) -> tuple[dict[str, Evaluations], list[str]]:
    """What trained models' measures take, by name, and the names of those that have no price."""
    priced: dict[str, Evaluations] = {}
    others: dict[str, None] = {}
    for measurement in measurements:
        name, seconds = (
            f"{measurement.paper}/{measurement.name}",
            evaluation_seconds(measurement, costs),
        )
        if seconds is not None:
            number, whole, left = priced.get(name, (0, ZERO, ZERO))
            to_do = ZERO if measurement.path.is_file() else seconds
            priced[name] = number + 1, whole + seconds, left + to_do
        elif measurement.run:
            others[name] = None
    return priced, list(others)


def sum_evaluations(priced: Iterable[Evaluations]) -> Evaluations:
    """Add up the evaluations of several measures."""
    numbers, wholes, lefts = zip((0, ZERO, ZERO), *priced, strict=True)
    return sum(numbers), sum(wholes, ZERO), sum(lefts, ZERO)


def runs_of_row(artifact: Artifact, row: str, catalog: Catalog) -> tuple[Run, ...]:
    """The runs behind a row's cells, each once."""
    return catalog.runs_of(*(cell for cell in artifact.cells if cell.row == row))


@dataclass
class Estimate:
    """Some artifacts and the runs behind them, on one kind of device.

    `ours` are the runs of rows that the papers lack, which may be among these runs or not.
    """

    catalog: Catalog
    artifacts: Sequence[Artifact]
    runs: Sequence[Run]
    costs: Costs
    ours: Sequence[Run]

    @cached_property
    def measurements(self) -> list[Measurement]:
        """The measurements behind the artifacts, each once."""
        return [*self.catalog.measurements_of(*self.artifacts)]

    @cached_property
    def datasets(self) -> list[DatasetNeed]:
        """The datasets that the artifacts need."""
        return datasets_needed(self.artifacts, self.catalog)

    @cached_property
    def evaluations(self) -> tuple[dict[str, Evaluations], list[str]]:
        """The evaluations behind the artifacts, as `price_evaluations` gives them."""
        return price_evaluations(self.measurements, self.costs)

    def nodes(self) -> dict[str, dict[State, int]]:
        """How many nodes of each step are in which state."""

        def states(done: Iterable[bool]) -> list[State]:
            return ["done" if finished else "missing" for finished in done]

        steps: dict[str, list[State]] = {
            "train": [*map(training_state, self.runs)],
            "evaluate": states(m.path.is_file() for m in self.measurements if m.run),
            "benchmark": states(m.path.is_file() for m in self.measurements if not m.run),
            "render": states(is_rendered(artifact, self.catalog) for artifact in self.artifacts),
        }
        return {step: count_states(found) for step, found in steps.items()}

    @property
    def submissions(self) -> int:
        """How many jobs the profile slurm submits for what is not done; rendering is local."""
        nodes = self.nodes()
        submitted = [nodes[step] for step in ("train", "evaluate", "benchmark")]
        return sum(sum(states.values()) - states["done"] for states in submitted)

    def figures(self) -> dict[str, Any]:
        """What the tables tell: hours are pairs of bounds."""

        def hours(all_: Range, to_do: Range) -> dict[str, Any]:
            return {"all": all_.hours, "to_do": to_do.hours}

        evaluation_hours = hours(*sum_evaluations(self.evaluations[0].values())[1:])
        return {
            "nodes": self.nodes(),
            "submissions": self.submissions,
            "training_hours": hours(*device_seconds(self.runs, self.costs)),
            "training_hours_of_ours": {
                "all": device_seconds(self.ours, self.costs)[0].hours,
                "counted": self.catalog.scale.extensions,
            },
            "evaluation_hours": {**evaluation_hours, "not_priced": self.evaluations[1]},
            "over_time_limit": self.too_long,
            "datasets": {need.info.name: need.state for need in self.datasets},
        }

    def print_all(self) -> None:
        """Print nodes, trainings, days on several machines, hours, evaluations, and disk."""
        self._print_nodes()
        self._print_trainings()
        self._print_days()
        self._print_hours()
        self._print_evaluations()
        self._print_limits()
        self._print_disk()

    def _print_nodes(self) -> None:
        title = "Nodes (by the files that exist; snakemake -n says which of them are out of date)"
        rows = [[step, *states.values()] for step, states in self.nodes().items()]
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
        any_printed = any(costs.printed(run) for run in trained)
        unit, seconds = _unit(max(self._time_of_a_training(run).high for run in trained))
        rows, sources = [], set()
        for seeds in by_recipe(trained):
            run = seeds[0]
            speed, source = costs.speed(run)
            gigaflops = costs.training_flops(run) / 1e9
            done = [*map(state_of, seeds)].count("done")
            printed = costs.printed(run)
            hours = between(printed.times(1 / 3600)) if printed else "-"
            row = {
                "recipe": run.name,
                "seeds": f"{done} of {len(seeds)}",
                **({"printed": hours} if any_printed else {}),
                "images": _millions(training_images(run)),
                "GFLOPs": f"{gigaflops:,.0f}" if gigaflops >= 1000 else f"{gigaflops:.3g}",
                "images/s": between(speed),
                "from": source,
                unit: between(self._time_of_a_training(run).times(1 / seconds)),
                "GPUs": self.catalog.resources(run).devices,
            }
            rows.append([*row.values()])
            sources.add(source)
        title = (
            f"Trainings on {costs.device.title} (seeds done, GFLOPs of an image, images/s of one "
            f"device, {unit} of one training on all its devices)"
        )
        table([*row], rows, ["images", "GFLOPs", "images/s", unit, "GPUs"], title)
        if any_printed:
            say("printed: the paper's A100 hours of a seed's training, of all GPUs together.")
        if "the paper" in sources:
            say(
                "the paper: what it says that its trainings took, where the recipe is its own; on "
                "another device by the peaks of the data sheets."
            )
        if "FLOPs" in sources:
            say(f"FLOPs: {self._rate()}. Source: {costs.device.source}.")
        if "its logs" in sources:
            say("its logs: the median in log.jsonl of the recipe's own runs on such a device.")
        if "published" in sources:
            say("published: the speed of the recipe's published training on such a device.")
        say("")

    def _print_days(self) -> None:
        """Print what several machines would make of trainings that take over a day on one."""
        rows = []
        for run, *_ in by_recipe(self.runs):
            resources = self.catalog.resources(run)
            times = []
            for nodes in NODES:
                gpus = resources.model_copy(update={"nodes": nodes}).devices
                shared = run.recipe.batch.parts % gpus == 0
                times.append(self.costs.seconds(run).times(1 / gpus) if shared else None)
            if times[0] and times[0].high > LONG:
                days = [between(time.times(1 / 86400)) if time else "-" for time in times]
                rows.append([run.name, max(1, resources.gpus), *days])
        if rows:
            title = "Days of a training on several machines (resources: {train: {nodes: N}})"
            columns = ["GPUs each", *(count(nodes, "node") for nodes in NODES)]
            table(["recipe", *columns], rows, columns, title)
            say("Computed from the speed of one GPU; communication between GPUs adds to it.", "")

    def _time_of_a_training(self, run: Run) -> Range:
        """Seconds of all devices of a run together for its training."""
        return self.costs.seconds(run).times(1 / self.catalog.resources(run).devices)

    @cached_property
    def too_long(self) -> list[str]:
        """A sentence for each training and measurement that may take longer than its time limit."""
        times: list[tuple[Run | Measurement, Range | None]] = [
            *((run, self._time_of_a_training(run)) for run, *_ in by_recipe(self.runs)),
            *((taken, evaluation_seconds(taken, self.costs)) for taken in self._first_seeds),
        ]
        sentences = []
        for node, seconds in times:
            resources = self.catalog.resources(node)
            limit = 60 * min(resources.runtime, longest(self._partitions, resources.gpus))
            if seconds is None or seconds.high <= limit:
                continue
            if isinstance(node, Run):
                what, jobs = node.name, math.ceil(seconds.high / limit)
                retries = self._retries(jobs, "the training more nodes")
                remedy = f"it goes on from its checkpoints in up to {jobs} jobs; {retries}"
            else:
                what = f"{node.name} of {node.on.name}" if node.on else node.name
                longer = self._more_time(node, math.ceil(seconds.high / 60))
                remedy = f"give {longer}"
                if keeps_rows(node.function):
                    jobs = math.ceil(seconds.high / limit)
                    retries = self._retries(jobs, longer)
                    remedy = (
                        f"it goes on from the rows that it keeps in up to {jobs} jobs; {retries}"
                    )
            on = count(resources.devices, "GPU") if resources.gpus else "the CPU"
            sentences.append(
                f"{node.paper}/{what} takes {between(seconds, duration)} on {on}, and its time "
                f"limit is {duration(limit)}: {remedy}."
            )
        return sentences

    @property
    def _first_seeds(self) -> list[Measurement]:
        """Of the measurements that differ only by their seed the first."""
        cells = (cell for artifact in self.artifacts for cell in artifact.cells)
        taken = (self.catalog.measurement_of(cell) for cell in cells)
        return [*dict.fromkeys(filter(None, taken))]

    @cached_property
    def _partitions(self) -> list[Partition]:
        """The partitions of the profile slurm, by which a job's time is cut; none on a CPU."""
        file = self.catalog.root / PARTITIONS
        if self.catalog.scale.device == "cpu" or not file.is_file():
            return []
        return read_partitions(file)

    def _more_time(self, measurement: Measurement, minutes: int) -> str:
        """What to give an evaluation that may take so many minutes."""
        if minutes > longest(self._partitions, self.catalog.resources(measurement).gpus):
            return f"it a partition with a longer max_runtime ({PARTITIONS})"
        recipe = measurement.on.name if measurement.on else "*"
        line = f'runs: {{"{recipe}": {{resources: {{evaluate: {{runtime: {minutes}}}}}}}}}'
        scale = f"configs/papers/{measurement.paper}/scales/{self.catalog.scale.name}.yaml"
        return f"its recipe more time, in {scale}: {line}"

    def _retries(self, jobs: int, instead: str) -> str:
        """How to let a node take so many jobs, or what to give `instead`, for one or fewer."""
        profile = self.catalog.root / PROFILE / "config.yaml"
        allowed = read_mapping(profile).get("retries", 0) if profile.is_file() else 0
        if jobs - 1 <= allowed:
            return f"the profile's retries: {allowed} are enough"
        return f"give Snakemake --retries {jobs - 1} (the profile has {allowed}), or {instead}"

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
        rows = [
            (name, len(used), *device_seconds(used, self.costs))
            for name, used in [*parts, ("total, each run once", self.runs)]
        ]
        self._print_times("Training {} of one {}", (first, "runs"), rows)
        if self.ours:
            hours = between(device_seconds(self.ours, self.costs)[0].times(1 / 3600))
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
            rows = [(name, *hours) for name, hours in priced.items()]
            rows.append(("total", *sum_evaluations(priced.values())))
            title = "Evaluation {} of one {} (benchmarks not counted)"
            self._print_times(title, ("measure", "nodes"), rows)
            say(
                "Computed from the forward passes over images, for a probe also over those that it "
                "learns from. Lower bound: their FLOPs at the device's highest rate. Upper bound: "
                "as long as a training with as many images at its lowest rate."
            )
        if others:
            say(f"Not priced: {', '.join(others)}.")
        if self.costs.device.match == "cpu:":
            cores = usable_cores()
            left = device_seconds(self.runs, self.costs)[1] + sum_evaluations(priced.values())[2]
            told = between(left.times(1 / cores), duration)
            say(
                f"Trainings and evaluations still to do, divided among the {cores} cores of this "
                f"machine: {told}. Benchmarks, drawing and the start of processes are not counted.",
                "",
            )
        elif priced or others:
            say("")

    def _print_limits(self) -> None:
        if self.too_long:
            heading("Jobs that may not fit into their time limits")
            say(*self.too_long, "")

    def _print_times(
        self, title: str, header: tuple[str, str], rows: Sequence[tuple[str, int, Range, Range]]
    ) -> None:
        """Print what parts take in all and what is still to do; the last row has the sums."""
        unit, seconds = _unit(rows[-1][2].high)
        lines = [
            [name, number, *(between(bounds.times(1 / seconds)) for bounds in both)]
            for name, number, *both in rows
        ]
        columns = [*header, unit, "still to do"]
        table(columns, lines, columns[1:], title.format(unit, self.costs.device.title))

    def _print_disk(self) -> None:
        costs, runs_root = self.costs, self.catalog.runs_root
        missing = [run for run in self.runs if state_of(run) != "done"]
        weights = sum(costs.weights_bytes(run) for run in missing)
        checkpoints = max((costs.checkpoints_bytes(run) for run in missing), default=0)
        under_way = "checkpoints, at most, of each training under way"
        rows: list[list[object]] = [
            ["weights still to be written", runs_root, size(weights)],
            [under_way, runs_root, size(checkpoints)],
        ]
        waiting = [m for m in self.measurements if not m.path.is_file()]
        if kept := sum(kept_bytes(measurement, costs) for measurement in waiting):
            rows.append(["features that probes will keep, at most", runs_root, size(kept)])
        # Two datasets of one folder are made of the same files.
        downloads = {
            need.info.folder: need for need in self.datasets if need.state == "to download"
        }
        for folder, need in downloads.items():
            where = self.catalog.data_root / folder
            rows.append([f"download of {need.info.name}", where, size(need.download_bytes)])
        sizes = {run.recipe.model.published: costs.weights_bytes(run) for run in self.runs}
        for published in weights_needed(self.artifacts, self.catalog):
            if not published.path.is_file():
                what = f"published weights of {published.path.stem}"
                rows.append([what, published.path.parent, size(sizes[published.model])])
        table(["what", "where", "size"], rows, ["size"], "Disk")
        if present := [need.info.name for need in self.datasets if need.state == "present"]:
            say(f"Datasets present: {', '.join(present)}.")
        for need in self.datasets:
            if need.state == "missing":
                say(f"Dataset missing: {need.fault}")

    def _rate(self) -> str:
        low, high = self.costs.device.sustained
        rates = f"{low / 1e12:.3g} to {high / 1e12:.3g} TFLOP/s"
        text = f"the FLOPs of the passes of a step, divided by {rates}"
        if peak := self.costs.device.peak:
            share = f"{100 * low / peak:.2g} to {100 * high / peak:.2g} %"
            text += f" ({share} of the {peak / 1e12:.0f} TFLOP/s of the data sheet)"
        return text


def _unit(longest: float) -> tuple[str, int]:
    """The unit in which times of up to so many seconds are told, and its seconds."""
    return ("hours", 3600) if longest >= 2 * 3600 else ("minutes", 60)


def _millions(number: int) -> str:
    return f"{number / 1e6:,.3g} M" if number >= 1e6 else f"{number:,}"


def _number(value: float) -> str:
    if 0 < value < LEAST:
        return f"<{LEAST}"
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.2g}"


def between(range_: Range, write: Callable[[float], str] = _number) -> str:
    """Write a range, or a number if its bounds are written alike."""
    low, high = write(range_.low), write(range_.high)
    return low if low == high else f"{low} to {high}"
