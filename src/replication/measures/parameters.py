"""Untrained models whose cost is measured, by their names in timm's registry; count parameters."""

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
    """A registered model with its arguments, and the size of its square input images in pixels.

    With `image_size` None, it is the model's default. `image_size` does not change the model: if
    the model needs the size, pass it in `args` (timm's ``img_size``), too.
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
        """Make Gaussian noise ``(B, 3, side, side)`` on the CPU; the side is `self.side(model)`."""
        generator, side = torch.Generator().manual_seed(seed), self.side(model)
        return torch.randn((batch_size, 3, side, side), generator=generator)

    def side(self, model: nn.Module) -> int:
        """Return the side of the input images in pixels: `image_size`, else the model's default."""
        cfg: Any = model.default_cfg
        return self.image_size or cfg["input_size"][-1]


def architectures(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Architecture]:
    """Read a measure's argument ``models``: fields of `Architecture` for each label.

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
    """Read a measure's argument ``pairs``: for a label, the labels it is compared with.

    Returns:
        tuples of label, partner, and the suffix of the keys of their comparison. The suffix is
        empty if `pairs` gives one partner as a string, and ``"/<partner>"`` if it gives a list.

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
    """Count the parameters, heads included, of `models`: fields of `Architecture` for each label.

    Returns:
        ``"<label>/parameters"``, and in millions ``"<label>/millions"``.

    Raises:
        VitrailError: a model does not exist or refuses its arguments.
    """
    each = {
        label: count(model.build(context.seed)) for label, model in architectures(models).items()
    }
    return {f"{label}/{unit}": n for label, units in each.items() for unit, n in units.items()}


def count(model: nn.Module) -> dict[str, float]:
    """Count the elements of all parameters, without buffers: ``parameters`` and ``millions``."""
    number = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": number, "millions": number / 1e6}
