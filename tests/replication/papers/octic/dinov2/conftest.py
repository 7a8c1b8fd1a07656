import socket
from typing import Any

import pytest

from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from tests.recipes import recipe_fixtures

BASE: dict[str, Any] = {
    "model": {
        "name": "octic_i8_vit_large_patch16_224",
        "args": {
            "img_size": 16,
            "patch_size": 4,
            "embed_dim": 32,
            "depth": 2,
            "num_heads": 2,
            "init_values": 1.0,
            "mlp_ratio": 2.0,
            "init_std": 0.15,
            "cls_std": 1e-6,
        },
    },
    "data": {"dataset": "digits", "image_size": 16, "crop_pct": 1.0},
    "crops": {
        "local_count": 2,
        "local_size": 8,
        "global_scale": [0.6, 1],
        "local_scale": [0.3, 0.7],
        "hflip": 0,
        "color_jitter": [0, 0, 0, 0],
        "color_jitter_prob": 0,
        "gray_prob": 0,
        "blur_prob": [0, 0, 0],
        "solarize_prob": 0,
    },
    "masks": {"probability": 0.5, "ratio": [0.1, 0.5]},
    "head": {"hidden": 16, "bottleneck": 8, "prototypes": 12},
    "teacher": {
        "momentum": [0.9, 1.0],
        "temperature": [0.02, 0.02],
        "temperature_steps": 1,
        "centering": "sinkhorn",
    },
    "koleo_weight": 0.05,
    "drop_path": 0.25,
    "optimizer": {
        "lr": 2e-3,
        "weight_decay": [0.04, 0.1],
        "layer_decay": 1.0,
        "patch_embed_scale": 1.0,
        "clip_grad": 3.0,
    },
    "schedule": {
        "steps": 6,
        "warmup_steps": 2,
        "min_lr": 0.0,
        "freeze_last_layer_steps": 1,
        "save_teacher_steps": 3,
    },
    "batch": {"size": 16, "micro": 8},
}


make_recipe, recipe, info = recipe_fixtures(SelfSupervisionRecipe, BASE, "digits")


@pytest.fixture
def free_port() -> int:
    """A port that no other process listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
