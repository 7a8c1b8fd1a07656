"""Receipts: which weights the seeds of a run were trained to, by their SHA-256.

The graph waits for a receipt, so what stands on a run (its measurements, and the trainings that
start from its weights) takes only the weights that its receipt names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vitrine.errors import VitrineError
from vitrine.files import sha256, write_atomically
from vitrine.plan.jobs import TrainedRun, TrainingJob
from vitrine.training.model import require_recipe, weights_owner


def write_receipt(job: TrainingJob, weights: Mapping[int, Path]) -> None:
    """Write down the weights that a job has trained."""
    receipt = {
        "paper": job.paper,
        "recipe": job.name,
        "recipe_hash": job.recipe.hash,
        "sha256": {str(seed): sha256(file) for seed, file in weights.items()},
    }
    write_atomically(job.output, json.dumps(receipt, indent=2) + "\n")


def starting_weights(start: TrainedRun, seed: int) -> Path:
    """Find the weights of a seed of the run that a training starts from.

    Raises:
        VitrineError: that run is not trained, or its weights are not its own.
    """
    weights = start.weights(seed)
    require_recipe(weights, start.recipe_hash)
    require_own_weights(start, seed)
    return weights


def require_own_weights(run: TrainedRun, seed: int) -> str:
    """Refuse weights of another seed, or others than the run's receipt says were trained.

    A rehearsal leaves no receipt; its weights need only name the seed.

    Returns:
        The SHA-256 of the weights.

    Raises:
        VitrineError: they are not the seed's own, or the receipt is damaged.
    """
    weights, receipt = run.weights(seed), run.receipts.get(seed)
    remedy = f"delete {receipt or run.folder} and {weights.parent} to train seed {seed} again"
    owner = weights_owner(weights).get("seed")
    if owner != seed:
        raise VitrineError(f"{weights} holds weights of seed {owner}, not of seed {seed}; {remedy}")
    digest = sha256(weights)
    if receipt is not None and receipt.is_file() and trained_weights(receipt).get(seed) != digest:
        raise VitrineError(
            f"{weights} has not the SHA-256 of the weights that {receipt} names; {remedy}"
        )
    return digest


def trained_weights(receipt: Path) -> dict[int, str]:
    """Read a receipt: the SHA-256 of the weights of each seed.

    Raises:
        VitrineError: it is damaged.
    """
    try:
        digests = json.loads(receipt.read_text(encoding="utf-8"))["sha256"]
        return {int(seed): str(digest) for seed, digest in digests.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise VitrineError(
            f"{receipt} does not say which weights were trained; delete it and "
            f"{receipt.parent}/seed* to train again"
        ) from None
