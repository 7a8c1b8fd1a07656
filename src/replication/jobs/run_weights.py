"""Weights of trained runs that other nodes use, as the records of the trainings vouch for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from replication.records.record import Record, require_record
from replication.training.engine import TrainingRun
from replication.training.model import require_recipe, weights_owner
from vitrail.errors import VitrailError
from vitrail.files import sha256

if TYPE_CHECKING:
    from replication.config.recipe_types import AnyRecipe
    from replication.images.keeping import Kept
    from replication.records.nodes import TrainedRun, TrainingNode


def starting_weights(start: TrainedRun, seed: int) -> Path:
    """Find the weights of a seed of the run that a training starts from.

    Raises VitrailError if that run is not trained, or its weights are not its own.
    """
    weights = start.weights(seed)
    require_recipe(weights, start.recipe_hash)
    require_own_weights(start, seed)
    return weights


def run_of_seed(node: TrainingNode, seed: int, kept: Kept) -> TrainingRun[AnyRecipe]:
    """The run of one seed, which starts where the node says; its seeds share `kept`.

    Raises:
        VitrailError: the run that it starts from is not trained, or its weights are not its own.
    """
    return TrainingRun(
        recipe=node.recipe,
        seed=seed,
        folder=node.seed_folder(seed),
        dataset=node.dataset,
        data_root=node.data_root,
        device=node.device,
        workers=node.workers,
        checkpoint_seconds=node.checkpoint_seconds,
        initial=node.published or (starting_weights(node.start, seed) if node.start else None),
        retrain=node.retrain,
        validate_every=node.validate_every,
        commit=node.commit,
        kept=kept,
    )


def require_own_weights(run: TrainedRun, seed: int) -> Record:
    """Refuse weights of another seed, or others than the run's record names; return that record.

    Raises:
        VitrailError: the weights or their record are missing, damaged or others.
    """
    weights, path = run.weights(seed), run.records[seed]
    remedy = (
        f"delete {weights.parent} and run snakemake TARGET --forcerun {path} to train seed {seed} "
        "again"
    )
    owner = weights_owner(weights).get("seed")
    if owner != seed:
        raise VitrailError(f"{weights} holds weights of seed {owner}, not of seed {seed}; {remedy}")
    record = require_record(path)
    if record.outcome["sha256"].get(str(seed)) != sha256(weights):
        raise VitrailError(
            f"{weights} has not the SHA-256 of the weights that {path} names; {remedy}"
        )
    return record
