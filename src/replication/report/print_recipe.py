"""A recipe as `vitrail show --recipe` prints it: as it resolves, and which line sets each value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from replication.config.schema import as_yaml, place_of
from replication.plan.catalog import Catalog
from vitrail.commands import count, say
from vitrail.errors import VitrailError, did_you_mean

DEFAULT = "default"  # the place of a value that nobody wrote
NAMED = 3  # recipes that are named of those that a line sets, too


def print_recipe(catalog: Catalog, target: str | None, name: str, why: bool) -> None:
    """Print a recipe of the target's papers, or of any, named [PAPER/]RECIPE or by its folder.

    With `why`, the line that sets it stands beside each value, and below, for each of these lines,
    which other recipes it sets.

    Raises:
        VitrailError: there is no such recipe, or several papers have one.
    """
    paper, _, recipe = name.rpartition("/")
    papers = (
        {artifact.paper for artifact in catalog.target(target).artifacts}
        if target
        else catalog.papers
    )
    known = {
        (of_paper, name): catalog.paper(of_paper).run(name)
        for of_paper in sorted(papers)
        for name in catalog.paper(of_paper).recipes
        if not paper or of_paper == paper
    }
    # Recipes that share a run are found by their own names, and by the one of its folder.
    found = {
        other: (called if recipe == called else run.name, run)
        for (other, called), run in known.items()
        if recipe in (called, run.home.name)
    }
    if not found:
        where = f"'{target}'" if target else f"scale '{catalog.scale.name}'"
        names = [f"{other}/{called}" if paper else called for other, called in known]
        raise VitrailError(f"{where} has no recipe '{name}'{did_you_mean(name, names)}")
    if len(found) > 1:
        names = [f"{name}/{called}" for name, (called, _) in found.items()]
        raise VitrailError(f"several papers have a recipe '{name}': name {' or '.join(names)}")
    called, run = next(iter(found.values()))
    say(f"# {run.paper}, recipe {called} at scale {catalog.scale.name}: {run.home}")
    values = run.recipe.shown()
    if not why:
        say(as_yaml(values).rstrip())
        return
    lines = [*_explained(values, catalog.paper(run.paper).values(called))]
    say(*(f"{line:<40}  # {place}" if place else line for line, place in lines), "")
    recipes = _recipes_by_line(catalog, run.paper)
    for place in dict.fromkeys(place for _, place in lines if place in recipes):
        if others := [recipe for recipe in recipes[place] if recipe != called]:
            named = ", ".join(others[:NAMED]) + (", ..." if len(others) > NAMED else "")
            say(f"# {place} also sets {count(len(others), 'other recipe')}: {named}")


def _recipes_by_line(catalog: Catalog, paper: str) -> dict[str, list[str]]:
    """Which recipes each line of the configuration sets a value of; other papers' as PAPER/NAME."""
    found: dict[str, list[str]] = {}
    for other in sorted(catalog.papers, key=lambda name: (name != paper, name)):
        for name in catalog.paper(other).recipes:
            called = name if other == paper else f"{other}/{name}"
            written = catalog.paper(other).values(name)
            for place in dict.fromkeys(place for _, _, place in places(written, written)):
                if place != DEFAULT:
                    found.setdefault(place, []).append(called)
    return found


def places(
    values: Mapping[str, Any], written: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield each value of a recipe with its keys, and the file and line where it was `written`.

    The place of a value that nobody wrote is `DEFAULT`.
    """
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from places(value, written.get(key) or {}, (*above, key))
        else:
            yield (*above, key), value, place_of(written, key) or DEFAULT


def line_of_yaml(key: str, value: Any) -> str:
    """Write a key and its value on one line of YAML."""
    line = as_yaml({key: value}, default_flow_style=True, width=math.inf)
    return line.strip()[1:-1]


def _explained(values: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a recipe in YAML, and where each value was written."""
    above: tuple[str, ...] = ()
    for keys, value, place in places(values, written):
        for depth, key in enumerate(keys[:-1]):
            if keys[: depth + 1] != above[: depth + 1]:
                yield f"{'  ' * depth}{as_yaml(key).splitlines()[0]}:", ""
        above = keys[:-1]
        yield f"{'  ' * len(above)}{line_of_yaml(keys[-1], value)}", place
