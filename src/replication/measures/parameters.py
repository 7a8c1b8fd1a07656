"""Models whose cost is measured: a name in timm's registry is enough, no training is needed.

Their parameters are counted here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import timm
import torch
from torch import Tensor, nn

import vitrail.models  # noqa: F401
from replication.context import Context, Values
from vitrail.errors import VitrailError, first_line
from vitrail.model_names import require_model
from vitrail.seeding import seed_everything


@dataclass(frozen=True)
class Architecture:
    """A registered model with its arguments, and the side of the images that it is shown.

    `image_size` None is the model's own default. It does not change the model: one that must know
    the size is told in `args` (timm's ``img_size``).
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    image_size: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.args, Mapping):
            raise VitrailError(
                f"args of model '{self.name}' are {self.args!r} and not names with values; "
                "correct the measure's `models`"
            )

    def build(self, seed: int) -> nn.Module:
        """Make the model on torch's default device; its initial weights follow from `seed`.

        Raises:
            VitrailError: timm does not know the name, or the model refuses an argument.
        """
        require_model(self.name)
        seed_everything("architecture", seed)
        try:
            model: nn.Module = timm.create_model(self.name, **self.args)
        except Exception as error:  # a model may raise anything about its arguments
            raise VitrailError(
                f"model '{self.name}' refuses args {dict(self.args)} ({first_line(error)}); "
                "correct the measure's `models`"
            ) from None
        return model

    def images(self, batch_size: int, model: nn.Module, seed: int) -> Tensor:
        """Make ``(B, 3, side, side)`` noise on the CPU; `model` is asked for its default side."""
        generator, side = torch.Generator().manual_seed(seed), self.side(model)
        return torch.randn((batch_size, 3, side, side), generator=generator)

    def side(self, model: nn.Module) -> int:
        """Say how large the images are that `model` is shown."""
        cfg: Any = model.default_cfg
        return self.image_size or cfg["input_size"][-1]


def architectures(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Architecture]:
    """Read a measure's ``models`` argument: fields of `Architecture` by label.

    Raises:
        VitrailError: a field is unknown or of another kind, or `name` is missing.
    """
    try:
        return {label: Architecture(**fields) for label, fields in models.items()}
    except TypeError as error:
        raise VitrailError(
            f"the measure's `models` cannot be read ({first_line(error)}); each has a name and "
            "may have args and image_size"
        ) from None


def comparisons(
    pairs: Mapping[str, str | Sequence[str]] | None, models: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Read a measure's ``pairs`` argument: for a label, that of the model it is compared with.

    Returns:
        label, partner, and what the keys of their comparison end with: nothing, or where a list
        names the partners, ``"/<partner>"``.

    Raises:
        VitrailError: a label of a pair is not measured.
    """
    found = [
        (label, partner, "" if isinstance(partners, str) else f"/{partner}")
        for label, partners in (pairs or {}).items()
        for partner in ([partners] if isinstance(partners, str) else partners)
    ]
    if unknown := [label for pair in found for label in pair[:2] if label not in models]:
        raise VitrailError(
            f"the measure's `pairs` name '{unknown[0]}', which is not among its `models`: "
            f"{', '.join(models)}"
        )
    return found


def parameters(context: Context, models: Mapping[str, Mapping[str, Any]]) -> Values:
    """Count the parameters of `models`, fields of `Architecture` by label, with their heads.

    Returns:
        ``"<label>/parameters"`` and the same in ``"<label>/millions"``.

    Raises:
        VitrailError: a model does not exist or refuses its arguments.
    """
    each = {
        label: count(model.build(context.seed)) for label, model in architectures(models).items()
    }
    return {f"{label}/{unit}": n for label, units in each.items() for unit, n in units.items()}


def count(model: nn.Module) -> dict[str, float]:
    """Count the elements of all parameters (buffers are none): ``parameters``, ``millions``."""
    number = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": number, "millions": number / 1e6}
