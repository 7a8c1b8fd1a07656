"""The engine for self-supervision: a student is trained to predict the outputs of a teacher.

The teacher is a moving average of the student. A step is a global batch, divided into micro-batches
that correspond to the batch of one GPU in DINOv2: masks, KoLeo loss and the images that skip a
branch are drawn for each micro-batch separately. The teacher runs on all micro-batches of a process
first, because the targets depend on the micro-batches of all processes. So any number of processes
computes the same step, up to the order of sums.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from replication.images.loading import TrainingSamples
from replication.papers.octic.dinov2.crops import Masked, MultiCrop, by_view, masks
from replication.papers.octic.dinov2.losses import dino_losses, ibot_loss, koleo_loss, targets_of
from replication.papers.octic.dinov2.network import (
    OPTIONS,
    Network,
    build_model,
    compile_blocks,
    drop_paths,
    teacher_file,
)
from replication.papers.octic.dinov2.optimizer import Schedules, build_optimizer, follow
from replication.training.distributed import Team
from replication.training.loop import TrainingLoop, require_start
from replication.training.model_factory import autocast, build_pretrained, check_image_size
from replication.training.step import checkpoint_gradients, fault_in, synchronised
from replication.training.weights import build_from, save_weights
from vitrail.seeding import seed_everything

if TYPE_CHECKING:
    from replication.config.recipes.self_supervision import SelfSupervisionRecipe
    from replication.images.loading import MicroBatch
    from replication.training.dispatch import TrainingRun
    from replication.training.training_log import TrainingLog

SAVED = ("student", "teacher", "targets", "optimizer")  # all else depends on the step's number


def train(run: TrainingRun[SelfSupervisionRecipe]) -> Path:
    """Train a run, or resume it; return the path of its weights (octic, Sec. 4.2).

    Behaviour and errors are those of `replication.training.loop.train`. The weights are those of
    the teacher's backbone; earlier teachers are saved at `teacher_file`. With zero steps the
    weights are the initial ones, such as published ones.
    """
    require_start(run)
    loop = _SelfSupervisionLoop(run, Team.assemble(run.device))
    with loop.held() as unfinished:
        if unfinished and run.recipe.schedule.steps:
            loop.train()
        elif unfinished:
            loop.keep_initial_weights()
    return loop.weights


class _SelfSupervisionLoop(TrainingLoop):
    """The training of one backbone by self-supervision."""

    run: TrainingRun[SelfSupervisionRecipe]
    trainer: SelfSupervisionTrainer
    remedy = "lower optimizer.lr or lengthen schedule.warmup_steps"

    def _initial_model(self) -> nn.Module:
        recipe, initial = self.run.recipe, self.run.initial
        seed_everything("initial weights", self.run.seed)
        if recipe.model.pretrained:
            backbone = build_pretrained(recipe, 0, initial, **OPTIONS)
        else:
            backbone = build_from(recipe, 0, initial) if initial else build_model(recipe, 0)
        check_image_size(backbone.to(self.team.device), recipe, self.team.device)
        return Network(recipe, backbone)

    def _keep_result(self, model: nn.Module, steps: int) -> None:
        if isinstance(model, Network):  # zero steps: the initial backbone is also teacher 0
            model = model.backbone
            file = teacher_file(self.run.folder, 0)
            save_weights(model.state_dict(), file, self.run.recipe, self.run.seed)
        super()._keep_result(model, steps)

    def _augmented(self, images: Any) -> TrainingSamples:
        transform: Any = MultiCrop(self.run.recipe, self.run.dataset)
        return TrainingSamples(images, transform, self.run.seed)

    def _trainer(self, model: nn.Module, steps_per_epoch: int) -> SelfSupervisionTrainer:
        assert isinstance(model, Network)
        return SelfSupervisionTrainer(model, self.run.recipe, self.run.seed, self.team)

    def _keep(self, step: int) -> None:
        schedule, file = self.run.recipe.schedule, teacher_file(self.run.folder, step)
        if step % schedule.save_teacher_steps == 0 and self.team.is_rank_zero:
            teacher = self.trainer.result.state_dict()
            save_weights(teacher, file, self.run.recipe, self.run.seed)

    def _validate(self) -> dict[str, float]:
        """Return no scores: teachers are saved meanwhile, for the measure `progress`."""
        return {}

    def _signs(self, journal: TrainingLog) -> dict[str, float]:
        signs = self.trainer.signs()
        past_warmup = self.losses.step > self.run.recipe.schedule.warmup_steps
        if past_warmup and (fault := collapse(signs, self.run.recipe.head.prototypes)):
            journal.say(f"the features collapse: {fault}; raise koleo_weight, lower optimizer.lr")
        return signs


class SelfSupervisionTrainer:
    """Student, teacher, targets and optimiser; `step` takes one optimiser step with them."""

    def __init__(
        self, network: Network, recipe: SelfSupervisionRecipe, seed: int, team: Team
    ) -> None:
        self.recipe, self.seed, self.team = recipe, seed, team
        self.accumulation = recipe.batch.share(team.world)
        self.student = network.to(team.device).train()
        self.teacher = copy.deepcopy(self.student).eval().requires_grad_(False)
        drop_paths(self.student.backbone, recipe.drop_path)
        if recipe.grad_checkpointing:
            checkpoint_gradients(self.student.backbone, recipe.model.name)
        if recipe.compile:
            compile_blocks(self.student.backbone)
            compile_blocks(self.teacher.backbone)
        targets = {name: targets_of(recipe) for name in ("cls", "patch")}
        self.targets = nn.ModuleDict(targets).to(team.device)
        self.optimizer = build_optimizer(self.student, recipe)
        self.scheduler = Schedules(recipe, self.optimizer)
        named = list(self.student.named_parameters())
        self.clipped = [  # gradients of the backbone and of the heads are clipped separately
            [parameter for name, parameter in named if name.startswith("backbone.") == of_backbone]
            for of_backbone in (True, False)
        ]
        self.parallel = DistributedDataParallel(self.student) if team.world > 1 else self.student
        self.parts: dict[str, Tensor] = {}
        self.last: tuple[Tensor, Tensor]  # targets of class tokens and features of the last step

    def step(self, step: int, batches: Iterable[MicroBatch]) -> Tensor:
        """Take a step on this process's micro-batches of it; return their mean loss."""
        self.scheduler.step_update(step)
        self.optimizer.zero_grad()
        micros = [self._seen(step, batch) for batch in batches]
        rows = zip(micros, *self._targets(step, micros), strict=True)
        parts = torch.zeros(4, device=self.team.device)
        for number, ((index, crops, masked), of_cls, of_patch) in enumerate(rows, 1):
            seed_everything("micro-batch", self.seed, step, index)
            with synchronised(self.parallel, number == self.accumulation):
                with autocast(self.team.device.type, self.recipe.precision):
                    seen = self.parallel(crops, [masked.mask, None][: len(crops)], masked.places)
                losses = self._losses(seen, of_cls, of_patch, masked)
                (losses.sum() / self.accumulation).backward()
            parts += losses.detach() / self.accumulation
        for parameters in self.clipped:
            nn.utils.clip_grad_norm_(parameters, self.recipe.optimizer.clip_grad)
        self.optimizer.step()
        follow(self.teacher, self.student, self.scheduler.momentum(step))
        self.parts = dict(zip(("dino_global", "dino_local", "ibot", "koleo"), parts, strict=True))
        return parts.sum()

    def _seen(self, step: int, batch: MicroBatch) -> tuple[int, list[Tensor], Masked]:
        """Return a micro-batch's index, its crops ordered by views, and masks of global crops."""
        device, spec = self.team.device, self.recipe.masks
        crops = [by_view(crop.to(device, non_blocking=True)) for crop in batch.images]
        patch = self.student.backbone.patch_embed.patch_size
        grid = (crops[0].shape[-2] // patch[0], crops[0].shape[-1] // patch[1])
        seed_everything("masks", self.seed, step, batch.index)
        mask = masks(len(crops[0]), grid, spec.probability, spec.ratio)
        return batch.index, crops, Masked.of(mask).to(device)

    @torch.no_grad()
    def _targets(
        self, step: int, micros: list[tuple[int, list[Tensor], Masked]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return for each micro-batch the teacher's targets of class tokens and masked patches."""
        with autocast(self.team.device.type, self.recipe.precision):
            seen = [self.teacher(crops[:1], [None], masked.places) for _, crops, masked in micros]
        temperature = self.scheduler.teacher_temperature(step)
        of_cls = self.targets["cls"]([view.logits[0] for view in seen], temperature, self.team)
        of_patch = self.targets["patch"](
            [view.patch_logits for view in seen], temperature, self.team
        )
        self.last = torch.cat(of_cls), torch.cat([view.features.chunk(2)[0] for view in seen])
        return of_cls, of_patch

    def _losses(self, seen: Any, of_cls: Tensor, of_patch: Tensor, masked: Masked) -> Tensor:
        """Return DINO's global and local loss, iBOT's loss and the weighted KoLeo loss, (4,)."""
        temperature = self.recipe.student_temperature
        first, *local = seen.logits
        dino = dino_losses(first, local[0] if local else first[:0], of_cls, temperature)
        ibot = ibot_loss(seen.patch_logits, of_patch, masked, temperature)
        koleo = sum(map(koleo_loss, seen.features.chunk(2)), start=first.new_zeros(()))
        return torch.stack([*dino, ibot, self.recipe.koleo_weight * koleo])

    @property
    def lr(self) -> float:
        """The learning rate of the last step, before layer decay."""
        return self.scheduler.lr

    def signs(self) -> dict[str, float]:
        """Return the parts of the last step's loss, and the values of `diversity`."""
        return {name: value.item() for name, value in self.parts.items()} | diversity(*self.last)

    def fault(self, step: int) -> str | None:
        """Return a message if a student's weight is not finite after `step` steps, else None."""
        return fault_in(self.student, step)

    @property
    def result(self) -> nn.Module:
        """The model that the run saves: the teacher's backbone."""
        backbone: nn.Module = self.teacher.backbone
        return backbone

    def state(self) -> dict[str, Any]:
        """Return all state that later steps depend on."""
        return {name: getattr(self, name).state_dict() for name in SAVED}

    def restore(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        for name in SAVED:
            getattr(self, name).load_state_dict(state[name])


def diversity(targets: Tensor, features: Tensor) -> dict[str, float]:
    """Measure how far targets ``(M, K)`` and features ``(B, C)`` of images are from collapse.

    Returns:
        ``teacher_entropy`` (mean of the targets'), ``marginal_entropy`` (of their mean),
        ``effective_rank`` (of the features, RankMe: Garrido et al., 2023) and ``mean_cosine`` (of
        pairs of them); entropies in nats.
    """
    mean = targets.mean(0)
    points = nn.functional.normalize(features, dim=-1)
    sum_of_cosines = points.sum(0).square().sum() - len(points)
    values = torch.linalg.svdvals(features.float())
    return {
        "teacher_entropy": torch.special.entr(targets).sum(-1).mean().item(),
        "marginal_entropy": torch.special.entr(mean).sum().item(),
        "effective_rank": torch.special.entr(values / values.sum()).sum().exp().item(),
        "mean_cosine": (sum_of_cosines / (len(points) * (len(points) - 1))).item(),
    }


def collapse(signs: dict[str, float], prototypes: int) -> str | None:
    """Return the first sign of collapse in `signs` (values of `diversity`), or None."""
    most = torch.tensor(float(prototypes)).log().item()
    faults = {
        "all targets are alike": signs["marginal_entropy"] < 0.05 * most,
        "the targets are uniform": signs["teacher_entropy"] > 0.99 * most,
        "all features are alike": signs["mean_cosine"] > 0.99,
        "the features have one dimension": signs["effective_rank"] < 1.5,
    }
    return next((fault for fault, there in faults.items() if there), None)
