"""``vitrine plan``: what a target will take, before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.filesize import decimal as size

from vitrine.commands import count, heading, say, table
from vitrine.commands.cost import ZERO, Costs, Range, load_devices, training_images
from vitrine.commands.needs import datasets_needed, weights_needed
from vitrine.commands.passes import evaluation_seconds
from vitrine.commands.state import (
    STATES,
    State,
    count_states,
    is_rendered,
    job_state,
    runs_behind,
    share_left,
    state_of,
)
from vitrine.errors import require_known
from vitrine.plan.catalog import Artifact, Catalog, Measurement, Run, with_sources
from vitrine.plan.settings import Resources
from vitrine.provenance import duration

# The papers trained on A100s.
ASSUMED_DEVICE = {"cpu": "cpu", "cuda": "a100"}
LONG = 86400  # seconds: a job that takes longer may rather take several nodes
NODES = (1, 2, 4)
DONE_OR_MISSING: dict[bool, State] = {True: "done", False: "missing"}


def plan(
    catalog: Catalog, targets: Sequence[str], device: str | None = None, *, as_json: bool = False
) -> None:
    """Print jobs, GPU hours, disk and missing data of some targets; or the figures as JSON.

    The hours are of one `device`, by default the scale's.

    Raises:
        VitrineError: no target or device is called so.
    """
    named = [one for target in targets for one in catalog.target(target).artifacts]
    artifacts = list({(one.paper, one.name): one for one in named}.values())
    runs = runs_behind(artifacts)
    devices = load_devices(catalog.root)
    name = device or ASSUMED_DEVICE[catalog.scale.device]
    require_known("device", name, devices)
    costs = Costs(catalog, devices[name])
    if as_json:
        figures = _figures(catalog, artifacts, runs, costs)
        asked = {"targets": list(targets), "scale": catalog.scale.name, "device": name}
        say(json.dumps({**asked, **figures}, indent=2))
        return
    say(f"{', '.join(targets)} at scale {catalog.scale.name}: {catalog.scale.description}")
    say()
    _print_jobs(catalog, artifacts, runs)
    _print_trainings(catalog, runs, costs)
    _print_nodes(catalog, runs, costs)
    _print_hours(artifacts, runs, costs)
    _print_evaluations(artifacts, costs)
    _print_disk(catalog, artifacts, runs, costs)


def device_seconds(runs: Sequence[Run], costs: Costs) -> tuple[Range, Range]:
    """Seconds of one device to train all seeds of some runs: in all, and still to do."""
    whole = left = ZERO
    for run in runs:
        seconds = costs.seconds(run, training_images(run))
        whole += seconds.times(len(run.seeds))
        left += seconds.times(sum(share_left(run, seed) for seed in run.seeds))
    return whole, left


def evaluations_behind(artifacts: Iterable[Artifact]) -> list[Measurement]:
    """The measurements of trained models behind some artifacts, each once."""
    measurements = {m.path: m for artifact in artifacts for m in artifact.measurements}
    return [one for one in measurements.values() if one.run]


def evaluation_costs(
    artifacts: Iterable[Artifact], costs: Costs
) -> tuple[dict[str, tuple[int, Range, Range]], list[str]]:
    """What the evaluations behind some artifacts take, by paper and measure.

    Returns:
        how many there are, the seconds of one device for all, and for those still to do; and the
        measures that cannot be priced.
    """
    priced: dict[str, tuple[int, Range, Range]] = {}
    others: dict[str, None] = {}
    for one in evaluations_behind(artifacts):
        name = f"{one.paper}/{one.name}"
        seconds = evaluation_seconds(one, costs)
        if seconds is None:
            others[name] = None
            continue
        number, whole, left = priced.get(name, (0, ZERO, ZERO))
        to_do = ZERO if one.path.is_file() else seconds
        priced[name] = number + 1, whole + seconds, left + to_do
    return priced, list(others)


def _figures(
    catalog: Catalog, artifacts: Sequence[Artifact], runs: Sequence[Run], costs: Costs
) -> dict[str, Any]:
    """What the tables tell: hours are pairs of bounds."""

    def hours(seconds: Range) -> list[float]:
        return [seconds.low / 3600, seconds.high / 3600]

    priced, others = evaluation_costs(artifacts, costs)
    whole = sum((seconds for _, seconds, _ in priced.values()), ZERO)
    left = sum((seconds for _, _, seconds in priced.values()), ZERO)
    return {
        "jobs": _jobs(catalog, artifacts, runs),
        "training_hours": dict(
            zip(("all", "to_do"), map(hours, device_seconds(runs, costs)), strict=True)
        ),
        "evaluation_hours": {
            "all": hours(whole),
            "to_do": hours(left),
            "not_priced": others,
        },
        "datasets": {need.info.name: need.state for need in datasets_needed(artifacts, catalog)},
    }


def _jobs(
    catalog: Catalog, artifacts: Sequence[Artifact], runs: Sequence[Run]
) -> dict[str, dict[State, int]]:
    """How many jobs of each step are in which state."""
    measurements = {m.path: m for artifact in artifacts for m in artifact.measurements}.values()
    steps: dict[str, list[State]] = {
        "train": [job_state(run, seeds) for run in runs for seeds in run.jobs],
        "evaluate": [DONE_OR_MISSING[m.path.is_file()] for m in measurements if m.run],
        "benchmark": [DONE_OR_MISSING[m.path.is_file()] for m in measurements if not m.run],
        "render": [DONE_OR_MISSING[is_rendered(artifact, catalog)] for artifact in artifacts],
    }
    return {step: count_states(states) for step, states in steps.items()}


def _print_jobs(catalog: Catalog, artifacts: Sequence[Artifact], runs: Sequence[Run]) -> None:
    counted = _jobs(catalog, artifacts, runs)
    heading("Jobs (by the files that exist; snakemake -n says which of them are out of date)")
    rows = [[step, *(states[state] for state in STATES)] for step, states in counted.items()]
    table(["step", *STATES], rows, right=STATES)


def _print_trainings(catalog: Catalog, runs: Sequence[Run], costs: Costs) -> None:
    trained = [run for run in runs if training_images(run)]
    if untrained := len(runs) - len(trained):
        say(f"{count(untrained, 'run')} of zero epochs: nothing to train, weights as they come.")
        say()
    if not trained:
        return
    heading(f"Trainings on {costs.device.title}")
    rows = []
    for run in trained:
        speed = costs.speed(run)
        gpus = _gpus(catalog.resources(run))
        one = costs.seconds(run, training_images(run)).times(1 / gpus)
        states = count_states(state_of(run, seed) for seed in run.seeds)
        row = {
            "recipe": run.name,
            "seeds": ", ".join(f"{number} {state}" for state, number in states.items() if number),
            "images": f"{training_images(run):,}",
            "GFLOPs/image": f"{costs.training_flops(run) / 1e9:.3g}",
            "images/s": _between(speed.images),
            "from": speed.source,
            "time of a job": f"{_between(one.times(max(map(len, run.jobs))), duration)} on {gpus}",
        }
        rows.append(list(row.values()))
    table(list(row), rows, right=["images", "GFLOPs/image", "images/s"])
    sources = {costs.speed(run).source for run in trained}
    if "FLOPs" in sources:
        say(f"FLOPs: {_rate(costs)}. Source: {costs.device.source}.")
    if "its logs" in sources:
        say("its logs: the median in log.jsonl of the recipe's own runs on such a device.")
    say()


def _print_nodes(catalog: Catalog, runs: Sequence[Run], costs: Costs) -> None:
    """Print what several nodes would make of the jobs that take longer than a day on one."""
    rows = []
    for run in runs:
        batch, resources = run.recipe.batch, catalog.resources(run)
        whole = costs.seconds(run, training_images(run)).times(max(map(len, run.jobs)))
        times = []
        for nodes in NODES:
            gpus = _gpus(resources.model_copy(update={"nodes": nodes}))
            shared = batch.size // getattr(batch, "micro", 1) % gpus == 0
            times.append(whole.times(1 / gpus) if shared else None)
        if times[0] and times[0].high > LONG:
            days = [_between(one.times(1 / 86400)) if one else "-" for one in times]
            rows.append([run.name, max(1, resources.gpus), *days])
    if rows:
        heading("Days of a job on several nodes (resources: {train: {nodes: N}})")
        columns = [f"{nodes} node{'s' * (nodes > 1)}" for nodes in NODES]
        table(["recipe", "GPUs each", *columns], rows, right=["GPUs each", *columns])
        say("As the speed of one GPU has it: what they tell each other takes time, too.")
        say()


def _gpus(resources: Resources) -> int:
    return resources.nodes * max(1, resources.gpus)


def _print_hours(artifacts: Sequence[Artifact], runs: Sequence[Run], costs: Costs) -> None:
    whole, _ = device_seconds(runs, costs)
    unit, seconds = ("hours", 3600) if whole.high >= 2 * 3600 else ("minutes", 60)
    heading(f"Training {unit} of one {costs.device.title}")
    if len(artifacts) > 1:
        first = "artifact"
        parts = [(f"{one.paper}_{one.name}", one.runs) for one in artifacts]
    else:
        first = artifacts[0].row_header or "row"
        parts = [(row, runs_of_row(artifacts[0], row)) for row in artifacts[0].rows]
    rows: list[list[object]] = []
    for name, used in [*parts, ("total, shared runs counted once", runs)]:
        both = (_between(range_.times(1 / seconds)) for range_ in device_seconds(used, costs))
        rows.append([name, sum(len(run.seeds) for run in used), *both])
    table([first, "runs", unit, "still to do"], rows, right=["runs", unit, "still to do"])


def _print_evaluations(artifacts: Sequence[Artifact], costs: Costs) -> None:
    priced, others = evaluation_costs(artifacts, costs)
    if priced:
        whole = sum((seconds for _, seconds, _ in priced.values()), ZERO)
        unit, divisor = ("hours", 3600) if whole.high >= 2 * 3600 else ("minutes", 60)
        heading(f"Evaluation {unit} of one {costs.device.title} (benchmarks not counted)")
        left = sum((seconds for _, _, seconds in priced.values()), ZERO)
        number = sum(number for number, _, _ in priced.values())
        rows: list[list[object]] = [
            [name, jobs, *(_between(one.times(1 / divisor)) for one in both)]
            for name, (jobs, *both) in {**priced, "total": (number, whole, left)}.items()
        ]
        table(["measure", "jobs", unit, "still to do"], rows, right=["jobs", unit, "still to do"])
        say(
            "Forward passes over the validation images: from their FLOPs at the device's fastest "
            "rate, to the time of a training on as many images at its slowest."
        )
    if others:
        say(f"Not priced: {', '.join(others)}.")
    if priced or others:
        say()


def runs_of_row(artifact: Artifact, row: str) -> tuple[Run, ...]:
    """The runs behind a row's cells, each once."""
    cells = [cell for cell in artifact.cells if cell.row == row]
    runs = [cell.measurement.run for cell in cells if cell.measurement]
    return with_sources(filter(None, runs))


def _print_disk(
    catalog: Catalog, artifacts: Sequence[Artifact], runs: Sequence[Run], costs: Costs
) -> None:
    heading("Disk")
    missing = [run for run in runs for seed in run.seeds if state_of(run, seed) != "done"]
    weights = sum(costs.weights_bytes(run) for run in missing)
    checkpoints = max((costs.checkpoints_bytes(run) for run in missing), default=0)
    under_way = "checkpoints, at most, of each training under way"
    rows: list[list[object]] = [
        ["weights still to be written", catalog.runs_root, size(weights)],
        [under_way, catalog.runs_root, size(checkpoints)],
    ]
    datasets = datasets_needed(artifacts, catalog)
    # Two datasets of one folder are made of the same files.
    downloads = {need.info.folder: need for need in datasets if need.state == "to download"}
    for folder, need in downloads.items():
        what = f"download of {need.info.name}"
        rows.append([what, catalog.data_root / folder, size(need.download_bytes)])
    sizes = {run.recipe.model.published: costs.weights_bytes(run) for run in runs}
    for published in weights_needed(artifacts, catalog):
        if not published.path.is_file():
            what = f"published weights of {published.path.stem}"
            rows.append([what, published.path, size(sizes[published.model])])
    table(["what", "where", "size"], rows, right=["size"])
    if present := [need.info.name for need in datasets if need.state == "present"]:
        say(f"Datasets present: {', '.join(present)}.")
    for need in datasets:
        if need.state == "missing":
            say(f"Dataset missing: {need.fault}")


def _rate(costs: Costs) -> str:
    low, high = costs.device.sustained
    text = f"3 x forward over {low / 1e12:.3g} to {high / 1e12:.3g} TFLOP/s"
    if peak := costs.device.peak:
        share = f"{100 * low / peak:.2g} to {100 * high / peak:.2g} %"
        text += f" ({share} of the {peak / 1e12:.0f} TFLOP/s of the data sheet)"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.2g}"


def _between(range_: Range, write: Callable[[float], str] = _number) -> str:
    low, high = write(range_.low), write(range_.high)
    return low if low == high else f"{low} to {high}"
