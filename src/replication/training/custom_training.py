"""The engine of the kinds of training that papers bring: what they minimise is a module of theirs.

A paper's ``training.py`` has a class `Objective`, a module that holds the model and whatever else
is trained or kept with it (heads, frozen copies, buffers). It is called with the images
``(B, 3, H, W)`` and the labels ``(B,)`` of a micro-batch, and returns their mean loss:

    class Objective(nn.Module):
        def __init__(self, model: nn.Module, recipe: Any, classes: int) -> None: ...
        def forward(self, images: Tensor, labels: Tensor) -> Tensor: ...

`recipe` has the fields of `replication.config.recipe.EpochTraining` and the paper's own. All else
is the loop's: steps, accumulation, precision, schedule, checkpoints, signals. The randomness of a
micro-batch follows from its number, so a resumed run ends in the same bits here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from replication.config.functions import import_function
from replication.training.distributed import Team
from replication.training.loop import TrainingLoop, require_start
from replication.training.model_factory import autocast
from replication.training.step import EpochTrainer

if TYPE_CHECKING:
    from replication.config.recipe_types import PaperTraining
    from replication.images.loading import MicroBatch
    from replication.training.dispatch import TrainingRun


def train(run: TrainingRun[PaperTraining]) -> Path:
    """Train a run, or go on where an earlier attempt ended.

    As `replication.training.loop.train`, whose errors these are; or the paper has no `Objective`.
    """
    require_start(run)
    return _ObjectiveLoop(run, Team.assemble(run.device)).complete()


class _ObjectiveLoop(TrainingLoop):
    """One model in training by the objective of its paper."""

    run: TrainingRun[PaperTraining]

    def _trainer(self, model: nn.Module, steps_per_epoch: int) -> ObjectiveTrainer:
        run, module = self.run, self.run.recipe.objective
        objective = import_function(f"{module}:Objective", f"{module.replace('.', '/')}.py")
        return ObjectiveTrainer(
            objective, model, run.recipe, run.seed, run.dataset.classes, steps_per_epoch, self.team
        )

    def _validate(self) -> dict[str, float]:
        """Nothing: only the paper's own measures know how to judge it."""
        return {}


class ObjectiveTrainer(EpochTrainer):
    """A paper's objective with its optimiser."""

    def __init__(
        self,
        objective: Callable[..., nn.Module],
        model: nn.Module,
        recipe: PaperTraining,
        seed: int,
        classes: int,
        steps_per_epoch: int,
        team: Team,
    ) -> None:
        module = objective(model.to(team.device), recipe, classes)
        super().__init__(module, model, recipe, seed, steps_per_epoch, team)

    def _loss(self, batch: MicroBatch) -> Tensor:
        images = batch.images.to(self.device, non_blocking=True)
        labels = batch.labels.to(self.device, non_blocking=True)
        with autocast(self.device.type, self.precision):
            loss: Tensor = self.parallel(images, labels)
        return loss.float()

    def state(self) -> dict[str, Any]:
        """As `EpochTrainer.state`, with all of the objective."""
        return {**super().state(), "objective": self.module.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """As `EpochTrainer.restore`."""
        super().restore(state)
        self.module.load_state_dict(state["objective"])
