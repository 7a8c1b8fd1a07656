"""Trains a run, or resumes it from its last checkpoint.

A step depends only on the recipe, the seed, the step's number and the state that
`ClassifierTrainer` holds. So a run may be interrupted anywhere and resumed: on a CPU its weights
are then bit for bit those of an uninterrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from replication.epoch_length import require_batches, steps_per_epoch
from replication.images.caching import KeptSamples
from replication.images.loading import (
    EvaluationSamples,
    Relabelled,
    TrainingSamples,
    micro_batches,
)
from replication.images.opening import build
from replication.images.transforms import eval_transform, train_transform
from replication.training.distributed import Interruption, Team, shielded
from replication.training.model_card import write_config
from replication.training.model_factory import build_model, build_pretrained, check_image_size
from replication.training.run_folder import RunFolder
from replication.training.step import ClassifierTrainer
from replication.training.training_log import LOG_STEPS, Losses, TrainingLog
from replication.training.validation import is_due, validate
from replication.training.weights import build_from
from vitrail.errors import VitrailError, first_line
from vitrail.measures.outputs import out_of_memory
from vitrail.seeding import seed_everything

if TYPE_CHECKING:
    from replication.config.recipe import TimmTraining
    from replication.images.loading import MicroBatch
    from replication.training.dispatch import TrainingRun


def train(run: TrainingRun) -> Path:
    """Train a run, or resume it from its last checkpoint; return the path of its weights.

    Processes that torchrun has started share the work of each step. A finished run is not trained
    again. With zero epochs, the initial weights are the result. If the recipe has a moving average
    of the weights, the moving average is the result. The file of weights does not exist yet if
    `run.stop_after` ended the training early.

    After SIGTERM, SIGUSR1 or SIGINT, it saves a checkpoint and exits with status 128 + signal.

    Raises:
        VitrailError: the recipe does not fit the model, the dataset or the device; the run folder
            is locked, not writable or of another run; or the training has diverged.
    """
    require_start(run)
    return TrainingLoop(run, Team.assemble(run.device)).complete()


def require_start(run: TrainingRun[TimmTraining]) -> None:
    """Raise VitrailError if the recipe starts from another run's weights and `initial` is None."""
    if run.recipe.model.weights_from and run.initial is None:
        raise VitrailError(
            f"the recipe starts from the weights of {run.recipe.model.weights_from} and was given "
            "none: pass their file as `initial`"
        )


class TrainingLoop(RunFolder):
    """The training of one classifier; subclasses for other tasks replace samples or trainer."""

    run: TrainingRun[Any]
    remedy = "lower optimizer.lr, lengthen schedule.warmup_epochs or set optimizer.clip_grad"
    last_checkpoint: Path | None = None
    _validation: EvaluationSamples | None = None

    def complete(self) -> Path:
        """Train the run unless it is finished; return the path of the weights."""
        with self.held() as unfinished:
            if unfinished and self.run.recipe.schedule.epochs:
                self.train()
            elif unfinished:
                self.keep_initial_weights()
        return self.weights

    def keep_initial_weights(self) -> None:
        """Save the initial weights as the run's result, without training."""
        model = self.team.on_all_ranks(self._initial_model)
        self.team.on_rank_zero(lambda: self._keep_result(model, steps=0))

    def _keep_result(self, model: nn.Module, steps: int) -> None:
        """Write the results of the run, and the ``config.json`` by which timm opens them."""
        write_config(model, self.run.recipe, self.run.dataset, self.run.folder)
        self.finish(model.state_dict(), steps)

    def _initial_model(self) -> nn.Module:
        """Build the model that training starts from; the seed draws weights that no file gives."""
        recipe, classes, initial = self.run.recipe, self.run.dataset.classes, self.run.initial
        seed_everything("initial weights", self.run.seed)
        if recipe.model.pretrained:
            model = build_pretrained(recipe, classes, initial)
        elif initial is not None:
            model = build_from(recipe, classes, initial)
        else:
            model = build_model(recipe, classes)
        check_image_size(model.to(self.team.device), recipe, self.team.device)
        return model

    def train(self) -> None:
        """Take the remaining steps, up to `run.stop_after`; after the last, save the weights."""
        run, recipe, team, batch = self.run, self.run.recipe, self.team, self.run.recipe.batch
        share = team.on_all_ranks(lambda: batch.share(team.world))
        samples = team.on_all_ranks(self._samples)
        counts = len(samples), batch.size, batch.micro, batch.drop_last
        team.on_all_ranks(lambda: require_batches(*counts))
        per_epoch = steps_per_epoch(len(samples), batch.size, batch.drop_last)
        steps = recipe.steps(len(samples))
        end = min(steps, run.stop_after or steps)
        model = team.on_all_ranks(self._initial_model)
        self.trainer = self._trainer(model, per_epoch)
        first = self._resume()
        self._keep(first)
        with shielded():  # it starts the workers
            stream = micro_batches(
                samples,
                size=batch.size,
                micro=batch.micro,
                drop_last=batch.drop_last,
                start=first,
                stop=end,
                rank=team.rank,
                world=team.world,
                workers=run.options.workers,
                pin_memory=team.device.type == "cuda",
            )
        saved_at = time.monotonic()
        with (
            closing(stream),  # ends its workers
            Interruption() as interruption,
            TrainingLog(
                run.folder, first, steps, per_epoch, batch.size, silent=not team.is_rank_zero
            ) as journal,
        ):
            for done in range(first + 1, end + 1):
                self._step(done - 1, islice(stream, share))
                due = (
                    done == end
                    or time.monotonic() - saved_at >= 60 * run.options.checkpoint_minutes
                )
                signal, save = team.largest(interruption.signal, due or interruption.signal > 0)
                log = done % LOG_STEPS == 0 or done % per_epoch == 0 or done == steps
                # On a GPU, reading a loss waits for all queued work, so not at every step there.
                if save or log or team.device.type == "cpu":
                    self._require(self.losses.read(), self.losses.step)
                self._keep(done)
                if log:
                    mean, lr = self.losses.mean(), self.trainer.lr
                    journal.record(done, mean, lr, **self._signs(journal))
                if is_due(done, run.options.validate_every, per_epoch, steps) and not signal:
                    journal.validated(done, self._validate())
                if log or save:
                    team.on_rank_zero(partial(self.attempts.note, done))
                if save:
                    self._save(done, finished=done == steps)
                    saved_at = time.monotonic()
                if signal:
                    journal.say(f"stopped by signal {signal}; step {done} of {steps} is saved")
                    raise SystemExit(128 + signal)

    def _samples(self) -> TrainingSamples:
        """Open the training split with the recipe's augmentation.

        Raises VitrailError if its number of images differs from the dataset's `train_images`, from
        which the number of steps was planned.
        """
        dataset = self.run.dataset
        images = build(dataset, "train", self.run.data_root, self.run.seed)
        if self.run.recipe.data.shuffle_labels:
            images = Relabelled(images, self.run.seed)
        samples = self._augmented(images)
        if len(samples) != dataset.train_images:
            raise VitrailError(
                f"dataset '{dataset.name}' has {len(samples)} training images in "
                f"{self.run.data_root / dataset.folder}, and configs/datasets.yaml says "
                f"{dataset.train_images}: complete it, or correct train_images"
            )
        return samples

    def _augmented(self, images: Any) -> TrainingSamples:
        recipe, seed = self.run.recipe, self.run.seed
        transform, repeats = train_transform(recipe, self.run.dataset), recipe.augmentation.repeats
        if getattr(images, "redraws", False):
            return TrainingSamples(images, transform, seed, repeats)
        return KeptSamples(images, transform, seed, repeats)

    def _trainer(self, model: nn.Module, steps_per_epoch: int) -> Any:
        classes = self.run.dataset.classes
        return ClassifierTrainer(
            model, self.run.recipe, self.run.seed, classes, steps_per_epoch, self.team
        )

    def _keep(self, step: int) -> None:
        """Do nothing; a subclass may save something else of the state after `step` steps."""

    def _signs(self, journal: TrainingLog) -> dict[str, float]:
        """Return further values for the log entry; none here."""
        return {}

    def _validate(self) -> dict[str, float]:
        """Return the scores, on the validation split, of the model that the run would save now."""
        run = self.run
        if self._validation is None:
            images = self.team.on_all_ranks(
                lambda: build(run.dataset, "val", run.data_root, run.seed)
            )
            transform = eval_transform(run.recipe, run.dataset)
            self._validation = EvaluationSamples(images, transform)
        return validate(self.trainer.result, self._validation, self.team, run)

    def _resume(self) -> int:
        """Restore the newest undamaged checkpoint; return its step, 0 if there is none."""
        step, unlogged = 0, []
        self.last_checkpoint = self.team.on_rank_zero(self.checkpoints.latest)
        if self.last_checkpoint is not None:
            step, state = self.checkpoints.load(self.last_checkpoint)
            unlogged = state.pop("losses")
            self.team.on_all_ranks(partial(self._restore, state, self.last_checkpoint))
        self.losses = Losses(self.team, step, unlogged)
        self.team.on_rank_zero(partial(self.attempts.begin, step))
        return step

    def _restore(self, state: dict[str, Any], checkpoint: Path) -> None:
        self.require_same_start(state.pop("initial_sha256", None), checkpoint)
        try:
            self.trainer.restore(state)
        except (RuntimeError, MemoryError, ValueError, KeyError) as error:
            if out_of_memory(error):
                raise self._too_little_memory() from None
            raise VitrailError(
                f"{checkpoint} does not fit model '{self.run.recipe.model.name}' and its optimiser "
                f"({first_line(error)}): their code has changed since; delete {checkpoint.parent} "
                "to train from the start"
            ) from None

    def _step(self, step: int, batches: Iterable[MicroBatch]) -> None:
        try:
            self.losses.add(self.trainer.step(step, batches))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise self._too_little_memory() from None

    def _too_little_memory(self) -> VitrailError:
        return VitrailError(
            f"{self.team.device} has too little memory for micro-batches of "
            f"{self.run.recipe.batch.micro} images: set grad_checkpointing or lower batch.micro"
        )

    def _require(self, fault: str | None, step: int) -> None:
        """Raise VitrailError if there is a `fault` at `step`: the training has diverged.

        Checkpoints saved earlier are kept.
        """
        if fault:
            # The message gives the rate of `step`; on a GPU, later steps may already be taken.
            self.trainer.scheduler.step_update(step - 1)
            raise VitrailError(
                f"{self.run.folder}: {fault} (lr {self.trainer.lr:.3g}), the last good checkpoint "
                f"is {self.last_checkpoint}: {self.remedy}"
            )

    def _save(self, step: int, finished: bool) -> None:
        """Save the results if the run is `finished`, otherwise a checkpoint."""
        self._require(self.trainer.fault(step), step)
        if finished:
            self.team.on_rank_zero(lambda: self._keep_result(self.trainer.result, step))
        else:
            start, losses = self.digest_of_start, self.losses.unlogged
            state = {**self.trainer.state(), "losses": losses, "initial_sha256": start}
            self.last_checkpoint = self.team.on_rank_zero(
                lambda: self.checkpoints.save(step, state)
            )
