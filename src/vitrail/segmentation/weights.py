"""Published weights of timm's models, for a backbone's ``init_cfg``.

    init_cfg = dict(type="Pretrained", checkpoint="swin_tiny_patch4_window7_224.pth")

The checkpoint is a file or a URL, ``.safetensors`` or what `torch.save` wrote, as timm or the
models' authors publish them; its head is ignored. Weights of a whole segmenter with mmseg's Swin or
ViT can be loaded into one with timm's, plain or adaptive, by every function of mmengine: the
backbone renames them.

Importing this module makes all loading by mmengine safe: a pickle that contains more than weights
is refused. Without it, mmengine would load such a pickle and run its code.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from mmengine.logging.history_buffer import HistoryBuffer
from mmengine.runner import CheckpointLoader, checkpoint
from torch import Tensor, nn

from vitrail.errors import VitrailError, os_errors
from vitrail.weights_file import read_checkpoint, read_weights


def load_weights(
    model: nn.Module, init_cfg: Mapping[str, Any], filter_fn: Callable[..., dict[str, Tensor]]
) -> None:
    """Load all weights of a model of timm's without its head; `filter_fn` is its family's.

    Raises VitrailError where `init_cfg` has another type than ``Pretrained``, or another model.
    """
    if init_cfg["type"] != "Pretrained":
        raise VitrailError(
            f"backbone.init_cfg.type '{init_cfg['type']}' is unknown; use 'Pretrained', or leave "
            "init_cfg out for random weights"
        )
    file = str(init_cfg["checkpoint"])
    published = CheckpointLoader.load_checkpoint(file, map_location="cpu", logger="silent")
    weights = filter_fn(published, model)
    # Published weights have no `_extra_state`, which records how an adaptive model selects grids.
    ours = {
        name: value
        for name, value in model.state_dict().items()
        if name in weights or not name.endswith("_extra_state")
    }
    remedy = "give backbone.init_cfg.checkpoint the weights of this very model"
    if missing := [name for name in ours if name not in weights]:
        raise VitrailError(
            f"{file} lacks {len(missing)} of the {len(ours)} weights of the backbone, such as "
            f"{missing[0]}; {remedy}"
        )
    for name, value in ours.items():
        if value.shape != weights[name].shape:
            raise VitrailError(
                f"{name} has shape {tuple(weights[name].shape)} in {file} and "
                f"{tuple(value.shape)} in the backbone; {remedy}"
            )
    model.load_state_dict({name: weights[name] for name in ours})


# mmseg's names to timm's; the first three of Swin, the next four of ViT
RENAMINGS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"^stages\.(\d+)\.downsample": lambda found: f"layers.{int(found[1]) + 1}.downsample",
    r"^stages\.": "layers.",
    r"\.attn\.w_msa\.": ".attn.",
    r"^layers\.(\d+)\.(?=ln|attn|ffn)": r"blocks.\1.",
    r"\.ln(\d)\.": r".norm\1.",
    r"\.attn\.attn\.in_proj_": ".attn.qkv.",
    r"\.attn\.attn\.out_proj\.": ".attn.proj.",
    r"\.ffn\.layers\.0\.0\.": ".mlp.fc1.",
    r"\.ffn\.layers\.1\.": ".mlp.fc2.",
    r"^patch_embed\.projection\.": "patch_embed.proj.",
    r"^(?!norm\d)": "model.",
}


def renamed(backbone: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename and reorder weights of mmseg's Swin or ViT as in timm's models, in place.

    It is a hook that runs before a backbone loads a state dict; without mmseg's names, nothing is
    changed. mmseg's ViT has no bias in its patch embedding: ours is set to 0. Raises VitrailError
    if weights are missing, unknown or of another shape, which mmseg's loading would only ignore.
    """
    if f"{prefix}patch_embed.projection.weight" not in state:
        return
    given: dict[str, Tensor] = {}
    recorded = backbone.state_dict()  # mmseg's models record no selection of grids
    ours = {name: recorded[name] for name in recorded if not name.endswith("_extra_state")}
    for name in [name for name in state if name.startswith(prefix)]:
        value, name = state.pop(name), name.removeprefix(prefix)
        if name.endswith("relative_position_index"):
            continue
        if ".downsample." in name:  # patches are stacked by channels, and rows before columns
            value = value.unflatten(-1, (-1, 4)).mT[..., [0, 2, 1, 3], :].flatten(-2)
        for pattern, replacement in RENAMINGS.items():
            name = re.sub(pattern, replacement, name)
        given[name] = value
    bias = "model.patch_embed.proj.bias"
    given.setdefault(bias, torch.zeros_like(ours[bias]))
    unfit = [
        name
        for name in {**ours, **given}
        if name not in ours or name not in given or ours[name].shape != given[name].shape
    ]
    if unfit:
        raise VitrailError(
            f"mmseg's weights do not fit model.backbone: {len(unfit)} of its {len(ours)} weights, "
            f"such as {unfit[0]}, are missing, unknown or of another shape; give the backbone the "
            "sizes, and the out_indices, that it was published with"
        )
    state.update((prefix + name, value) for name, value in given.items())


def load_segmenter(model: nn.Module, file: Path) -> None:
    """Load the weights of a whole segmenter, ours or mmseg's, or raise VitrailError."""
    try:
        model.load_state_dict(read_weights(file))
    except RuntimeError as error:
        raise VitrailError(
            f"{file} does not fit the segmenter ({' '.join(str(error).split())[:200]}): correct "
            "model.args, or name the weights of this very segmenter as model.pretrained"
        ) from None


def _statistic(owner: Any, name: str) -> Any:
    """Replace `getattr` in pickles, which mmengine's checkpoints call for methods of their logs."""
    if owner is not HistoryBuffer or name.startswith("_"):
        raise pickle.UnpicklingError(f"it asks for {name}, which no log needs")
    return getattr(owner, name)


RECORDS = [record for record in checkpoint.get_torch_safe_globals() if record is not getattr]
RECORDS.append((_statistic, "builtins.getattr"))


def _read(file: Any, map_location: Any = None, weights_only: Any = None) -> Any:
    """Replace mmengine's `_safe_torch_load`, which reads every kind of path but URLs."""
    with torch.serialization.safe_globals(RECORDS):
        if isinstance(file, str | Path):
            return read_checkpoint(Path(file))
        return torch.load(file, map_location=map_location, weights_only=True)  # from memory


def _read_url(url: str, model_dir: str | None = None, progress: bool = True, **told: Any) -> Any:
    """Replace torch's `load_url`, by which mmengine reads URLs and names of models."""
    folder = Path(model_dir or Path(torch.hub.get_dir()) / "checkpoints")
    file = folder / Path(urlparse(url).path).name
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        remedy = f"run this once where there is a network, or save it as {file}"
        with os_errors(f"cannot download {url}", remedy):
            torch.hub.download_url_to_file(url, str(file), progress=progress)
    return _read(file)


checkpoint._safe_torch_load = _read
checkpoint.load_url = _read_url
