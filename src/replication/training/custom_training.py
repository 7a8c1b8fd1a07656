"""The engine for recipes whose loss is defined by a paper's own module.

A paper's ``training.py`` has a class `Objective`, an `nn.Module` that holds the model and
whatever else is trained or saved with it (heads, frozen copies, buffers). It is called with the
images ``(B, 3, H, W)`` and the labels ``(B,)`` of a micro-batch, and returns their mean loss:

    class Objective(nn.Module):
        def __init__(self, model: nn.Module, recipe: Any, classes: int) -> None: ...
        def forward(self, images: Tensor, labels: Tensor) -> Tensor: ...

`recipe` has the fields of `replication.config.recipe.EpochTraining` and the paper's own. The
training loop does the rest: steps, accumulation, precision, schedule, checkpoints, signals. The
randomness of a micro-batch depends on the seed, the step and its index only, so a resumed run ends
with the same bits as an uninterrupted one.
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
    """Train a run, or resume it from its last checkpoint; return the path of its weights.

    Raises VitrailError as `replication.training.loop.train` does, or if the paper's module has no
    class `Objective`.
    """
    require_start(run)
    return _ObjectiveLoop(run, Team.assemble(run.device)).complete()


class _ObjectiveLoop(TrainingLoop):
    """The training of one model with the objective of its paper."""

    run: TrainingRun[PaperTraining]

    def _trainer(self, model: nn.Module, steps_per_epoch: int) -> ObjectiveTrainer:
        run, module = self.run, self.run.recipe.objective
        objective = import_function(f"{module}:Objective", f"{module.replace('.', '/')}.py")
        return ObjectiveTrainer(
            objective, model, run.recipe, run.seed, run.dataset.classes, steps_per_epoch, self.team
        )

    def _validate(self) -> dict[str, float]:
        """Return no scores: only the paper's own measures can evaluate the model."""
        return {}


class ObjectiveTrainer(EpochTrainer):
    """A paper's objective with its optimiser; `objective` makes it from model, recipe, classes."""

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
        """Return `EpochTrainer.state` and the state dict of the whole objective."""
        return {**super().state(), "objective": self.module.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the trainer and the objective from what `state` returned."""
        super().restore(state)
        self.module.load_state_dict(state["objective"])
