"""What a change of one recipe would make due, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from replication.commands.cost import Range, costs_on
from replication.commands.estimate import (
    between,
    device_seconds,
    price_evaluations,
    sum_evaluations,
)
from replication.commands.origins import NamedCell, tell
from replication.commands.recipes import line_of_yaml, places
from replication.commands.state import training_state
from replication.plan.catalog import Catalog
from replication.plan.kinds import parse_recipe
from replication.plan.parts import Run
from replication.plan.schema import Placed, merge, parse_yaml, read_mapping, read_with_bases
from vitrail.commands import count, heading, say
from vitrail.errors import VitrailError


def price_changes(
    named: NamedCell, catalog: Catalog, changes: Sequence[str], device: str | None
) -> dict[str, Any]:
    """Compare the plan with the one in which the cell's recipe has other values at this scale.

    Due are the nodes of the changed plan that this plan does not have and that are not done; hours
    are pairs of bounds, of one device.

    Raises:
        VitrailError: the cell measures no recipe of the scale, a field is unknown, or a value is
            wrong.
    """
    measurement = named.cell.measurement
    if measurement is None or measurement.on is None or named.recipe is None:
        raise VitrailError(
            f"{named.target}: cell ({named.cell.row}, {named.cell.column}) measures no recipe; "
            "name another, or leave --set out"
        )
    paper = catalog.paper(measurement.paper)
    if paper.artifacts_file.measures[measurement.name].on == "paper":
        raise VitrailError(
            f"measure '{measurement.name}' is of the recipe as the paper has it, and --set changes "
            "it at this scale only; name another cell, or leave --set out"
        )
    values = read_changes(changes)
    here = measurement.on.recipe.model_dump(mode="json")
    parse_recipe(merge(here, values), f"{paper.recipes_path}, recipe '{named.recipe}'")
    changed = catalog.changed(measurement.paper, named.recipe, values)

    runs = [changed.runs[path] for path in changed.runs.keys() - catalog.runs.keys()]
    runs = sorted(filter(_is_due, runs), key=lambda run: run.folder)
    new = changed.measurements.keys() - catalog.measurements.keys()
    measurements = [changed.measurements[path] for path in sorted(new) if not path.is_file()]
    artifacts = [
        artifact.target
        for path, artifact in changed.renderings.items()
        if path not in catalog.renderings
        or changed.node(path).identity != catalog.node(path).identity
    ]
    name, costs = costs_on(catalog, device)
    priced, others = price_evaluations(measurements, costs)
    others += dict.fromkeys(
        f"{measurement.paper}/{measurement.name}"
        for measurement in measurements
        if not measurement.run
    )
    was, becomes = (
        plan.paper(measurement.paper).recipe(named.recipe).shown() for plan in (catalog, changed)
    )
    return {
        "recipe": named.recipe,
        "set": {
            ".".join(keys): [_value_at(keys, was), _value_at(keys, becomes)]
            for keys, _, _ in places(values, values)
        },
        "to_write": _to_write(named.recipe, values, paper.folder / "scales", catalog.scale.name),
        "runs": {str(run.folder): list(run.seeds) for run in runs},
        "measurements": len(measurements),
        "artifacts": artifacts,
        "device": name,
        "device_title": costs.device.title,
        "training_hours": device_seconds(runs, costs)[1].hours,
        "evaluation_hours": sum_evaluations(priced.values())[2].hours,
        "not_priced": others,
    }


def read_changes(changes: Iterable[str]) -> Placed:
    """Read ``schedule.epochs=2`` and the like as values of a recipe.

    Raises:
        VitrailError: one has no field or no "=", its value is no YAML, or two contradict.
    """
    values = Placed({}, {})
    for change in changes:
        field, equals, written = change.partition("=")
        keys, place = field.strip().split("."), f"--set {change}"
        if not equals or not all(keys):
            raise VitrailError(f"{place}: write a field and its value, such as schedule.epochs=2")
        value = parse_yaml(written, place)
        for key in reversed(keys):
            value = Placed({key: value}, {key: place})
        values = merge(values, value)
    return values


def print_changes(change: Mapping[str, Any]) -> None:
    """Print what `price_changes` has found."""
    say("")
    settings = (f"{field} {old} -> {new}" for field, (old, new) in change["set"].items())
    heading(f"Recipe {change['recipe']} with {', '.join(settings)}")
    if not change["runs"] and not change["measurements"] and not change["artifacts"]:
        tell("due", "nothing")
        return
    due = [f"{run}, {count(len(seeds), 'seed')}" for run, seeds in change["runs"].items()]
    due.append(count(change["measurements"], "measurement"))
    due.append(f"{count(len(change['artifacts']), 'artifact')}: {', '.join(change['artifacts'])}")
    for number, line in enumerate(due):
        tell("" if number else "due", line)
    write = change["to_write"]
    tell("to do it", f"{write['where']} {write['file']}:")
    for line in write["lines"]:
        tell("", line)
    if write["also"]:
        tell("", f"Scales that extend this file change, too: {', '.join(write['also'])}.")
    for name in ("training", "evaluation"):
        low, high = change[f"{name}_hours"]
        unit, parts = ("hours", 1) if high >= 2 else ("minutes", 60)
        if high:
            time = between(Range(low, high).times(parts))
            tell(name, f"{time} {unit} of one {change['device_title']}")
    if change["not_priced"]:
        tell("not priced", ", ".join(change["not_priced"]))


def _to_write(recipe: str, values: Placed, folder: Path, scale: str) -> dict[str, Any]:
    """What an editor has to do for a recipe to have other values at a scale.

    The `lines`, the `file` that they belong in, `where` there, and the scales that change `also`.
    """
    file = folder / f"{scale}.yaml"
    written = read_mapping(file) if file.is_file() else {}
    known, line = written.get("recipes") or {}, line_of_yaml(recipe, values)
    if not known:
        where, lines = "write at the end of", ["recipes:", f"  {line}"]
    elif recipe in known:
        where = f"write into the entry '{recipe}' under recipes: in"
        lines = [line_of_yaml(key, value) for key, value in values.items()]
    else:
        where, lines = "write as the last line under recipes: in", [line]
    also = [
        other.stem
        for other in sorted(folder.glob("[!_]*.yaml"))
        if other != file and file in read_with_bases(other)
    ]
    return {"file": str(file), "where": where, "lines": lines, "also": also}


def _value_at(keys: Iterable[str], values: Any) -> Any:
    """The value under nested keys, None where there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _is_due(run: Run) -> bool:
    return any(training_state(run, seeds) != "done" for seeds in run.trainings)
