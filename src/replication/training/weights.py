"""Write a run's weights to disk, and load them into the recipe's model.

Weights are safetensors with the recipe's hash and the seed in their metadata, so that a file in
another run's folder is refused. `replication.jobs.run_weights` makes further checks of weights
that other nodes use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

import vitrail.models  # noqa: F401
from replication.records.specs import record_of
from replication.training.dispatch import builder_of
from vitrail.errors import VitrailError, first_line
from vitrail.files import atomic_path
from vitrail.weights_file import read_weights

if TYPE_CHECKING:
    from replication.config.recipe import TimmTraining
    from replication.config.recipe_types import AnyRecipe


def build_from(recipe: TimmTraining, classes: int, file: Path) -> nn.Module:
    """Make the recipe's model with the weights of another run, read from `file`.

    A classifier keeps its initial weights if that run's dataset has another number of classes.

    Raises VitrailError as `build_model`, or if the weights are of another architecture.
    """
    model = builder_of(recipe).build_model(recipe, classes)
    weights, initial = read_weights(file), model.state_dict()
    for name in _classifier_of(model) & weights.keys():
        if weights[name].shape != initial[name].shape:
            weights[name] = initial[name]
    remedy = "correct model.weights_from, or give both recipes models of one shape"
    _fill(model, weights, file, recipe, remedy)
    return model


def _classifier_of(model: nn.Module) -> set[str]:
    """Return the names of the classifier's weights; none if the model has no classifier."""
    parts: Any = getattr(model, "get_classifier", tuple)()
    parts = parts if isinstance(parts, tuple) else (parts,)  # some models of timm have two
    own = {weight for part in parts for weight in part.parameters()}
    return {name for name, weight in model.named_parameters() if weight in own}


def save_weights(weights: Mapping[str, Tensor], path: Path, recipe: AnyRecipe, seed: int) -> None:
    """Write a state dict atomically to `path`, with the recipe's hash and seed as metadata.

    Raises VitrailError if the file cannot be written.
    """
    # Clones, because safetensors refuses tensors that share memory (tied weights, views).
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    # One entry, because safetensors writes several in random order, and equal runs must give equal
    # files.
    owner = json.dumps({"recipe_hash": recipe.hash, "seed": seed})
    content = save(tensors, metadata={"run": owner})
    with atomic_path(path) as partial:
        partial.write_bytes(content)


def load_weights(model: nn.Module, path: Path, recipe: AnyRecipe) -> None:
    """Load a run's weights from `path`, in the folder of a seed, into `model`.

    Raises VitrailError if the file is missing, damaged, or of another recipe or architecture.
    """
    require_recipe(path, recipe.hash)
    remedy = f"the code of the model has changed since; {again(path)}"
    _fill(model, read_weights(path), path, recipe, remedy)


def require_recipe(path: Path, recipe_hash: str) -> None:
    """Check that a file of weights exists and is of a recipe.

    Raises:
        VitrailError: the file is missing, damaged, or of another recipe.
    """
    if not path.exists():
        # Snakemake looks at the records only: while the record exists, it would not train again.
        raise VitrailError(
            f"{path} does not exist: run snakemake TARGET --forcerun {record_of(path.parent)} to "
            "train this run"
        )
    owner = weights_owner(path)
    if owner.get("recipe_hash") != recipe_hash:
        raise VitrailError(
            f"{path} holds weights of recipe {owner.get('recipe_hash')}, not of recipe "
            f"{recipe_hash}: {again(path)}, or point to this recipe's run folder"
        )


def again(path: Path) -> str:
    """Return the instruction by which the user trains the weights at `path` again."""
    # Both are needed: Snakemake looks at the records, and a training keeps finished weights.
    return (
        f"delete {path.parent} and run snakemake TARGET --forcerun {record_of(path.parent)} to "
        "train this seed again"
    )


def _fill(
    model: nn.Module, weights: Mapping[str, Tensor], path: Path, recipe: AnyRecipe, remedy: str
) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        # The first line only names the class of the module; the second says what does not fit.
        reason = " ".join(str(error).partition("\n")[2].partition("\n")[0].split()).rstrip(".")
        raise VitrailError(
            f"{path} does not fit model '{recipe.model.name}' ({reason}): {remedy}"
        ) from None


def weights_owner(path: Path) -> dict[str, Any]:
    """Return the `recipe_hash` and the `seed` in the metadata of a weights file.

    The result is empty if the file has no such metadata. Raises VitrailError if it is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise VitrailError(f"{path} is damaged ({first_line(error)}): {again(path)}") from None
    try:
        owner = json.loads(metadata.get("run", "{}"))
    except ValueError:
        owner = None
    if not isinstance(owner, dict):
        raise VitrailError(
            f"{path} names no run as its own (its metadata 'run' is {metadata['run']!r}): "
            f"{again(path)}"
        )
    return owner
