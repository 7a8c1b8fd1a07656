"""Measure the paper's Figures 2, 3, 5 and 6 on real layers, models and a real photograph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from timm.models.vision_transformer import Block
from torch import Tensor
from torch.nn import functional

from replication.config.recipe import TimmTraining
from replication.context import Context, Trained, Values, passes
from replication.images.photos import photo_centre
from replication.measures.parameters import architectures, count
from vitrail.errors import VitrailError
from vitrail.octic.embeddings import OcticPatchEmbed
from vitrail.octic.group import ELEMENTS, INVERSE_FOURIER, act, isotypic, on_planes, transform
from vitrail.octic.layers import OcticBlock, OcticLinear

# The planes of E ordered by rows: both rows share a matrix, which is then twice on the diagonal.
BY_ROWS = torch.eye(8, dtype=torch.float64)[[0, 1, 2, 3, 4, 6, 5, 7]]
BASES = {"regular": INVERSE_FOURIER, "isotypic": BY_ROWS}
# The parts of a block, in the order in which features pass through them (Fig. 3).
STAGES = {
    "norm1": "norm1",
    "qkv": "attn.qkv",
    "proj": "attn.proj",
    "norm2": "norm2",
    "fc1": "mlp.fc1",
    "GELU": "mlp.act",
    "fc2": "mlp.fc2",
}
# The six banks of filters (Fig. 6), by the plane that shows each: E's rows 1 are row 0, turned.
BANKS = {"A1": 0, "A2": 1, "B1": 2, "B2": 3, "E copy 1": 4, "E copy 2": 6}
NOTHING = 1e-12  # relative to the largest entry; smaller numbers are zeros with rounding errors


def intertwiner(context: Context, channels: int = 32) -> Values:
    """Write an octic linear layer, C to C, as a matrix in two bases (Fig. 2; octic, Sec. 3.1).

    The bases are the regular one, (y0..y7), and the isotypic one: A1, A2, B1, B2, E's row 0, row 1.

    Returns:
        ``<basis>/matrix``: ``(C, C)``, rows outputs; ``<basis>/multiplications``: of a token, the
        entries that are not zero; ``<basis>/share``: these in percent; ``<basis>/parameters``:
        different numbers among them; ``<basis>/error``: the largest entry of W rho(g) - rho(g) W
        over the group, relative to W's; ``fewer/multiplications`` and ``fewer/parameters``: of the
        isotypic basis against C x C (16/3 and 8).
    """
    torch.manual_seed(context.seed)
    layer = OcticLinear(channels, channels, bias=False).double().requires_grad_(False)
    values: dict[str, Any] = {}
    for name, basis in BASES.items():
        matrix = matrix_of(layer, basis)
        weights = matrix[matrix.abs() > NOTHING * matrix.abs().max()]
        values |= {
            f"{name}/matrix": matrix.tolist(),
            f"{name}/share": 100 * len(weights) / matrix.numel(),
            f"{name}/multiplications": len(weights),
            f"{name}/parameters": distinct(weights),
            f"{name}/error": _commutator(matrix, basis),
        }
    for cost in ("multiplications", "parameters"):
        values[f"fewer/{cost}"] = channels**2 / values[f"isotypic/{cost}"]
    return values


def matrix_of(layer: OcticLinear, basis: Tensor) -> Tensor:
    """Return the matrix ``(C', C)`` of a layer without a bias, both axes plane-major.

    The orthogonal `basis` ``(8, 8)`` maps the layer's planes (x0..x7) to those of the matrix.
    """
    units = torch.eye(layer.in_features, dtype=basis.dtype).view(layer.in_features, 8, -1)
    answers = layer(on_planes(basis.T, units.transpose(0, 1))[:, None])[:, 0]
    return on_planes(basis, answers).transpose(1, 2).flatten(0, 1)


def distinct(numbers: Tensor) -> int:
    """Count the different values in ``(n,)``; values that differ by rounding count as equal."""
    gaps = numbers.sort().values.diff()
    return 1 + int((gaps > NOTHING * numbers.abs().max()).sum())


def _commutator(matrix: Tensor, basis: Tensor) -> float:
    """Return the largest entry of W rho(g) - rho(g) W over the group, relative to W's largest."""
    channels = torch.eye(len(matrix) // 8, dtype=matrix.dtype)
    actions = [torch.kron(basis @ isotypic(g) @ basis.T, channels) for g in ELEMENTS]
    largest = max((matrix @ action - action @ matrix).abs().max().item() for action in actions)
    return largest / matrix.abs().max().item()


def block_planes(
    context: Context, models: Mapping[str, Mapping[str, Any]], batch_size: int = 1
) -> Values:
    """Follow the features through octic models, and through the first one's first block (Fig. 3).

    The models, fields of `replication.measures.parameters.Architecture` by label, are built and
    run on the meta device: no numbers, only shapes.

    Returns:
        ``<label>/octic blocks``, ``<label>/standard blocks``, ``<label>/tokens``,
        ``<label>/channels`` (C) and ``<label>/invariants`` (M, 0 for none); of the block, for each
        of `STAGES`, ``<stage>/shape``: of what it returns, plane-major ``(8, B, N, c)``;
        ``<stage>/channels``: c; ``<stage>/parameters``; ``<stage>/share``: percent that these are
        of the same part of a standard block, None where that has none.

    Raises:
        VitrailError: a model does not exist or refuses its arguments.
    """
    values: dict[str, Any] = {}
    for label, architecture in architectures(models).items():
        shapes: dict[Any, list[int]] = {}

        def keep_shape(part: Any, _: Any, output: Any, shapes: Any = shapes) -> None:
            shapes[part] = list(output.shape)

        with torch.device("meta"), torch.no_grad():
            model: Any = architecture.build(context.seed).eval()
            block = model.blocks[0]
            for path in STAGES.values():
                block.get_submodule(path).register_forward_hook(keep_shape)
            side = architecture.side(model)
            model(torch.empty(batch_size, 3, side, side))
        invariants = model.invariantisation.invariant.out_features if model.invariantisation else 0
        values |= {
            f"{label}/octic blocks": model.octic_depth,
            f"{label}/standard blocks": len(model.blocks) - model.octic_depth,
            f"{label}/tokens": shapes[block.norm1][2],
            f"{label}/channels": model.embed_dim,
            f"{label}/invariants": invariants,
        }
        if label == next(iter(models)):
            values |= _block(block, shapes)
    return values


def _block(block: OcticBlock, shapes: Mapping[Any, list[int]]) -> dict[str, Any]:
    """Return the values of an octic block's stages, compared with a standard block of its shape."""
    values: dict[str, Any] = {}
    dim, hidden = block.mlp.fc1.in_features, block.mlp.fc1.out_features
    with torch.device("meta"):
        standard = Block(dim, block.attn.num_heads, hidden / dim, qkv_bias=True)
    for stage, path in STAGES.items():
        own, usual = (count(whole.get_submodule(path))["parameters"] for whole in (block, standard))
        shape = shapes[block.get_submodule(path)]
        values |= {
            f"{stage}/shape": shape,
            f"{stage}/channels": shape[-1],
            f"{stage}/parameters": own,
            f"{stage}/share": 100 * own / usual if usual else None,
        }
    return values


def cayley(context: Context, image_size: int = 80, patch_size: int = 8) -> Values:
    """Transform a photograph and its octic features by all eight elements (Fig. 5; octic, App. C).

    The filters of the patch embedding are random, smooth and grey; sizes are in pixels.

    Returns:
        For each element ``<element>/pixels``: ``(H, W, 3)`` bytes of the transformed photograph;
        ``<element>/features``: ``(8, G, G)``, its planes on the grid of patches;
        ``<element>/error``: the largest difference between these and the transformed features of
        the photograph, relative to the largest feature; ``<element>/change``: the same difference
        where the features are not transformed. ``filters``: ``(8, p, p, 3)``; ``patch``: p.
    """
    torch.manual_seed(context.seed)
    embed = OcticPatchEmbed(image_size, patch_size, embed_dim=8).double()
    pixels = torch.tensor(photo_centre("china", image_size)).permute(2, 0, 1)
    image = (pixels - pixels.double().mean((1, 2), keepdim=True))[None] / 255
    values: dict[str, Any] = {"patch": patch_size}
    with torch.no_grad():
        coarse = torch.randn(6, 1, 3, 3, dtype=torch.float64)
        smooth = functional.interpolate(coarse, embed.weight.shape[-2:], mode="bicubic")
        embed.weight.copy_(smooth[:, None])
        embed.bias.zero_()
        features = embed(image)
        for element in ELEMENTS:
            transformed = embed(transform(image, element))
            errors = {"error": act(features, element, embed.grid_size), "change": features}
            for name, expected in errors.items():
                difference = (transformed - expected).abs().max() / features.abs().max()
                values[f"{element}/{name}"] = difference.item()
            values[f"{element}/features"] = transformed.view(8, *embed.grid_size).tolist()
            values[f"{element}/pixels"] = transform(pixels, element).permute(1, 2, 0).tolist()
        values["filters"] = embed.filters()[:, 0].permute(0, 2, 3, 1).tolist()
    return values


@passes(0)
def learned_filters(trained: Trained[TimmTraining], components: int = 16) -> Values:
    """Take the principal components of the filters that a model learned (octic, App. C.1, Fig. 6).

    They are taken about zero: the group turns a filter of A2, B1, B2 or E into its negative.

    Returns:
        For each of `BANKS` ``<bank>/components``: ``(n, p, p, 3)``, fewer than `components` where
        the filters span no more, each scaled to a largest weight of 1; ``<bank>/explained``:
        percent of the filters' energy that they hold; ``<bank>/first``: that the first holds;
        ``<bank>/high``, and ``all/high`` of all banks together: percent of the energy at spatial
        frequencies above a quarter of a cycle per pixel, half of what a patch can show, on either
        axis.

    Raises:
        VitrailError: the model's patch embedding is another.
    """
    model: Any = trained.model
    embed = getattr(model, "patch_embed", None)
    if not isinstance(embed, OcticPatchEmbed):
        raise VitrailError(
            f"learned_filters: the patch embedding of '{trained.recipe.model.name}' is not octic; "
            "measure a recipe of D8, H8 or I8"
        )
    filters = embed.filters().detach().double().cpu()
    values: dict[str, Any] = {}
    banks = filters[list(BANKS.values())]
    values["all/high"] = _high(banks)
    for bank, plane in BANKS.items():
        values[f"{bank}/high"] = _high(filters[plane])
        _, lengths, directions = torch.linalg.svd(filters[plane].flatten(1), full_matrices=False)
        energy = lengths.square() / lengths.square().sum()
        shown = directions[:components][energy[:components] > NOTHING]
        peaks = shown.gather(1, shown.abs().argmax(1, keepdim=True))
        pictures = (shown / peaks).unflatten(1, filters.shape[2:]).permute(0, 2, 3, 1)
        values[f"{bank}/components"] = pictures.tolist()
        values[f"{bank}/explained"] = 100 * energy[:components].sum().item()
        values[f"{bank}/first"] = 100 * energy[0].item()
    return values


def _high(filters: Tensor) -> float:
    """Return the percentage of energy of ``(..., p, p)`` above a quarter of a cycle per pixel."""
    energy = torch.fft.fft2(filters).abs().square()
    high = torch.fft.fftfreq(filters.shape[-1], device=filters.device).abs() > 0.25
    chosen = high[:, None] | high
    return 100 * (energy[..., chosen].sum() / energy.sum()).item()
