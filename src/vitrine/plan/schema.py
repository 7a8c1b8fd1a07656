"""Typed configuration: strict, frozen pydantic models read from YAML.

Every mistake in a file becomes one `VitrineError` that names the file, the field and the value,
with the closest known key where a key is unknown.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from vitrine.errors import VitrineError, did_you_mean

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOOLEAN = "tag:yaml.org,2002:bool"


class _Loader(_Base):
    """YAML 1.2's booleans: true and false. To YAML 1.1 the key `on` and the value no are too."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    _BOOLEAN, re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class Strict(BaseModel):
    """Base of every configuration object: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path) -> Any:
    """Parse a YAML file.

    Raises:
        VitrineError: the file is missing or is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise VitrineError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise VitrineError(f"{path} is not UTF-8 text; save it as such") from None
    try:
        return yaml.load(text, Loader=_Loader) or {}
    except yaml.YAMLError as error:
        raise VitrineError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None


def parse(model: type[Model], data: Any, where: str) -> Model:
    """Validate `data` as `model`; `where` names its origin in the error.

    Raises:
        VitrineError: a key is unknown, or a value has the wrong type or range.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise VitrineError(_sentence(model, error, where)) from None


def load(model: type[Model], path: Path) -> Model:
    """Read `path` and validate it as `model`."""
    return parse(model, read_yaml(path), str(path))


def merge(base: dict[str, Any], *deltas: dict[str, Any]) -> dict[str, Any]:
    """Merge nested dictionaries from left to right; later values win, lists are replaced whole.

    Raises:
        VitrineError: a plain value would replace a dictionary.
    """
    merged = dict(base)
    for delta in deltas:
        for key, value in delta.items():
            if isinstance(merged.get(key), dict):
                if not isinstance(value, dict):
                    raise VitrineError(
                        f"'{key}: {value}' replaces several keys; name those it sets"
                    )
                value = merge(merged[key], value)
            merged[key] = value
    return merged


def _sentence(model: type[BaseModel], error: ValidationError, where: str) -> str:
    # A misspelt key also makes the right one missing: the misspelling says more.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    field = ".".join(place)
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, place[:-1])
        return f"{where}: unknown key '{field}'{did_you_mean(place[-1], known)}"
    if first["type"] == "missing":
        return f"{where}: '{field}' is missing; add it"
    return f"{where}: '{field}' is {first['input']!r}: {first['msg'].lower()}"


def _fields_at(model: type[BaseModel], place: list[str]) -> list[str]:
    """Field names of the nested model that `place` leads to, through lists and dictionaries."""
    here: Any = model
    for part in place:
        if _is_model(here):
            here = here.model_fields[part].annotation
        else:  # an item of a container: its type is the container's last argument that is a type
            arguments = [a for a in getattr(here, "__args__", ()) if a not in (..., type(None))]
            here = arguments[-1] if arguments else None
        while getattr(here, "__origin__", None) in (Union, UnionType):
            here = here.__args__[0]
    return list(here.model_fields) if _is_model(here) else []


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
