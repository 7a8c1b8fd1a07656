"""Evaluate a classifier on the validation split during its training.

The scores are those of the measure `accuracy`. The generators are seeded anew for each step
(`vitrail.seeding`), so random numbers drawn here do not affect the training: its weights have the
same bits with validation and without.
"""

# decides no number

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from replication.images.loading import EvaluationSamples
from replication.training.distributed import Team, shielded
from vitrail.measures.accuracy import hits
from vitrail.measures.loading import eval_loader

if TYPE_CHECKING:
    from replication.training.dispatch import TrainingRun


def is_due(step: int, every: int | None, steps_per_epoch: int, steps: int) -> bool:
    """Whether to validate after `step` of `steps`: every `every` epochs and at the end.

    Never if `every` is None.
    """
    return every is not None and (step == steps or step % (every * steps_per_epoch) == 0)


def validate(
    model: nn.Module, samples: EvaluationSamples, team: Team, run: TrainingRun
) -> dict[str, float]:
    """Evaluate a model on the validation split; each process takes its share of the images.

    The model must be on the team's device. Afterwards it is again in training or evaluation mode,
    as it was before.

    Returns:
        ``top1`` and ``top5``, in percent.
    """
    training, size = model.training, run.recipe.batch.micro
    share = Subset(samples, range(team.rank, len(samples), team.world))
    model.eval()
    counts = team.on_all_ranks(lambda: _count(model, share, team, size, run.options.workers))
    top1, top5 = (100 * team.sum(counts).double() / len(samples)).tolist()
    model.train(training)
    return {"top1": top1, "top5": top5}


# Not inference mode: a tensor that a module caches in it could not be used in training later.
@torch.no_grad()
def _count(
    model: nn.Module, share: Subset[tuple[Tensor, int]], team: Team, batch_size: int, workers: int
) -> Tensor:
    """Count the images whose label is the best, and among the best five: (2,) int64 on the CPU."""
    right = torch.zeros(2, dtype=torch.int64)
    with shielded():  # it starts the workers
        batches = iter(eval_loader(share, batch_size, workers, team.device))
    for images, labels in batches:
        right += hits(model(images.to(team.device, non_blocking=True)).float().cpu(), labels).sum(
            dim=0
        )
    return right
