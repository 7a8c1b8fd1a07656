"""The engine for segmentation: MMSegmentation's models, trained by mmengine's Runner.

All but the step itself is as for classifiers: the run folder and its lock, sealed checkpoints, the
log, signals, facts. A resumed run restores model and optimiser, and everything else depends on the
seed and the step's number: on a CPU it ends with the same bits as an uninterrupted run.
"""

from __future__ import annotations

import io
import tempfile
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmengine.device.utils
import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from mmseg.registry import DATASETS
from torch import Tensor, nn

from replication.context import Trained
from replication.datasets.verify import check_layout
from replication.training.distributed import Interruption, Team
from replication.training.run_folder import RunFolder
from replication.training.segmentation.accuracy import Areas, ValidationSamples, judge
from replication.training.segmentation.config import initial_segmenter, test_config, training_config
from replication.training.training_log import LOG_STEPS, Losses, TrainingLog
from replication.training.validation import is_due
from vitrail.errors import VitrailError, first_line
from vitrail.files import atomic_path, write_atomically
from vitrail.measures.outputs import out_of_memory
from vitrail.seeding import seed_everything

if TYPE_CHECKING:
    from replication.config.recipes.segmentation import SegmentationRecipe
    from replication.training.dispatch import TrainingRun


def train(run: TrainingRun[SegmentationRecipe]) -> Path:
    """Train a run, or resume it from its last checkpoint; return the path of its weights.

    Behaviour and errors are those of `replication.training.loop.train`. `run.initial` holds the
    published weights of the backbone, or of the whole segmenter if the recipe has zero steps. If it
    is None, the seed draws all weights.

    The run folder also gets training_config.py, the configuration as mmengine resolved it, and two
    files for mmseg's tools and `init_model`: config.py and mmseg.pth, the weights as a checkpoint
    of mmengine.
    """
    loop = _SegmentationLoop(run, Team.assemble(run.device))
    with loop.held() as unfinished:
        if unfinished and run.recipe.schedule.steps:
            loop.train()
        elif unfinished:
            loop.keep_initial_weights()
    return loop.weights


class _Runner(Runner):
    """mmengine's Runner, which here does not write configuration and software versions.

    config.py and the run's facts hold them.
    """

    def dump_config(self) -> None:
        """Write nothing into the working directory, which is temporary."""

    def _log_env(self, env_cfg: dict[str, Any]) -> None:
        """Do nothing; the Runner would call compilers for their versions."""


class _SegmentationLoop(RunFolder, Hook):
    """The training of one segmenter, as a hook that the Runner calls before and after each step.

    Before a step it seeds the generators; after it, it logs, validates, saves and stops.
    """

    run: TrainingRun[SegmentationRecipe]
    state: dict[str, Any] | None  # the checkpoint's state, None once it is restored
    samples: ValidationSamples | None = None
    signal, done, lr = 0, 0, 0.0

    def keep_initial_weights(self) -> None:
        """Save the initial weights as the run's result, without training."""
        model = self.team.on_all_ranks(lambda: initial_segmenter(self.run))
        self.team.on_rank_zero(lambda: self.finish(model.state_dict(), 0))

    def finish(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Write the results, and config.py and mmseg.pth for mmseg's tools."""
        run = self.run
        config = test_config(run.recipe, run.dataset, run.data_root, run.seed)
        known = DATASETS.get(config.test_dataloader.dataset.type).METAINFO
        text = config.pretty_text  # read once: each access formats it again, in 0.25 s
        meta = {"iter": steps, "seed": run.seed, "dataset_meta": known, "cfg": text}
        content = io.BytesIO()
        state = {name: value.detach().cpu() for name, value in weights.items()}
        torch.save({"meta": meta, "state_dict": state}, content)
        with atomic_path(run.folder / "mmseg.pth") as partial_file:
            partial_file.write_bytes(content.getvalue())
        write_atomically(run.folder / "config.py", text)
        super().finish(weights, steps)

    def train(self) -> None:
        """Take the remaining steps, up to `run.stop_after`; after the last, save the weights."""
        run, team = self.run, self.team
        config = team.on_all_ranks(
            lambda: training_config(run, team.world, team.device.type == "cuda")
        )
        steps, size = run.recipe.steps(run.dataset.train_images), run.recipe.batch.size
        self.per_epoch = max(1, run.dataset.train_images // size)
        self.checkpoint = team.on_rank_zero(self.checkpoints.latest)
        first, self.state = self.checkpoints.load(self.checkpoint) if self.checkpoint else (0, None)
        silent = not team.is_rank_zero
        with (
            tempfile.TemporaryDirectory(prefix="vitrail-") as config.work_dir,
            Interruption() as self.interruption,
            TrainingLog(
                run.folder, first, steps, self.per_epoch, size, silent=silent
            ) as self.journal,
        ):
            team.on_all_ranks(lambda: check_layout(run.dataset, run.data_root))
            runner = self._runner(config)
            runner.register_hook(self, "LOWEST")
            try:
                runner.train()
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)
                raise self._too_little_memory() from None
            finally:
                runner.train_loop.dataloader_iterator = None  # ends its workers
            if self.signal:
                self.journal.say(f"stopped by signal {self.signal}; step {self.done} is saved")
                raise SystemExit(128 + self.signal)

    def _too_little_memory(self) -> VitrailError:
        images = self.run.recipe.batch.size // self.team.world
        return VitrailError(
            f"{self.team.device} has too little memory for {images} images: start more processes "
            "or lower batch.size"
        )

    def _runner(self, config: Any) -> Runner:
        """Build the Runner with its loop, optimiser and schedules; the processes communicate here.

        Raises VitrailError if the configuration cannot be trained or the memory does not suffice.
        """
        if self.team.is_rank_zero:
            write_atomically(self.run.folder / "training_config.py", config.pretty_text)
        mmengine.device.utils.DEVICE = self.team.device.type  # else mmengine takes a GPU if it can
        # Without it, runs that begin in the same second and process share Runner's global objects.
        config.experiment_name = Path(config.work_dir).name
        try:
            runner = _Runner.from_cfg(config)
            # Build now what the Runner would build when it trains, so that its errors arise here.
            runner.train_loop  # noqa: B018 - a property that builds
            runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
            runner.param_schedulers = runner.build_param_scheduler(runner.param_schedulers)
        except Exception as error:  # the configuration's parts may raise anything
            if out_of_memory(error):
                raise self._too_little_memory() from None
            raise VitrailError(
                f"configuration '{self.run.recipe.model.name}' cannot be trained "
                f"({first_line(error)}): correct the file, or model.args and options of the recipe"
            ) from None
        return runner

    def before_train(self, runner: Runner) -> None:
        """Restore the checkpoint's state, if there is one, before the first step."""
        losses: list[float] = []
        if self.state is not None:
            losses = self.state.pop("losses")
            self.team.on_all_ranks(partial(self._restore, runner, self.state))
        self.state = None
        self.done = runner.iter
        self.losses = Losses(self.team, self.done, losses)
        self.team.on_rank_zero(partial(self.attempts.begin, self.done))
        self.saved_at = time.monotonic()
        stop_after = self.run.stop_after
        runner.train_loop.stop_training = stop_after is not None and self.done >= stop_after

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Seed the generators by the run's seed, the step's number and the rank."""
        seed_everything("step", self.run.seed, batch_idx, self.team.rank)
        self.lr = runner.optim_wrapper.get_lr()["lr"][0]

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Record the loss; log, validate, save and stop when due."""
        self.done, steps = batch_idx + 1, runner.max_iters
        self.losses.add(outputs["loss"].detach().float())
        end = self.done in (steps, self.run.stop_after)
        due = end or time.monotonic() - self.saved_at >= 60 * self.run.options.checkpoint_minutes
        signal = self.interruption.signal
        self.signal, save = self.team.largest(signal, due or signal > 0)
        log = 0 in (self.done % LOG_STEPS, self.done % self.per_epoch) or self.done == steps
        if save or log or self.team.device.type == "cpu":
            self._require(self.losses.read())
        if log:
            self.journal.record(self.done, self.losses.mean(), self.lr)
        if (
            is_due(self.done, self.run.options.validate_every, self.per_epoch, steps)
            and not self.signal
        ):
            self.journal.validated(self.done, self._validate(_model_of(runner)))
        if log or save:
            self.team.on_rank_zero(partial(self.attempts.note, self.done))
        if save:
            self._save(runner)
        runner.train_loop.stop_training = end or self.signal > 0

    def _validate(self, model: nn.Module) -> dict[str, float]:
        """Return mIoU, mAcc and aAcc on the validation split; each process takes its share."""
        team, run = self.team, self.run
        device = str(team.device)
        trained = Trained(device, run.data_root, run.seed, run.recipe, run.dataset, model)
        model.eval()
        areas = team.on_all_ranks(partial(self._judge_share, trained))
        model.train()
        areas.totals = team.sum(areas.totals)
        return areas.values()

    def _judge_share(self, trained: Trained[SegmentationRecipe]) -> Areas:
        if self.samples is None:
            self.samples = ValidationSamples(trained)
        chosen = range(self.team.rank, len(self.samples), self.team.world)
        return judge(trained, self.samples, chosen)

    def _restore(self, runner: Runner, state: dict[str, Any]) -> None:
        try:
            _model_of(runner).load_state_dict(state["state_dict"])
            runner.optim_wrapper.load_state_dict(state["optimizer"])
            states = state["param_schedulers"]
            for scheduler, own in zip(runner.param_schedulers, states, strict=True):
                scheduler.load_state_dict(own)
        except (RuntimeError, MemoryError, ValueError, KeyError) as error:
            if out_of_memory(error):
                raise self._too_little_memory() from None
            raise VitrailError(
                f"{self.checkpoint} does not fit configuration '{self.run.recipe.model.name}' "
                f"({first_line(error)}): the code has changed since; delete "
                f"{self.checkpoints.folder} to train from the start"
            ) from None
        runner.train_loop._iter = state["meta"]["iter"]

    def _save(self, runner: Runner) -> None:
        """Save the results after the last step, otherwise a checkpoint in mmengine's format."""
        weights = _model_of(runner).state_dict()
        for name, value in weights.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                self._require(f"{name} is not finite after step {self.done}")
        if self.done == runner.max_iters:
            self.team.on_rank_zero(lambda: self.finish(weights, self.done))
            return
        state = {
            "meta": {"iter": self.done, "epoch": 0, "seed": self.run.seed},
            "state_dict": weights,
            "optimizer": runner.optim_wrapper.state_dict(),
            "param_schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers],
            "message_hub": {"log_scalars": {}, "runtime_info": {}, "resumed_keys": {}},
            "losses": self.losses.unlogged,
        }
        self.checkpoint = self.team.on_rank_zero(lambda: self.checkpoints.save(self.done, state))
        self.saved_at = time.monotonic()

    def _require(self, fault: str | None) -> None:
        """Raise VitrailError if there is a `fault`: the training has diverged.

        Checkpoints saved earlier are kept.
        """
        if fault:
            raise VitrailError(
                f"{self.run.folder}: {fault} (lr {self.lr:.3g}), the last good checkpoint is "
                f"{self.checkpoint}: lower options.optim_wrapper.optimizer.lr, or lengthen the "
                "warm-up in options.param_scheduler"
            )


def _model_of(runner: Runner) -> nn.Module:
    return runner.model.module if is_model_wrapper(runner.model) else runner.model
