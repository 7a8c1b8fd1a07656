"""Weights of trained runs that other nodes use, checked against the records of the trainings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from replication.records.records import Record, require_record
from replication.training.dispatch import TrainingRun
from replication.training.weights import require_recipe, weights_owner
from vitrail.errors import VitrailError
from vitrail.files import sha256

if TYPE_CHECKING:
    from replication.config.recipe_types import AnyRecipe
    from replication.records.nodes import TrainingNode
    from replication.records.specs import Run


def starting_weights(source: Run) -> Path:
    """Return the weights of the run from which a training starts.

    Raises VitrailError if that run is not trained, or if its weights are not its own.
    """
    require_recipe(source.weights, source.recipe.hash)
    require_own_weights(source)
    return source.weights


def training_of(node: TrainingNode) -> TrainingRun[AnyRecipe]:
    """Return the input of the training engine for a node, with the weights that it starts from.

    Raises:
        VitrailError: the run that it starts from is not trained, or its weights are not its own.
    """
    run = node.run
    return TrainingRun(
        recipe=run.recipe,
        seed=run.seed,
        folder=run.folder,
        dataset=run.dataset,
        data_root=node.data_root,
        device=node.device,
        options=node.options,
        initial=node.published or (starting_weights(run.source) if run.source else None),
        retrain=node.retrain,
        commit=node.commit,
    )


def require_own_weights(run: Run) -> Record:
    """Check that a run's weights have its seed and are those of its record; return the record.

    Raises:
        VitrailError: the weights or their record are missing or damaged, or they differ.
    """
    remedy = (
        f"delete {run.folder} and run snakemake TARGET --forcerun {run.record} to train seed "
        f"{run.seed} again"
    )
    owner = weights_owner(run.weights).get("seed")
    if owner != run.seed:
        raise VitrailError(
            f"{run.weights} holds weights of seed {owner}, not of seed {run.seed}; {remedy}"
        )
    record = require_record(run.record)
    if record.outcome["sha256"] != sha256(run.weights):
        raise VitrailError(
            f"{run.weights} has not the SHA-256 of the weights that {run.record} names; {remedy}"
        )
    return record
