"""Published weights of timm's models, for a backbone's ``init_cfg``.

    init_cfg = dict(type="Pretrained", checkpoint="swin_tiny_patch4_window7_224.pth")

The checkpoint is a file or a URL, ``.safetensors`` or what `torch.save` wrote, as timm publishes
them or as the models' authors did; its head is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import safetensors.torch
from mmengine.runner import CheckpointLoader
from torch import Tensor, nn

from vitrine.errors import VitrineError


def load_weights(
    model: nn.Module, init_cfg: Mapping[str, Any], filter_fn: Callable[..., dict[str, Tensor]]
) -> None:
    """Load published weights into a model of timm's without its head.

    Args:
        model: gets all its parameters from the checkpoint.
        init_cfg: mmengine's, of type ``Pretrained``.
        filter_fn: timm's, of the model's family.

    Raises:
        VitrineError: `init_cfg` is of another type, or the checkpoint is of another model.
    """
    if init_cfg["type"] != "Pretrained":
        raise VitrineError(
            f"backbone.init_cfg.type '{init_cfg['type']}' is unknown; use 'Pretrained', or leave "
            "init_cfg out for random weights"
        )
    file = str(init_cfg["checkpoint"])
    if file.endswith(".safetensors"):
        published = safetensors.torch.load_file(file)
    else:
        published = CheckpointLoader.load_checkpoint(file, map_location="cpu")
    weights = filter_fn(published, model)
    ours = model.state_dict()
    missing = [name for name in ours if name not in weights]
    if missing:
        raise VitrineError(
            f"{file} lacks {len(missing)} of the {len(ours)} weights of the backbone, such as "
            f"{missing[0]}; give backbone.init_cfg.checkpoint the weights of this very model"
        )
    unfit = [name for name in ours if ours[name].shape != weights[name].shape]
    if unfit:
        raise VitrineError(
            f"{unfit[0]} has shape {tuple(weights[unfit[0]].shape)} in {file} and "
            f"{tuple(ours[unfit[0]].shape)} in the backbone; give backbone.init_cfg.checkpoint "
            "the weights of this very model"
        )
    model.load_state_dict({name: weights[name] for name in ours})
