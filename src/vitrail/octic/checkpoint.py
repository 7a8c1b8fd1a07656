"""Convert state dicts of the published octic models to our layout, and back.

The authors' code has a separate tensor for each irrep; our layers stack these tensors. In the
attention's matrices of E, the authors' code orders channels by (q k v, head, copy, channel of the
head), ours by (copy, q k v, head, channel); those of the output projection likewise without q k v.
So every published tensor is a view of one of our parameters, and
both directions copy through the same views.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.errors import VitrailError
from vitrail.octic.embeddings import OcticPatchEmbed
from vitrail.octic.group import isotypic
from vitrail.octic.invariants import Canonisation, MaxFiltering
from vitrail.octic.layers import OcticBlock, OcticLayerNorm

_LINES = ("A1", "A2", "B1", "B2")
# Published tensors that are constant: the planes of tokens that stay zero, and the matrices of the
# group's two generators.
_FROZEN = re.compile(r"(cls_token|register_tokens|mask_token)\.[1-7]|.*_action")
_GENERATORS = {"rotation_action": isotypic("r"), "reflection_action": isotypic("m")}

# The keys of a checkpoint file under which the state dict can lie, and the prefixes that wrappers
# of the model put before the names of its parameters.
_KEYS = ("teacher", "model", "state_dict")
_WRAPPERS = re.compile(r"^((module|_orig_mod|backbone)\.)*")

# Patterns of the names in DINOv2 models that differ from those in DeiT III, with the latter.
_DINOV2 = [
    (re.compile(r"(blocks\.\d+)\.ls(\d)\.(alpha_.*)"), r"\1.gamma_\2.\3"),
    (re.compile(r"(blocks\.\d+)\.ls(\d)\.gamma"), r"\1.gamma_\2"),
    (re.compile(r"standard_norm\.(.*)"), r"norm.\1"),
    (re.compile(r"invariant\.(.*)"), r"invariantization.\1"),
]


class _Published(NamedTuple):
    """A published tensor: its name, the view of our parameter with its entries, and its shape."""

    name: str
    view: Tensor
    shape: torch.Size


@torch.no_grad()
def load_published(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load published weights into an `OcticVisionTransformer` with ``norm="published"``.

    `timm.create_model` makes such a model by a name with the tag "authors". The model that the
    paper trains with DINOv2 as D8 is here an I8 whose blocks are all octic.

    Args:
        model: the model, which is changed in place.
        state: a state dict of DeiT III or DINOv2, or the content of a checkpoint file that has the
            state dict under "model", "state_dict" or "teacher". If there are names of a backbone,
            all other entries are ignored.

    Raises:
        VitrailError: the model has no published layout or another norm, a tensor does not fit, or
            `state` has no state dict.
    """
    weights = list(_published(model))
    norms = [module for module in model.modules() if isinstance(module, OcticLayerNorm)]
    if any(norm.convention != "published" for norm in norms):
        raise VitrailError(
            "published weights need the published norm; create the model by its name with the tag "
            "'authors', as octic_h8_vit_large_patch16_224.authors, or give it norm 'published'"
        )
    left = {_deit(name): value for name, value in _state_dict(state).items()}
    for name in filter(_FROZEN.fullmatch, list(left)):
        frozen, generator = left.pop(name), _GENERATORS.get(name.rpartition(".")[2])
        if generator is None and frozen.any():
            raise VitrailError(f"'{name}' of the state dict is not zero, and only A1 may be")
        if generator is not None and not torch.equal(frozen.double().cpu(), generator):
            raise VitrailError(f"'{name}' of the state dict is no matrix of the octic group's")
    copies = []
    advice = "build the model with the published one's arguments"
    for name, view, shape in weights:
        value = left.pop(name, None)
        if value is None or _sides(value.shape) != _sides(shape):
            found = "lacks it" if value is None else f"has {tuple(value.shape)}"
            raise VitrailError(
                f"the model takes '{name}' of shape {tuple(shape)} and the state dict {found}; "
                f"{advice}"
            )
        copies.append((view, value))
    if left:
        raise VitrailError(f"the state dict has '{min(left)}', which the model lacks; {advice}")
    for view, value in copies:
        view.copy_(value.reshape(view.shape))


def _state_dict(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state dict in a checkpoint file's content, with names without wrappers' prefixes.

    Raises:
        VitrailError: there is no state dict, or one of its values is not a tensor.
    """
    for key in _KEYS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    entries = state.items() if isinstance(state, Mapping) else ()
    stray = next((f"'{name}'" for name, value in entries if not isinstance(value, Tensor)), "")
    if stray or not entries:
        found = f"{stray} is no tensor" if stray else "it has no named tensors"
        raise VitrailError(
            f"this is no state dict of a published model, {found}; give one, or a file that has "
            f"it under {', '.join(_KEYS[:-1])} or {_KEYS[-1]}"
        )
    bare = {name: _WRAPPERS.sub("", name) for name in state}
    backbone = [name for name in state if "backbone" in name.removesuffix(bare[name])]
    # Entries beside those of a backbone belong to heads of the training.
    state = {bare[name]: state[name] for name in backbone or state}
    if "standard_norm.weight" in state:  # DINOv2's D8 also has an octic norm that it never applies
        state = {name: value for name, value in state.items() if not name.startswith("norm.")}
    return state


def _sides(shape: torch.Size) -> list[int]:
    """Return the sides of a tensor that are not 1.

    The published tokens and ours differ in their number of axes of side 1.
    """
    return [side for side in shape if side != 1]


def to_published(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights of an `OcticVisionTransformer` into the layout of published DeiT III's."""
    state = {name: view.detach().reshape(shape).clone() for name, view, shape in _published(model)}
    if "cls_token.0" in state:
        token = torch.zeros_like(state["cls_token.0"])
        state |= {f"cls_token.{irrep}": token.clone() for irrep in (1, 2, 3)}
        state["cls_token.4"] = torch.cat([token, token], dim=-1).unsqueeze(2).repeat(1, 1, 2, 1)
    if any(name.startswith("invariantization.") for name in state):
        like = state["pos_embed.0"]
        state |= {f"invariantization.{last}": m.to(like) for last, m in _GENERATORS.items()}
    return state


def _deit(name: str) -> str:
    for dinov2, deit in _DINOV2:
        name = dinov2.sub(deit, name)
    return name


def _published(model: Any) -> Iterator[_Published]:
    """Yield the published tensor of each weight of a model.

    Raises:
        VitrailError: the model has no published layout.
    """
    if not isinstance(getattr(model, "patch_embed", None), OcticPatchEmbed):
        raise VitrailError(
            "only octic models with the equivariant patch embedding have a published layout; build "
            "an OcticVisionTransformer, without arbitrary_patches"
        )
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
        match model.get_submodule("invariantisation.invariant"):
            case MaxFiltering(references=references):  # (8, M, c)
                yield _as_is("invariantization.references", references.permute(1, 2, 0))
            case Canonisation(reference=reference):  # (8, c)
                yield _as_is("invariantization.reference", reference.view(-1))
    yield from _norm("norm", model.norm)
    yield from _plain("head.3" if model.equivariant else "head", model.head)


def _block(name: str, block: nn.Module) -> Iterator[_Published]:
    if not isinstance(block, OcticBlock):
        for last, parameter in block.named_parameters():
            yield _as_is(_deit(f"{name}.{last}"), parameter)
        return
    for index in "12":
        yield from _norm(f"{name}.norm{index}", block.get_submodule(f"norm{index}"))
        for gamma in block.get_submodule(f"ls{index}").parameters():
            yield from _scales(f"{name}.gamma_{index}", gamma)
    for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"):
        linear: Any = block.get_submodule(layer)
        for irrep, weight in zip(_LINES, linear.weight, strict=True):
            yield _as_is(f"{name}.{layer}.lin_{irrep}.weight", weight)
        if linear.bias is not None:
            yield _as_is(f"{name}.{layer}.lin_A1.bias", linear.bias)
        view, heads = linear.weight_e, block.attn.num_heads
        if layer == "attn.qkv":  # rows (copy, q k v, head, j) to (q k v, head, copy, j)
            view = view.unflatten(0, (2, 3, heads, -1)).permute(1, 2, 0, 3, 4)
        elif layer == "attn.proj":  # columns (copy, head, j) to (head, copy, j)
            view = view.unflatten(1, (2, heads, -1)).transpose(1, 2)
        yield _Published(f"{name}.{layer}.lin_E.weight", view, linear.weight_e.shape)


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
