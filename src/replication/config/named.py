"""Names for what several places of a YAML file of a paper say: each is written once.

In ``artifacts.yaml`` and in a file of a scale, a mapping that says ``value: NAME`` is laid over the
mapping of that name in `values`; with a list of names, each is laid over the one before it. In
``artifacts.yaml``, ``rows: NAME`` and ``columns: NAME`` are a list of `labels`, and an item of them
that is a name stands for all items of its list. In ``claims.yaml`` an item of `each` that is a name
is the list of that name in `choices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from replication.config.schema import Placed, merge, place_of
from vitrail.errors import VitrailError, require_known


def with_names_resolved(written: Placed) -> Placed:
    """Return the mapping of an ``artifacts.yaml`` in which no name stands for something else.

    Each key keeps the place where it is written. Raises VitrailError where a name is unknown (a
    value may use those above it), is used nowhere, or stands for no mapping.
    """
    names = _Names("values", "labels")
    resolved = names.resolved(written, ("measures", "artifacts"))
    artifacts = resolved.get("artifacts")
    for artifact in artifacts.values() if isinstance(artifacts, Placed) else ():
        for side in ("rows", "columns"):
            if isinstance(artifact, Placed) and side in artifact:
                artifact[side] = names.listed(artifact[side], place_of(artifact, side))
    names.refuse_unused()
    return resolved


def with_values_laid(written: Placed) -> Placed:
    """As `with_names_resolved`, of a paper's file of a scale, which has `values` alone."""
    names = _Names("values")
    resolved = names.resolved(written, ("recipes", "runs", "measures"))
    names.refuse_unused()
    return resolved


def with_choices_listed(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a ``claims.yaml`` that are claims, no name among their lists.

    An entry `choices` names lists for the entries below it. Raises VitrailError where a name is
    unknown, is used nowhere, or stands twice.
    """
    names = _Names("choices")
    for entry in entries:
        if "choices" in entry:
            names.define("choices", entry)
            continue
        if isinstance(lists := entry.get("each"), list):
            place = f"{place_of(entry, 'each')}: list of choices"
            listed = [
                names.find("choices", item, place) if isinstance(item, str) else item
                for item in lists
            ]
            places = entry.places if isinstance(entry, Placed) else {}
            entry = Placed({**entry, "each": listed}, places)
        yield entry
    names.refuse_unused()


class _Names:
    """What names of some kinds stand for; a kind is the key under which they are written."""

    def __init__(self, *kinds: str) -> None:
        self.known: dict[str, Placed] = {kind: Placed({}, {}) for kind in kinds}
        self.used: set[tuple[str, str]] = set()

    def define(self, kind: str, written: dict[str, Any]) -> None:
        """Add the names that a mapping has under the key of their kind."""
        if not isinstance(section := written.get(kind), Placed):
            return
        for name, part in section.items():
            if name in self.known[kind]:
                raise VitrailError(f"{place_of(section, name)}: '{name}' stands twice; rename one")
            self.known[kind][name] = self.laid(part) if "values" in self.known else part
            self.known[kind].places[name] = place_of(section, name) or ""

    def resolved(self, written: Placed, parts: Iterable[str]) -> Placed:
        """Return a file's mapping, whose `parts` are laid over the values that they name."""
        resolved = Placed(written, written.places)
        for kind in self.known:
            self.define(kind, written)
            if isinstance(written.get(kind), Placed):
                resolved[kind] = self.known[kind]
        resolved.update({part: self.laid(written[part]) for part in parts if part in written})
        return resolved

    def laid(self, written: Any) -> Any:
        """Lay each mapping in `written` over the values that it names."""
        if isinstance(written, list):
            return [self.laid(item) for item in written]
        if not isinstance(written, Placed):
            return written
        own = {key: self.laid(part) for key, part in written.items() if key != "value"}
        named, place = written.get("value", []), place_of(written, "value")
        values = [
            self.find("values", name, f"{place}: value")
            for name in (named if isinstance(named, list) else [named])
        ]
        if any(not isinstance(value, Placed) for value in values):
            raise VitrailError(f"{place}: 'value: {named}' is no mapping; lay this over a mapping")
        return merge({}, *values, Placed(own, written.places))

    def listed(self, written: Any, place: str | None) -> Any:
        """Return the rows or columns of an artifact, with the items of a list for its name."""
        if not isinstance(written, str | list):
            return written
        labels: list[Any] = []
        for item in [written] if isinstance(written, str) else written:
            found = self.find("labels", item, f"{place}: list") if isinstance(item, str) else item
            labels += found if isinstance(found, list) else [found]
        return labels

    def find(self, kind: str, name: Any, what: str) -> Any:
        """Return what a name stands for; VitrailError, which begins with `what`, if unknown."""
        require_known(what, str(name), self.known[kind])
        self.used.add((kind, name))
        return self.known[kind][name]

    def refuse_unused(self) -> None:
        """Raise a VitrailError where a name is used nowhere."""
        for kind, known in self.known.items():
            for name in known:
                if (kind, name) not in self.used:
                    place = place_of(known, name)
                    raise VitrailError(f"{place}: '{name}' of {kind} is used nowhere; remove it")
