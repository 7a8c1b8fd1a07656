"""Names for what several places of an ``artifacts.yaml`` say: each is written once.

A mapping that says ``value: NAME`` is laid over the mapping of that name in `values`; with a list
of names, each is laid over the one before it. ``rows: NAME`` and ``columns: NAME`` are a list of
`labels`, and an item of them that is a name stands for all items of its list.
"""

from __future__ import annotations

from typing import Any

from replication.plan.schema import Placed, merge, place_of
from vitrail.errors import VitrailError, require_known


def with_names_resolved(written: Placed) -> Placed:
    """Return the mapping of an ``artifacts.yaml`` in which no name stands for something else.

    Each key keeps the place where it is written. Raises VitrailError where a name is unknown (a
    value may use those above it), is used nowhere, or stands for no mapping.
    """
    names = _Names()
    resolved = Placed(written, written.places)
    for kind, known in names.known.items():
        if isinstance(section := written.get(kind), Placed):
            for name, part in section.items():
                known[name] = names.laid(part)
            resolved[kind] = known
    for kind in ("measures", "artifacts"):
        if kind in written:
            resolved[kind] = names.laid(written[kind])
    artifacts = resolved.get("artifacts")
    for artifact in artifacts.values() if isinstance(artifacts, Placed) else ():
        for side in ("rows", "columns"):
            if isinstance(artifact, Placed) and side in artifact:
                artifact[side] = names.listed(artifact[side], place_of(artifact, side))
    for kind, known in names.known.items():
        for name in known.keys() - names.used[kind]:
            place = place_of(written[kind], name)
            raise VitrailError(f"{place}: '{name}' of {kind} is used nowhere; remove it")
    return resolved


class _Names:
    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {"values": {}, "labels": {}}
        self.used: dict[str, set[str]] = {"values": set(), "labels": set()}

    def laid(self, written: Any) -> Any:
        """Lay each mapping in `written` over the values that it names."""
        if isinstance(written, list):
            return [self.laid(item) for item in written]
        if not isinstance(written, Placed):
            return written
        own = {key: self.laid(part) for key, part in written.items() if key != "value"}
        named, place = written.get("value", []), place_of(written, "value")
        values = [
            self._find("values", name, f"{place}: value")
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
            found = self._find("labels", item, f"{place}: list") if isinstance(item, str) else item
            labels += found if isinstance(found, list) else [found]
        return labels

    def _find(self, kind: str, name: Any, what: str) -> Any:
        require_known(what, str(name), self.known[kind])
        self.used[kind].add(name)
        return self.known[kind][name]
