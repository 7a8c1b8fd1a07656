"""From a recipe to a model, and a model's weights to and from disk.

Weights are safetensors with the recipe's hash and the seed in their metadata: a file that strayed
into another run's folder is refused. `replication.jobs.run_weights` vouches for
weights that other nodes use.
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
    """Make the recipe's model with all the weights of another run, as `save_weights` writes them.

    Raises VitrailError as `build_model`, or if the weights are of another architecture.
    """
    model = builder_of(recipe).build_model(recipe, classes)
    remedy = "correct model.weights_from, or give both recipes models of one shape"
    _fill(model, file, recipe, remedy)
    return model


def save_weights(weights: Mapping[str, Tensor], path: Path, recipe: AnyRecipe, seed: int) -> None:
    """Write a state dict to `path`, all or nothing, with the run that it belongs to.

    Raises VitrailError if the file cannot be written.
    """
    # Clones, because safetensors refuses tensors that share memory (tied weights, views).
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    # One entry, because safetensors writes several in a random order: equal runs, equal files.
    owner = json.dumps({"recipe_hash": recipe.hash, "seed": seed})
    content = save(tensors, metadata={"run": owner})
    with atomic_path(path) as partial:
        partial.write_bytes(content)


def load_weights(model: nn.Module, path: Path, recipe: AnyRecipe) -> None:
    """Load a run's weights, in the folder of a seed in that of the recipe, into its model.

    Raises VitrailError if the file is missing, damaged, of another recipe or architecture.
    """
    require_recipe(path, recipe.hash)
    _fill(model, path, recipe, f"the code of the model has changed since; {again(path)}")


def require_recipe(path: Path, recipe_hash: str) -> None:
    """Refuse weights in a run's folder that are not there or not of its recipe.

    Raises:
        VitrailError: the file is missing, damaged, or of another recipe.
    """
    if not path.exists():
        # Snakemake goes by the records: with one there, it would not train again.
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
    """Say how the weights of a seed are trained again, in the folder of their run."""
    # Snakemake goes by the records, and a training keeps what it finds in its folder.
    return (
        f"delete {path.parent} and run snakemake TARGET --forcerun {record_of(path.parent)} to "
        "train this seed again"
    )


def _fill(model: nn.Module, path: Path, recipe: AnyRecipe, remedy: str) -> None:
    try:
        model.load_state_dict(read_weights(path))
    except RuntimeError as error:
        # The first line only says of which class of modules; what does not fit stands below it.
        reason = " ".join(str(error).partition("\n")[2].partition("\n")[0].split()).rstrip(".")
        raise VitrailError(
            f"{path} does not fit model '{recipe.model.name}' ({reason}): {remedy}"
        ) from None


def weights_owner(path: Path) -> dict[str, Any]:
    """Return the `recipe_hash` and the `seed` that a weights file names as its own.

    Raises VitrailError if the file is damaged.
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
