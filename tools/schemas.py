"""``make schemas`` writes the JSON schemas by which editors check configs/.

The schemas are generated and not committed: the first line of each YAML file names its schema in
`FOLDER`, which git ignores. They are exported from the pydantic models that read the files. A delta
is any part of a recipe, so its schema requires no key; a missing value is reported when the recipe
is resolved.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from replication.config.claims import Choices, Claim
from replication.config.datasets import DatasetInfo
from replication.config.paper import ArtifactsFile, PaperInfo, PaperScale, RecipesFile
from replication.config.recipe_types import KINDS, AnyRecipe
from replication.config.settings import Scale, Settings
from replication.config.weights import PublishedWeights
from replication.pricing.speed import Device


class ClaimsEntry(Claim, Choices):
    """An entry of ``claims.yaml``: one claim, or one for each combination of its choices."""


FOLDER = Path("workflow") / "schemas"
FILES: dict[str, Any] = {
    "settings": Settings,
    "scale": Scale,
    "datasets": dict[str, DatasetInfo],
    "weights": dict[str, PublishedWeights],
    "hardware": dict[str, Device],
    "paper": PaperInfo,
    "recipes": RecipesFile,
    "artifacts": ArtifactsFile,
    "claims": tuple[ClaimsEntry, ...],
    "paper-scale": PaperScale,
}


def schemas() -> dict[str, Any]:
    """Return the schema of each kind of file by its name."""
    found = {name: TypeAdapter(kind).json_schema() for name, kind in FILES.items()}
    found["recipes"] = _nothing_required(found["recipes"])  # what extends another may be incomplete
    recipe = _nothing_required(TypeAdapter(AnyRecipe).json_schema())
    parts = recipe["$defs"]
    delta = {"anyOf": recipe["anyOf"]}
    extends = {"extends": {"type": "string", "description": "another choice of this axis"}}
    choice = {
        "anyOf": [
            {**parts[name], "properties": {**extends, **parts[name]["properties"]}}
            for name in (reference["$ref"].rpartition("/")[2] for reference in recipe["anyOf"])
        ]
    }
    fields = found["recipes"]["properties"]
    fields |= dict.fromkeys(("base", *KINDS), delta)
    fields["axes"]["additionalProperties"]["additionalProperties"] = choice
    fields["deltas"]["additionalProperties"] = delta
    found["paper-scale"]["properties"]["recipes"]["additionalProperties"] = delta
    for name in ("recipes", "paper-scale"):
        found[name]["$defs"] |= parts
    for name in ("datasets", "weights", "hardware"):
        found[name] = _extending(found[name])
    entry = found["claims"]["$defs"]["ClaimsEntry"]["properties"]
    name_of_choice = {"type": "string", "pattern": r"\{\w+\}"}
    for key, field in entry.items():
        entry[key] = {"anyOf": [field, name_of_choice]}
    return found


def _extending(schema: Any) -> Any:
    """Allow an entry of a registry to extend another; such an entry need not be complete."""
    part = schema["additionalProperties"]["$ref"].rpartition("/")[2]
    entry = dict(schema["$defs"][part])
    text = {"type": "string", "description": "another entry, which this one is laid over"}
    entry["properties"] = {"extends": text, **entry["properties"]}
    entry |= {"if": {"required": ["extends"]}, "else": {"required": entry.pop("required")}}
    return {**schema, "$defs": {**_nothing_required(schema["$defs"]), part: entry}}


def _nothing_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_nothing_required(item) for item in schema]
    if isinstance(schema, dict):
        return {key: _nothing_required(value) for key, value in schema.items() if key != "required"}
    return schema


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / f"{name}.schema.json").write_text(
            json.dumps(schema, indent=2) + "\n", encoding="utf-8"
        )
