"""The network that DINOv2 trains: a backbone, and a head that maps its tokens to prototypes.

The backbone may be any registered model that accepts a `mask` in `forward_features` and has
`blocks` with the parts of timm's: `MaskedVisionTransformer`, and the octic and flip-equivariant
models. Its features are the class token after the last norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from replication.training.model_factory import create
from vitrail.errors import VitrailError
from vitrail.octic.layers import OcticBlock

if TYPE_CHECKING:
    from replication.config.recipes.self_supervision import SelfSupervisionRecipe


OPTIONS = {"dynamic_img_size": True, "mask_token": True}
"""timm's options for every backbone."""


def build_model(recipe: SelfSupervisionRecipe, classes: int) -> nn.Module:
    """Make the recipe's backbone, which returns features; `classes` is not used.

    Raises:
        VitrailError: timm does not know the name, or the model has no mask token.
    """
    return create(recipe.model, 0, **OPTIONS)


def image_shape(recipe: SelfSupervisionRecipe) -> tuple[int, int, int]:
    """Return (channels, height, width) of a global crop."""
    return 3, recipe.data.image_size, recipe.data.image_size


def teacher_file(seed_folder: Path, step: int) -> Path:
    """Return the path of the teacher's backbone after `step` steps."""
    return seed_folder / "teachers" / f"step-{step:08d}.safetensors"


class Head(nn.Module):
    """DINO's projection head, from tokens ``(M, C)`` to logits of the prototypes ``(M, K)``.

    An MLP of three layers, normalised to the sphere, and a weight-normed layer without bias, whose
    lengths begin at one and are trained.
    """

    def __init__(self, width: int, hidden: int, bottleneck: int, prototypes: int) -> None:
        super().__init__()
        first, second = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        third = nn.Linear(hidden, bottleneck)
        for layer in (first, second, third):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.mlp = nn.Sequential(first, nn.GELU(), second, nn.GELU(), third)
        self.last_layer = weight_norm(nn.Linear(bottleneck, prototypes, bias=False))
        with torch.no_grad():
            self.last_layer.parametrizations.weight.original0.fill_(1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits ``(M, K)`` of tokens ``(M, C)``."""
        logits: Tensor = self.last_layer(functional.normalize(self.mlp(tokens), dim=-1))
        return logits


class Projected(NamedTuple):
    """The outputs of a network for sets of crops; the first set has the global crops."""

    features: Tensor  # (2B, C), class tokens of the first set
    logits: list[Tensor]  # (B', K) of the class tokens of each set
    patch_logits: Tensor  # (M, K) of the chosen patches of the first set


class Network(nn.Module):
    """A backbone with its head, or with two: one for class tokens (DINO), one for patches (iBOT).

    Raises:
        VitrailError: the backbone takes no masks, or has no class token.
    """

    def __init__(self, recipe: SelfSupervisionRecipe, backbone: nn.Module) -> None:
        super().__init__()
        if getattr(backbone, "mask_token", None) is None:
            raise VitrailError(
                f"model '{recipe.model.name}' has no mask token: take masked_vit_*, or a model of "
                "the octic paper"
            )
        if backbone.cls_token is None:
            raise VitrailError(
                f"model '{recipe.model.name}' has no class token, which DINO projects; leave "
                "class_token=True"
            )
        self.backbone: Any = backbone
        spec, width = recipe.head, cast(int, backbone.num_features)
        head = partial(Head, width, spec.hidden, spec.bottleneck, spec.prototypes)
        self.head = head()
        self.patch_head = head() if spec.separate else None

    def forward(
        self, crops: Sequence[Tensor], masks: Sequence[Tensor | None], chosen: Tensor
    ) -> Projected:
        """Project class tokens, and chosen patches of the first set.

        Args:
            crops: sets of images, ``(B', 3, H, W)`` each, the first of 2B with N patches.
            masks: of each set, ``(B', N)`` bool, or None.
            chosen: the chosen patches' places among all 2B N of the first set, ``(M,)`` int64.
        """
        views = zip(crops, masks, strict=True)
        tokens = [self.backbone.forward_features(images, mask) for images, mask in views]
        cls = [of_set[:, 0] for of_set in tokens]
        patches = tokens[0][:, self.backbone.num_prefix_tokens :].flatten(0, 1)[chosen]
        sizes = [len(part) for part in (*cls, patches)]
        if self.patch_head is None:
            *logits, patch_logits = self.head(torch.cat([*cls, patches])).float().split(sizes)
        else:
            logits = self.head(torch.cat(cls)).float().split(sizes[:-1])
            patch_logits = self.patch_head(patches).float()
        return Projected(cls[0].float(), list(logits), patch_logits)


def drop_paths(model: nn.Module, rate: float) -> None:
    """Let images skip each residual branch of a model's blocks in training, at the given `rate`.

    In dense and flip-equivariant blocks it is DINOv2's stochastic depth (Sec. 5): a fixed share of
    the batch skips a branch, which is computed for the others alone and scaled by their share. In
    octic blocks each image skips it or not on its own, as in octic's published code.
    """
    for block in model.blocks if rate else ():  # type: ignore[union-attr]
        if isinstance(block, OcticBlock):
            block.drop_path1.drop_prob = block.drop_path2.drop_prob = rate
        else:
            block.forward = MethodType(partial(_forward_on_parts, rate), block)


def compile_blocks(model: nn.Module) -> None:
    """Compile a model's blocks in place."""
    for block in model.blocks:  # type: ignore[union-attr]
        block.compile()


def _forward_on_parts(rate: float, block: Any, x: Tensor) -> Tensor:
    """Run a block of ``(..., B, N, C)``, each branch for some of the B images in training."""
    for norm, layer, scale in (
        (block.norm1, block.attn, block.ls1),
        (block.norm2, block.mlp, block.ls2),
    ):
        if not block.training:
            x = x + scale(layer(norm(x)))
            continue
        batch = x.shape[-3]
        kept = max(int(batch * (1 - rate)), 1)
        rows = torch.randperm(batch, device=x.device)[:kept]
        residual = scale(layer(norm(x.index_select(-3, rows))))
        x = x.index_add(-3, rows, residual.to(x.dtype), alpha=batch / kept)
    return x
