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
from vitrine.plan.catalog import Run
from vitrine.training.model import require_recipe, weights_owner


def write_receipt(path: Path, run: Run, weights: Mapping[int, Path]) -> None:
    """Write down the weights of some seeds of a run."""
    receipt = {
        "paper": run.paper,
        "recipe": run.name,
        "recipe_hash": run.recipe.hash,
        "sha256": {str(seed): sha256(file) for seed, file in weights.items()},
    }
    write_atomically(path, json.dumps(receipt, indent=2) + "\n")


def starting_weights(run: Run, seed: int) -> Path | None:
    """Find the weights of the same seed that a run starts from, None if it starts from no run.

    Raises:
        VitrineError: the run it starts from is not trained, or its weights are not its own.
    """
    if run.source is None:
        return None
    weights = run.source.weights(seed)
    require_recipe(weights, run.source.recipe)
    require_own_weights(weights, run.source, seed)
    return weights


def require_own_weights(weights: Path, run: Run, seed: int) -> None:
    """Refuse weights of another seed, or others than the run's receipt says were trained.

    A rehearsal leaves no receipt; its weights need only name the seed.

    Raises:
        VitrineError: they are not the seed's own, or the receipt is damaged.
    """
    receipt = next(iter(run.receipts_of([seed])), None)
    remedy = f"delete {receipt or run.folder} and {weights.parent} to train seed {seed} again"
    owner = weights_owner(weights).get("seed")
    if owner != seed:
        raise VitrineError(f"{weights} holds weights of seed {owner}, not of seed {seed}; {remedy}")
    if receipt is None or not receipt.is_file():
        return
    try:
        trained = json.loads(receipt.read_text(encoding="utf-8"))["sha256"][str(seed)]
    except (OSError, ValueError, KeyError, TypeError):
        raise VitrineError(
            f"{receipt} does not say which weights seed {seed} was trained to; {remedy}"
        ) from None
    if sha256(weights) != trained:
        raise VitrineError(
            f"{weights} has not the SHA-256 of the weights that {receipt} names; {remedy}"
        )
