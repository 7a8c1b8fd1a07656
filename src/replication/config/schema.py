"""Typed configuration: strict, frozen pydantic models read from YAML.

Every mistake in a file becomes one `VitrailError` that names file, field and value, and the closest
known key if a key is unknown. Mappings keep the file and line of each of their keys, also when they
are merged, so that every resolved value can be traced to its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from vitrail.errors import VitrailError, did_you_mean

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOOLEAN = "tag:yaml.org,2002:bool"
_INTEGER = "tag:yaml.org,2002:int"


class Placed(dict[str, Any]):
    """A mapping with the place where each key was written: ``file:line``, or a description."""

    def __init__(self, values: Mapping[str, Any], places: Mapping[str, str]) -> None:
        super().__init__(values)
        self.places = dict(places)


class _Dumper(yaml.SafeDumper):
    """Write `Placed` as a mapping, and a text of several lines as a block without escapes.

    An object that occurs several times is written out each time.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Write no anchors."""
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(Placed, _Dumper.represent_dict)
_Dumper.add_representer(str, _Dumper.represent_text)


def as_yaml(values: Any, **options: Any) -> str:
    """Return data, plain or from `read_yaml`, as YAML; `options` are those of ``yaml.dump``."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, **options)


def place_of(values: Any, key: str) -> str | None:
    """Return the place where a key of a mapping was written; None if it is not known."""
    return values.places.get(key) if isinstance(values, Placed) else None


def _as_written(values: Any, validate: Callable[[Any], Any]) -> Any:
    validate(values)
    return values


class _Loader(_Base):
    """Read mappings as `Placed`, and booleans and decimal integers as YAML 1.2 does.

    In YAML 1.1, the key `on` and the value no are booleans, too, 12:00 is a number and 010 is
    eight. A key that a merge (``<<: *name``) adds to a mapping has the line of the anchor; a key
    with an alias as value (``key: *name``) has its own line.
    """

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOLEAN, _INTEGER)]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self._where = where
        self._flat: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolve merges; raises VitrailError if the file has a key of the mapping twice."""
        if id(node) not in self._flat:
            self._flat.add(id(node))
            written: list[Any] = []
            for key, _ in node.value:
                if key.value in written:
                    raise VitrailError(f"{self._place(key)}: '{key.value}' stands twice; keep one")
                written.append(key.value)
        super().flatten_mapping(node)

    def construct_placed(self, node: yaml.MappingNode) -> Placed:
        """Construct a mapping with the place of each key."""
        values = self.construct_mapping(node, deep=True)
        places = {self.construct_object(key): self._place(key) for key, _ in node.value}
        return Placed(values, places)

    def construct_list(self, node: yaml.SequenceNode) -> list[Any]:
        """Construct a list in one step, so that PyYAML refuses a list that contains itself."""
        return self.construct_sequence(node, deep=True)

    def _place(self, key: yaml.Node) -> str:
        return f"{self._where}:{key.start_mark.line + 1}"


_Loader.add_implicit_resolver(
    _BOOLEAN, re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(_INTEGER, re.compile("^[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_placed)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.construct_list)


# Keeps the mapping itself: pydantic would return a validated copy, which has no places.
AsWritten = WrapValidator(_as_written)
Delta = Annotated[dict[str, Any], AsWritten]
# Dataset -> the one in its place; None if the scale has no such images and measures nothing on it.
StandIns = Annotated[dict[str, str | None], AsWritten]


class Strict(BaseModel):
    """Base of every configuration object: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _with_closest_key(cls, values: Any, validate: Callable[[Any], Self]) -> Self:
        """Report an unknown key before other errors, with the closest field here or below."""
        try:
            return validate(values)
        except ValidationError as error:
            unknown = [told["loc"] for told in error.errors() if told["type"] == "extra_forbidden"]
            if not unknown:
                raise
        key = str(unknown[0][-1])
        below = [
            f"{name}.{key}"
            for name, field in cls.model_fields.items()
            if key in getattr(field.annotation, "model_fields", ())
        ]
        hint = f"; did you mean '{below[0]}'?" if below else did_you_mean(key, cls.model_fields)
        raise PydanticCustomError(UNKNOWN_KEY, "unknown key", {"key": key, "hint": hint})


UNKNOWN_KEY = "unknown_key"
Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


def read_yaml(path: Path) -> Any:
    """Parse a YAML file into plain data with `Placed` mappings; an empty file is an empty mapping.

    Raises:
        VitrailError: the file is missing, is no valid YAML, or has a key twice in one mapping.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"), str(path))
        return loader.get_single_data() or Placed({}, {})
    except OSError as error:
        raise VitrailError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise VitrailError(f"{path} is not UTF-8 text; save it as such") from None
    except yaml.YAMLError as error:
        told = " ".join(str(error).replace('"<unicode string>"', str(path)).split())
        raise VitrailError(f"{path} is not valid YAML: {told}") from None


def parse(model: type[Model], data: Any, where: str) -> Model:
    """Validate `data` as `model`; raises VitrailError, which names the origin `where`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise VitrailError(_sentence(error, where, data)) from None


def load(model: type[Model], path: Path) -> Model:
    """Read the YAML file `path` and validate it as `model`; raises VitrailError if it is wrong."""
    return parse(model, read_yaml(path), str(path))


def load_entries(model: type[Model], path: Path, kind: str) -> dict[str, Model]:
    """Read a registry: a mapping from the name of each entry to its fields, without the name.

    An entry may have ``extends: <another entry>`` and give only what differs. Each entry becomes a
    `model` whose field `name` is the entry's name. `kind` is the kind of entry, for errors. Raises
    VitrailError if the file is missing or an entry is wrong.
    """
    entries: Any = read_yaml(path)
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise VitrailError(f"{path} must map the name of each entry to its fields")
    found: dict[str, Model] = {}
    for name in entries:
        where = f"{path}, {kind} '{name}'"
        fields = merge({"name": name}, laid_over_bases(name, entries, where))
        found[name] = parse(model, fields, where)
    return found


def read_mapping(path: Path) -> Placed:
    """Parse a YAML file that must be a mapping; raises VitrailError otherwise."""
    values = read_yaml(path)
    if not isinstance(values, Placed):
        raise VitrailError(f"{path} must be a mapping of keys to values")
    return values


def laid_over_bases(name: str, entries: Mapping[str, Mapping[str, Any]], where: str) -> Placed:
    """Return an entry merged over the entry that it ``extends``, which is merged over its own.

    Raises VitrailError if one of them is not among the entries or if they form a circle, and as
    `merge`.
    """
    names = [name]
    while (base := entries[names[0]].get("extends")) is not None:
        if base not in [*entries]:  # a list is in no mapping
            raise VitrailError(
                f"{where}: '{names[0]}' extends '{base}', which is unknown"
                f"{did_you_mean(str(base), entries)}"
            )
        if base in names:
            circle = " <- ".join([base, *names])
            raise VitrailError(f"{where}: '{base}' extends itself ({circle}); correct one extends")
        names.insert(0, base)
    merged = merge({}, *(entries[own] for own in names))
    merged.pop("extends", None)
    return merged


def merge(base: Mapping[str, Any], *deltas: Mapping[str, Any]) -> Placed:
    """Merge nested dictionaries from left to right; later values win, lists are replaced whole.

    Raises VitrailError if a plain value would replace a dictionary.
    """
    merged = Placed(base, base.places if isinstance(base, Placed) else {})
    for delta in deltas:
        for key, value in delta.items():
            place = place_of(delta, key)
            if isinstance(merged.get(key), dict):
                if not isinstance(value, dict):
                    where = f"{place}: " if place else ""
                    raise VitrailError(
                        f"{where}'{key}: {value}' replaces several keys; name those it sets"
                    )
                value = merge(merged[key], value)
            merged[key] = value
            merged.places.pop(key, None)
            if place:
                merged.places[key] = place
    return merged


def match(name: str, patterns: str) -> bool:
    """Tell whether a name matches one of the comma-separated `patterns` (``*?[ab]``)."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


def matching(name: str, by_patterns: Mapping[str, Value]) -> list[Value]:
    """Return the values whose patterns match a name, in the order in which they are written."""
    return [value for patterns, value in by_patterns.items() if match(name, patterns)]


def refuse_unmatched(what: str, patterns: str, names: Iterable[str]) -> None:
    """Raise VitrailError for a pattern that matches no name: it would have no effect."""
    names = list(names)
    for pattern in map(str.strip, patterns.split(",")):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise VitrailError(f"{what} '{pattern}' is unknown{did_you_mean(pattern, names)}")


def _sentence(error: ValidationError, where: str, data: Any) -> str:
    first = error.errors()[0]
    loc = first["loc"]
    if first["type"] == UNKNOWN_KEY:
        loc = (*loc, first["ctx"]["key"])
    field = ".".join(map(str, loc))
    if first["type"] == "missing":
        return f"{where}: '{field}' is missing; add it"
    where = _with_line(where, data, loc)
    if first["type"] == UNKNOWN_KEY:
        return f"{where}: unknown key '{field}'{first['ctx']['hint']}"
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        known = re.findall("'([^']*)'", first["ctx"]["expected"])
        unknown = f"'{first['input']}', which is unknown{did_you_mean(first['input'], known)}"
        return f"{where}: '{field}' is {unknown}"
    reason = first["msg"].removeprefix("Value error, ")
    value = f"'{field}' is {first['input']!r}: " if field else ""  # not the whole file
    return f"{where}: {value}{reason[:1].lower()}{reason[1:]}"


def _with_line(where: str, data: Any, keys: Iterable[Any]) -> str:
    """Return `where` with the file and line of the innermost of `keys` whose place is known."""
    place = None
    for key in keys:
        place = place_of(data, key) or place
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            break
    if place is None:
        return where
    return place if place.startswith(f"{where}:") else f"{where} ({place})"
