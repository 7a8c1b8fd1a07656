"""A training's hyperparameters as numbers for a table (Nordström et al., Table 6).

Optimiser, schedule, loss, mixing, transforms and model are built as training builds them, and the
numbers are read from these objects. So the table shows what the training really uses.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.data import Mixup
from timm.loss import BinaryCrossEntropy
from timm.optim import Lamb
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.optim import AdamW
from torchvision.transforms import ColorJitter

from replication.config.recipes.classification import ClassificationRecipe
from replication.context import Described, Values
from replication.images.transforms import train_transform
from replication.training.model_factory import build_model
from replication.training.optimizer import build_optimizer, build_scheduler
from replication.training.step import build_loss, build_mixing


def hyperparameters(described: Described[ClassificationRecipe]) -> Values:
    """Return a recipe's hyperparameters (octic, App. E.1).

    Returns:
        ``batch_size``, ``lr`` (the peak rate, without `group_lr`), ``weight_decay``, ``epochs``,
        ``warmup_epochs``, ``thousand_images`` (images of the training split / 1000), ``drop_path``
        (the highest rate of a block), ``repeats``, ``clip_grad`` (0 is none), ``mixup`` and
        ``cutmix`` (alpha), ``color_jitter`` (strength); ``lamb``, ``adamw``, ``cosine``,
        ``binary_cross_entropy``, ``repeated_augmentation`` as 1 or 0.

    Raises:
        VitrailError: there is no such model or optimiser, or it refuses its arguments.
    """
    recipe, info = described.recipe, described.info
    with torch.device("meta"):
        model: Any = build_model(recipe, info.classes)
    # A small layer instead of the model: some optimisers refuse meta tensors. Patterns of
    # `group_lr` would not match its parameters.
    plain = recipe.optimizer.model_copy(update={"group_lr": {}})
    optimizer = build_optimizer(nn.Linear(1, 1), recipe.model_copy(update={"optimizer": plain}))
    scheduler = build_scheduler(optimizer, recipe, steps_per_epoch=1)
    mixing: Any = build_mixing(recipe, info.classes)
    mixed = isinstance(mixing, Mixup)
    steps = train_transform(recipe, info).transforms
    # Brightness, contrast and saturation have the same strength.
    jitters = [step for step in steps if isinstance(step, ColorJitter)]
    return {
        "batch_size": recipe.batch.size,
        "lamb": int(isinstance(optimizer, Lamb)),
        "adamw": int(type(optimizer) is AdamW),
        "lr": max(group["initial_lr"] for group in optimizer.param_groups),
        "cosine": int(isinstance(scheduler, CosineLRScheduler)),
        "weight_decay": max(group["weight_decay"] for group in optimizer.param_groups),
        "epochs": recipe.schedule.epochs,
        "thousand_images": info.train_images / 1000,
        "warmup_epochs": getattr(scheduler, "warmup_t", 0),
        "drop_path": max(getattr(module, "drop_prob", 0.0) for module in model.modules()),
        "repeats": recipe.augmentation.repeats,
        "repeated_augmentation": int(recipe.augmentation.repeats > 1),
        "clip_grad": recipe.optimizer.clip_grad or 0,
        "mixup": mixing.mixup_alpha if mixed else 0,
        "cutmix": mixing.cutmix_alpha if mixed else 0,
        "color_jitter": round(jitters[0].brightness[1] - 1, 6) if jitters else 0.0,
        "binary_cross_entropy": int(isinstance(build_loss(recipe), BinaryCrossEntropy)),
    }
