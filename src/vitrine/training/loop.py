"""The training of a run, from an empty folder or a checkpoint to its weights.

Everything that a step does follows from the recipe, the seed, the step's number and the state that
`Trainer` holds. So a run may be cut anywhere and resumed: on a CPU its weights are then bit for bit
those of an uninterrupted run.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor, nn

from vitrine import data
from vitrine.data.loading import TrainingSamples, micro_batches, steps_per_epoch
from vitrine.data.transforms import train_transform
from vitrine.errors import VitrineError
from vitrine.files import clear_temporaries, sha256, write_atomically
from vitrine.provenance import peak_memory_bytes, provenance, read_provenance
from vitrine.training.attempts import Attempts
from vitrine.training.checkpoint import Checkpoints
from vitrine.training.interruption import Interruption, shielded
from vitrine.training.journal import Journal
from vitrine.training.lock import exclusive
from vitrine.training.model import (
    build_from,
    build_model,
    build_pretrained,
    check_image_size,
    first_line,
    save_weights,
    weights_owner,
)
from vitrine.training.seeding import seed_everything
from vitrine.training.step import Trainer, accumulation
from vitrine.training.team import Team

if TYPE_CHECKING:
    from vitrine.data.loading import MicroBatch
    from vitrine.data.registry import DatasetInfo
    from vitrine.recipe import Recipe

LOG_STEPS = 50  # between entries of the log; the end of an epoch makes one too


def train(
    recipe: Recipe,
    seed: int,
    folder: Path,
    *,
    info: DatasetInfo,
    data_root: Path,
    device: str = "cpu",
    workers: int = 0,
    checkpoint_seconds: float = 600.0,
    initial: Path | None = None,
    stop_after: int | None = None,
) -> Path:
    """Train the recipe with a seed in a run folder, or go on where an earlier attempt ended.

    Started by torchrun, its processes share each step. A finished run is left as it is. With zero
    epochs the weights that training would start from are the result.

    Args:
        recipe: what to train.
        seed: decides all randomness.
        folder: the run folder; gets recipe.yaml, log.jsonl, weights.safetensors (the moving
            average if the recipe has one) and provenance.json.
        info: the recipe's dataset.
        data_root: where the datasets lie.
        device: torch's name of the device.
        workers: processes that read and transform images, for each training process.
        checkpoint_seconds: time between checkpoints.
        initial: file of the weights that the recipe starts from: published ones, which None takes
            from timm's own store, or those of another run.
        stop_after: stop, with a checkpoint, once this many steps of the run are taken.

    Returns:
        The path of the weights (which `stop_after` may leave unwritten).

    Raises:
        VitrineError: the recipe does not fit model, dataset or device; the folder is locked, not
            writable or of another run; or the training has diverged.
        SystemExit: SIGTERM, SIGUSR1 or SIGINT came: 128 + its number, after a checkpoint.
    """
    if (info.name, info.version) != (recipe.data.dataset, recipe.data.version):
        raise VitrineError(
            f"the recipe wants dataset {recipe.data.dataset} version {recipe.data.version} and was "
            f"given {info.name} version {info.version}: correct data.dataset or data.version"
        )
    if recipe.model.weights_from and initial is None:
        raise VitrineError(
            f"the recipe starts from the weights of {recipe.model.weights_from} and was given "
            "none: pass their file as `initial`"
        )
    run = _Run(recipe, seed, folder, info, initial, Team.assemble(device))
    with ExitStack() as held:
        run.team.from_lead(lambda: held.enter_context(exclusive(folder)))
        if not run.team.from_lead(run.begin):
            if recipe.schedule.epochs:
                run.train(data_root, workers, checkpoint_seconds, stop_after)
            else:
                run.keep_initial_weights()
    return run.weights


class _Run:
    """One run in its folder, where only the team's lead writes."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        folder: Path,
        info: DatasetInfo,
        initial: Path | None,
        team: Team,
    ) -> None:
        self.recipe, self.seed, self.folder, self.info, self.team = recipe, seed, folder, info, team
        self.initial = initial
        self.weights = folder / "weights.safetensors"
        self.provenance = folder / "provenance.json"
        self.checkpoints = Checkpoints(folder / "checkpoints", recipe.hash, seed)
        self.attempts = Attempts(folder / "checkpoints" / "attempts.json", recipe.batch.size)
        self.last_checkpoint: Path | None = None

    def begin(self) -> bool:
        """Return whether the run is finished already; if not, note its recipe."""
        clear_temporaries(self.folder)
        if self.weights.exists():
            owner = weights_owner(self.weights)
            if owner != {"recipe_hash": self.recipe.hash, "seed": self.seed}:
                raise VitrineError(
                    f"{self.weights} is of recipe {owner.get('recipe_hash')}, seed "
                    f"{owner.get('seed')}, not of recipe {self.recipe.hash}, seed {self.seed}: "
                    "delete it or train in another folder"
                )
            if self.provenance.exists():
                started = (read_provenance(self.folder) or {}).get("initial_sha256")
                self._require_same_start(started, self.weights)
                self.checkpoints.clear()  # a kill may have come between writing and clearing
                return True
        resolved = yaml.safe_dump(self.recipe.model_dump(mode="json"), sort_keys=False)
        write_atomically(self.folder / "recipe.yaml", resolved)
        return False

    def _require_same_start(self, started: str | None, trained: Path) -> None:
        """Refuse what was trained from weights that another training has replaced since."""
        if started != self.digest_of_start:
            raise VitrineError(
                f"{trained} was trained from other weights than {self.initial} holds now: "
                f"delete {self.folder} to train it again"
            )

    @cached_property
    def digest_of_start(self) -> str | None:
        """The digest of the weights of another run that this one starts from, if it does."""
        return sha256(self.initial) if self.initial and self.recipe.model.weights_from else None

    def keep_initial_weights(self) -> None:
        """Save the weights that training would start from as the run's result."""
        model = self.team.together(self._initial_model)
        self.team.from_lead(lambda: self._finish(model.state_dict(), steps=0))

    def _initial_model(self) -> nn.Module:
        """Build the model that training starts from; the seed decides what no file does."""
        seed_everything("initial weights", self.seed)
        if self.recipe.model.pretrained:
            model = build_pretrained(self.recipe, self.info.classes, self.initial)
        elif self.initial is not None:
            model = build_from(self.recipe, self.info.classes, self.initial)
        else:
            model = build_model(self.recipe, self.info.classes)
        check_image_size(model.to(self.team.device), self.recipe, self.team.device)
        return model

    def train(
        self, data_root: Path, workers: int, checkpoint_seconds: float, stop_after: int | None
    ) -> None:
        """Take the steps that remain, and save the weights after the last."""
        recipe, team, size = self.recipe, self.team, self.recipe.batch.size
        share = team.together(lambda: accumulation(recipe, team.world))
        samples = team.together(lambda: self._samples(data_root))
        per_epoch = team.together(lambda: steps_per_epoch(len(samples), size))
        steps = recipe.schedule.epochs * per_epoch
        end = min(steps, stop_after or steps)
        model = team.together(self._initial_model)
        self.trainer = Trainer(model, recipe, self.seed, self.info.classes, per_epoch, team)
        first = self._resume()
        with shielded():  # it starts the workers
            stream = micro_batches(
                samples,
                size=size,
                micro=recipe.batch.micro,
                start=first,
                stop=end,
                rank=team.rank,
                world=team.world,
                workers=workers,
                pin_memory=team.device.type == "cuda",
            )
        saved_at = time.monotonic()
        with (
            Interruption() as interruption,
            Journal(self.folder, first, steps, per_epoch, size, silent=not team.leads) as journal,
        ):
            for done in range(first + 1, end + 1):
                self._step(done - 1, islice(stream, share))
                due = done == end or time.monotonic() - saved_at >= checkpoint_seconds
                signal, save = team.largest(interruption.signal, due or interruption.signal > 0)
                log = done % LOG_STEPS == 0 or done % per_epoch == 0
                # On a GPU, reading a loss waits for all that is queued there: not at every step.
                if save or log or team.device.type == "cpu":
                    self._require(self.losses.read(), self.losses.step)
                if log:
                    journal.record(done, self.losses.mean(), self.trainer.lr)
                if log or save:
                    team.from_lead(partial(self.attempts.note, done))
                if save:
                    self._save(done, finished=done == steps)
                    saved_at = time.monotonic()
                if signal:
                    journal.say(f"stopped by signal {signal}; step {done} of {steps} is saved")
                    raise SystemExit(128 + signal)

    def _samples(self, data_root: Path) -> TrainingSamples:
        """Open the training split under the recipe's augmentation."""
        images = data.build(self.info, "train", data_root)
        transform = train_transform(self.recipe, self.info)
        return TrainingSamples(images, transform, self.seed, self.recipe.augmentation.repeats)

    def _resume(self) -> int:
        """Go back to the newest sound checkpoint; return the number of steps taken."""
        step, unlogged = 0, []
        self.last_checkpoint = self.team.from_lead(self.checkpoints.latest)
        if self.last_checkpoint is not None:
            step, state = self.checkpoints.load(self.last_checkpoint)
            unlogged = state.pop("losses")
            self.team.together(partial(self._restore, state, self.last_checkpoint))
        self.losses = _Losses(self.team, step, unlogged)
        self.team.from_lead(partial(self.attempts.begin, step))
        return step

    def _restore(self, state: dict[str, Any], checkpoint: Path) -> None:
        self._require_same_start(state.pop("initial_sha256", None), checkpoint)
        try:
            self.trainer.restore(state)
        except (RuntimeError, ValueError, KeyError) as error:
            raise VitrineError(
                f"{checkpoint} does not fit model '{self.recipe.model.name}' and its optimiser "
                f"({first_line(error)}): their code has changed since; delete {checkpoint.parent} "
                "to train from the start"
            ) from None

    def _step(self, step: int, batches: Iterable[MicroBatch]) -> None:
        try:
            self.losses.add(self.trainer.step(step, batches))
        except torch.OutOfMemoryError:
            raise VitrineError(
                f"{self.team.device} has too little memory for micro-batches of "
                f"{self.recipe.batch.micro} images: set grad_checkpointing or lower batch.micro"
            ) from None

    def _require(self, fault: str | None, step: int) -> None:
        """Stop a training that has diverged at `step`; what it saved before then stays."""
        if fault:
            self.trainer.scheduler.step_update(step - 1)  # on a GPU, later steps are taken already
            raise VitrineError(
                f"{self.folder}: {fault} (lr {self.trainer.lr:.3g}), the last good checkpoint is "
                f"{self.last_checkpoint}: lower optimizer.lr, lengthen schedule.warmup_epochs or "
                "set optimizer.clip_grad"
            )

    def _save(self, step: int, finished: bool) -> None:
        """Save the results of a finished run, a checkpoint of another."""
        self._require(self.trainer.fault(step), step)
        if finished:
            self.team.from_lead(lambda: self._finish(self.trainer.weights(), step))
        else:
            state = {
                **self.trainer.state(),
                "losses": self.losses.unlogged,
                "initial_sha256": self.digest_of_start,
            }
            self.last_checkpoint = self.team.from_lead(lambda: self.checkpoints.save(step, state))

    def _finish(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Write the results, then drop the checkpoints, which they make worthless."""
        self.attempts.note(steps)
        save_weights(weights, self.weights, self.recipe, self.seed)
        origin = provenance(
            str(self.team.device),
            recipe_hash=self.recipe.hash,
            seed=self.seed,
            dataset=self.info.name,
            dataset_version=self.info.version,
            steps=steps,
            processes=self.team.world,
            peak_memory_bytes=peak_memory_bytes(str(self.team.device)),
            initial_sha256=self.digest_of_start,
            **self.attempts.summary(),
        )
        write_atomically(self.provenance, json.dumps(origin, indent=2) + "\n")
        self.checkpoints.clear()


class _Losses:
    """The losses of the steps: kept on the device until they are read, all at once.

    Args:
        team: the processes whose losses are averaged.
        step: steps taken before; later, the last step whose loss was read.
        unlogged: losses of those of them that no entry of the log has covered yet.
    """

    def __init__(self, team: Team, step: int, unlogged: list[float]) -> None:
        self.unlogged = unlogged
        self._team = team
        self.step = step
        self._unread: list[Tensor] = []

    def add(self, loss: Tensor) -> None:
        """Take the loss of the next step."""
        self._unread.append(loss)

    def read(self) -> str | None:
        """Average the losses over the team; return what is wrong with them, if anything is."""
        for loss in self._team.mean(torch.stack(self._unread)).tolist():
            self.step += 1
            self.unlogged.append(loss)
            if not math.isfinite(loss):
                return f"the loss is {loss} at step {self.step}"
        self._unread.clear()
        return None

    def mean(self) -> float:
        """Return the mean over the steps since the last call."""
        mean = sum(self.unlogged) / len(self.unlogged)
        self.unlogged.clear()
        return mean
