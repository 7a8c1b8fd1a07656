"""Open the teacher of a finished run of self-supervision."""

# decides no number

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from replication.config.datasets import find, load_registry
from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.config.schema import load
from replication.images.transforms import eval_transform
from replication.papers.octic.dinov2.network import build_model
from replication.training.weights import load_weights

if TYPE_CHECKING:
    from replication.images.transforms import Transform


def load_teacher(seed_folder: str | Path) -> tuple[nn.Module, Transform]:
    """Open a run of self-supervision, such as ``runs/octic/dinov2-i8-l-1a2b3c4d/seed0``.

    Returns:
        the teacher's backbone in evaluation mode, which maps images ``(B, 3, S, S)`` to features
        ``(B, C)``, and the evaluation transform from a PIL image to ``(3, S, S)``.

    Raises:
        VitrailError: the run is not trained, or is none of self-supervision.
    """
    folder = Path(seed_folder)
    recipe = load(SelfSupervisionRecipe, folder / "recipe.yaml")
    teacher = build_model(recipe, 0).eval()
    load_weights(teacher, folder / "weights.safetensors", recipe)
    return teacher, eval_transform(recipe, find(recipe.data.dataset, load_registry()))
