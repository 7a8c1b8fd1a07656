"""Build models by timm, with the arguments, weights and precision that a recipe names."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import timm
import torch
from torch import nn

from replication.config.functions import HUBS
from vitrail.errors import VitrailError, first_line, require_known
from vitrail.model_names import require_model
from vitrail.provenance import require_gpu_build
from vitrail.weights_file import read_weights, require_as_noted

if TYPE_CHECKING:
    from replication.config.recipe import Model, TimmTraining

Precision = Literal["fp32", "bf16", "fp16"]


HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: str, precision: Precision) -> torch.autocast:
    """Return the context in which a model runs in `precision`, for training and for measures.

    Raises:
        VitrailError: there is no such precision.
    """
    require_known("precision", precision, get_args(Precision))
    half = HALF.get(precision)
    return torch.autocast(torch.device(device).type, half, enabled=half is not None)


def build_model(recipe: TimmTraining, classes: int) -> nn.Module:
    """Make the recipe's model with a head for `classes` classes, without pretrained weights.

    Its initial weights come from torch's global generator. Raises VitrailError if timm does not
    know the name, or the model refuses an argument.
    """
    return create(recipe.model, classes)


def image_shape(recipe: TimmTraining) -> tuple[int, int, int]:
    """Return (channels, height, width) of the model's input in training."""
    return 3, recipe.data.image_size, recipe.data.image_size


def build_pretrained(
    recipe: TimmTraining, classes: int, file: Path | None, **options: Any
) -> nn.Module:
    """Make the recipe's model with published weights.

    A head for another number of classes keeps its initial weights.

    Args:
        recipe: names the model.
        classes: number of classes of the head.
        file: the weights, as `replication.datasets.published_weights` writes them; None loads them
            from timm's own store.
        options: further arguments of `timm.create_model`.

    Raises:
        VitrailError: as `build_model`; or the weights cannot be read, do not fit the model, or
            differ from those that were fetched.
    """
    if file is None:
        return create(recipe.model, classes, pretrained=True, **options)
    require_as_noted(file)
    overlay = {"state_dict": read_weights(file)}
    options |= {"pretrained": True, "pretrained_cfg_overlay": overlay}
    return create(recipe.model, classes, **options)


def create(spec: Model, classes: int, **options: Any) -> nn.Module:
    """Make the model `spec` with further `options` of timm; errors as `build_pretrained`."""
    if not spec.name.startswith(HUBS):
        require_model(spec.name)
    try:
        model: nn.Module = timm.create_model(spec.name, num_classes=classes, **spec.args, **options)
    except OSError as error:  # the errors of huggingface_hub are OSErrors
        raise VitrailError(
            f"the pretrained weights of '{spec.name}' are neither here nor can they be fetched "
            f"({first_line(error)}): where there is a network run this "
            "once with HF_HOME on storage that this machine sees, then set HF_HOME and "
            "HF_HUB_OFFLINE=1 here"
        ) from None
    except Exception as error:  # a model may raise anything about its arguments
        raise VitrailError(
            f"model '{spec.name}' refuses args {spec.args} with pretrained={spec.pretrained} "
            f"({first_line(error)}): correct model.args, model.name's tag or model.pretrained"
        ) from None
    if spec.drop_path_rule == "constant":
        _level_drop_path(model, spec)
    return model


def _level_drop_path(model: nn.Module, spec: Model) -> None:
    """Give all residual branches the drop rate of the last block of their class (DeiT III)."""
    rate = spec.args.get("drop_path_rate", 0.0)
    if not rate:
        return
    blocks = [module for module in model.modules() if hasattr(module, "drop_path1")]
    last = {type(block): block for block in blocks}
    if not blocks or any(isinstance(block.drop_path1, nn.Identity) for block in last.values()):
        raise VitrailError(
            f"model '{spec.name}' has no drop_path1 and drop_path2 in its last block to "
            "repeat in all: set model.drop_path_rule to linear"
        )
    for block in blocks:
        for name in ("drop_path1", "drop_path2"):
            # timm makes no DropPath in the first block, whose rate is 0: copy the last block's.
            branch = copy.copy(getattr(last[type(block)], name))
            branch.drop_prob = rate
            setattr(block, name, branch)


def check_image_size(model: nn.Module, recipe: TimmTraining, device: torch.device) -> None:
    """Run the model on one image of zeros of the recipe's size, and set it to evaluation mode.

    Raises VitrailError if the model refuses that size.
    """
    size = recipe.data.image_size
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(1, 3, size, size, device=device))
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise VitrailError(
            f"model '{recipe.model.name}' with args {recipe.model.args} refuses images of {size} "
            f"pixels ({first_line(error)}): set model.args.img_size and data.image_size alike"
        ) from None


def torch_device(name: str) -> torch.device:
    """Return the device of this process; each of torchrun's processes gets a GPU of its own.

    Raises VitrailError if torch does not know the name or is built without such devices, or if
    this machine lacks the device.
    """
    try:
        place = torch.device(name)
    except RuntimeError:
        raise VitrailError(f"device '{name}' is unknown: use 'cpu' or 'cuda'") from None
    if place.type != "cuda":
        return place
    try:
        require_gpu_build()
    except VitrailError as error:
        raise VitrailError(
            f"device '{name}': {error}, or use 'cpu' (of snakemake: --config device=cpu)"
        ) from None
    local = int(os.environ.get("LOCAL_RANK", place.index or 0))
    if local >= torch.cuda.device_count():
        raise VitrailError(
            f"device '{name}' needs {local + 1} CUDA device(s) and torch sees "
            f"{torch.cuda.device_count()}: use 'cpu' (a scale for CPUs), or start fewer processes"
        )
    return torch.device("cuda", local)
