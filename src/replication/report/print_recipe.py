"""Print a recipe at a scale, for `vitrail show --recipe`, with the line that sets each value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from replication.config.schema import as_yaml, place_of
from replication.plan.catalog import Catalog
from vitrail.commands import say
from vitrail.errors import VitrailError, did_you_mean

DEFAULT = "default"  # the place of a value that no file sets


def print_recipe(catalog: Catalog, name: str, why: bool) -> None:
    """Print a recipe, given as [PAPER/]RECIPE or by the folder of its runs.

    With `why`, each value is followed by the file and line that set it.

    Raises:
        VitrailError: there is no such recipe, or several papers have one.
    """
    paper, _, recipe = name.rpartition("/")
    known = {
        (of_paper, name): catalog.paper(of_paper).run(name)
        for of_paper in sorted(catalog.papers)
        for name in catalog.paper(of_paper).recipes
        if not paper or of_paper == paper
    }
    # Recipes that share a run are found by their own names and by the name of the run's folder.
    found = {
        other: (called if recipe == called else run.name, run)
        for (other, called), run in known.items()
        if recipe in (called, run.home.name)
    }
    if not found:
        names = [f"{other}/{called}" if paper else called for other, called in known]
        raise VitrailError(
            f"scale '{catalog.scale.name}' has no recipe '{name}'{did_you_mean(name, names)}"
        )
    if len(found) > 1:
        names = [f"{name}/{called}" for name, (called, _) in found.items()]
        raise VitrailError(f"several papers have a recipe '{name}': name {' or '.join(names)}")
    called, run = next(iter(found.values()))
    say(f"# {run.paper}, recipe {called} at scale {catalog.scale.name}: {run.home}")
    values = run.recipe.shown()
    if not why:
        say(as_yaml(values).rstrip())
        return
    for line, place in _explained(values, catalog.paper(run.paper).values(called)):
        say(f"{line:<40}  # {place}" if place else line)


def places(
    values: Mapping[str, Any], written: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield each value of a recipe with its keys, and the file and line that set it.

    `written` are the values with their places; `above` are the keys above them. The place of a
    value that no file sets is `DEFAULT`.
    """
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from places(value, written.get(key) or {}, (*above, key))
        else:
            yield (*above, key), value, place_of(written, key) or DEFAULT


def line_of_yaml(key: str, value: Any) -> str:
    """Return a key and its value as one line of YAML."""
    line = as_yaml({key: value}, default_flow_style=True, width=math.inf)
    return line.strip()[1:-1]


def _explained(values: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each line of a recipe in YAML with the place that set it; "" for a heading."""
    above: tuple[str, ...] = ()
    for keys, value, place in places(values, written):
        for depth, key in enumerate(keys[:-1]):
            if keys[: depth + 1] != above[: depth + 1]:
                yield f"{'  ' * depth}{as_yaml(key).splitlines()[0]}:", ""
        above = keys[:-1]
        yield f"{'  ' * len(above)}{line_of_yaml(keys[-1], value)}", place
