"""State dicts of the published octic models, into ours and back.

The published code keeps a tensor for each irrep where ours stacks them, and gives an attention head
neighbouring columns of [copy 1 | copy 2] where ours takes its share of each copy. So every
published tensor is a view of one of ours, and both directions are copies through the same views.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vitrine.errors import VitrineError
from vitrine.octic.layers import OcticBlock, OcticLayerNorm
from vitrine.octic.vit import OcticVisionTransformer

_LINES = ("A1", "A2", "B1", "B2")
_FROZEN = re.compile(r"(cls_token|register_tokens|mask_token)\.[1-7]")

# The names of the DINOv2 models where they differ from those of DeiT III.
_DINOV2 = [
    (re.compile(r"(blocks\.\d+)\.ls(\d)\.(alpha_.*)"), r"\1.gamma_\2.\3"),
    (re.compile(r"(blocks\.\d+)\.ls(\d)\.gamma"), r"\1.gamma_\2"),
    (re.compile(r"standard_norm\.(.*)"), r"norm.\1"),
]


class _Published(NamedTuple):
    """A published tensor: its name, its entries in order as a view of ours, and its shape."""

    name: str
    view: Tensor
    shape: torch.Size


@torch.no_grad()
def load_published(model: OcticVisionTransformer, state: Mapping[str, Tensor]) -> None:
    """Give a model the weights of a published one.

    Args:
        model: built with ``norm="published"``. What DINOv2 calls D8 is an I8 of octic blocks.
        state: a published model's state dict, of DeiT III or DINOv2.

    Raises:
        VitrineError: the model or a tensor does not fit.
    """
    norms = [module for module in model.modules() if isinstance(module, OcticLayerNorm)]
    if any(norm.convention != "published" for norm in norms):
        raise VitrineError("published weights need the published norm; give norm: published")
    frozen = {name: value for name, value in state.items() if _FROZEN.fullmatch(name)}
    for name, token in frozen.items():
        if token.any():
            raise VitrineError(f"'{name}' of the state dict is not zero, and only A1 may be")
    left = {_deit(name): value for name, value in state.items() if name not in frozen}
    copies = []
    advice = "build the model with the published one's arguments"
    for name, view, shape in _published(model):
        value = left.pop(name, None)
        if value is None or _sides(value.shape) != _sides(shape):
            found = "lacks it" if value is None else f"has {tuple(value.shape)}"
            raise VitrineError(
                f"the model takes '{name}' of shape {tuple(shape)} and the state dict {found}; "
                f"{advice}"
            )
        copies.append((view, value))
    if left:
        raise VitrineError(f"the state dict has '{min(left)}', which the model lacks; {advice}")
    for view, value in copies:
        view.copy_(value.reshape(view.shape))


def _sides(shape: torch.Size) -> list[int]:
    """The sides of a tensor but for those of one, which tokens have in different numbers."""
    return [side for side in shape if side != 1]


def to_published(model: OcticVisionTransformer) -> dict[str, Tensor]:
    """Return copies of a model's weights in the layout of the published DeiT III models."""
    state = {name: view.detach().reshape(shape).clone() for name, view, shape in _published(model)}
    token = torch.zeros_like(state["cls_token.0"])
    state |= {f"cls_token.{irrep}": token.clone() for irrep in (1, 2, 3)}
    state["cls_token.4"] = torch.cat([token, token], dim=-1).unsqueeze(2).repeat(1, 1, 2, 1)
    return state


def _deit(name: str) -> str:
    for dinov2, deit in _DINOV2:
        name = dinov2.sub(deit, name)
    return name


def _published(model: OcticVisionTransformer) -> Iterator[_Published]:
    """Go through all weights."""
    filters = model.get_parameter("patch_embed.weight")
    for bank, quarter in zip((*_LINES, "E_left", "E_right"), filters, strict=True):
        yield _as_is(f"patch_embed.lift8.conv_{bank}.weight", quarter)
    yield _as_is("patch_embed.lift8.conv_A1.bias", model.get_parameter("patch_embed.bias"))
    for index, quarter in enumerate(model.get_parameter("pos_embed.weight")):
        yield _as_is(f"pos_embed.{index}", quarter.permute(1, 2, 0))
    for name, token in (
        ("cls_token", model.cls_token),
        ("register_tokens", model.reg_token),
        ("mask_token", model.mask_token),
    ):
        if token is not None:
            yield _as_is(f"{name}.0", token)
    for index, block in enumerate(model.blocks):
        yield from _block(f"blocks.{index}", block)
    if model.invariantisation is not None:
        name = "head.1" if model.equivariant else "invariant_proj"
        yield from _plain(name, model.get_submodule("invariantisation.proj"))
    yield from _norm("norm", model.norm)
    yield from _plain("head.3" if model.equivariant else "head", model.head)


def _block(name: str, block: nn.Module) -> Iterator[_Published]:
    for index in "12":
        yield from _norm(f"{name}.norm{index}", block.get_submodule(f"norm{index}"))
        for _, gamma in block.get_submodule(f"ls{index}").named_parameters():
            if isinstance(block, OcticBlock):
                yield from _scales(f"{name}.gamma_{index}", gamma)
            else:
                yield _as_is(f"{name}.gamma_{index}", gamma)
    for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"):
        parameters = dict(block.get_submodule(layer).named_parameters())
        if not isinstance(block, OcticBlock):
            yield from _plain(f"{name}.{layer}", block.get_submodule(layer))
            continue
        for irrep, weight in zip(_LINES, parameters["weight"], strict=True):
            yield _as_is(f"{name}.{layer}.lin_{irrep}.weight", weight)
        if "bias" in parameters:
            yield _as_is(f"{name}.{layer}.lin_A1.bias", parameters["bias"])
        weight_e, heads = parameters["weight_e"], block.attn.num_heads
        view = weight_e
        if layer == "attn.qkv":  # rows (copy, q k v, head, j) to (q k v, head, copy, j)
            view = weight_e.unflatten(0, (2, 3, heads, -1)).permute(1, 2, 0, 3, 4)
        elif layer == "attn.proj":  # columns (copy, head, j) to (head, copy, j)
            view = weight_e.unflatten(1, (2, heads, -1)).transpose(1, 2)
        yield _Published(f"{name}.{layer}.lin_E.weight", view, weight_e.shape)


def _norm(name: str, norm: nn.Module) -> Iterator[_Published]:
    if isinstance(norm, OcticLayerNorm):
        yield from _scales(f"{name}.scaling", norm.weight)
        yield _as_is(f"{name}.scaling.beta", norm.bias)
    else:
        yield from _plain(name, norm)


def _scales(name: str, scales: Tensor) -> Iterator[_Published]:
    for irrep, scale in zip(_LINES, scales[:4], strict=True):
        yield _as_is(f"{name}.alpha_{irrep}", scale)
    yield _as_is(f"{name}.alpha_E", scales[4:].view(-1))


def _plain(name: str, layer: nn.Module) -> Iterator[_Published]:
    for last, parameter in layer.named_parameters():
        yield _as_is(f"{name}.{last}", parameter)


def _as_is(name: str, view: Tensor) -> _Published:
    return _Published(name, view, view.shape)
