"""What a measure is given: where it runs, and the trained model if it measures one.

A measure is a plain function named in a paper's ``artifacts.yaml`` as ``module:function``. It takes
a `Context`, a `Described` when it measures a recipe or a `Trained` when it measures a run, and its
own keyword arguments, and returns a flat dictionary of numbers (or of nested lists of numbers, for
figures, or of packed scores by image, `replication.measures.packed_scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from torch import Tensor
from typing_extensions import TypeVar

from vitrail.measures.outputs import logits_of

if TYPE_CHECKING:
    from torch import nn

    from replication.config.datasets import DatasetInfo


Value: TypeAlias = "float | str | Sequence[Value] | None"
Values: TypeAlias = Mapping[str, Value]

R = TypeVar("R", default=Any, covariant=True)
"""A recipe: whatever has the fields that the measure reads, such as ``data.image_size``."""


Passes: TypeAlias = "Mapping[float, float]"
"""Forward passes of each image, by the side of the images over the recipe's."""

PassesOf: TypeAlias = "Callable[[Mapping[str, Any]], float | Passes]"

Measure = TypeVar("Measure", bound="Callable[..., Values]")


def passes(count: int | PassesOf) -> Callable[[Measure], Measure]:
    """Say how many forward passes of the model a measure takes for each image, for its price.

        @passes(lambda given: 1 + given["permutations"])
        def position_bias(trained: Trained, permutations: int = 4, ...) -> Values: ...

    A function of the measure's arguments, defaults included, gives the number, or numbers by the
    side of the images. Judged are `images` of the validation split where there is such an argument
    and it is not None, else all. The function is given their number as ``images``, as many or else
    all of the training split as ``train_images``, the side of the recipe's images in pixels as
    ``side`` and the ``recipe``: n passes of other images are ``n / given["images"]`` of each that
    is judged. A measure that says nothing is not priced.
    """

    def mark(measure: Measure) -> Measure:
        measure.passes = count  # type: ignore[attr-defined]
        return measure

    return mark


@dataclass(frozen=True)
class Context:
    """Where a measure runs: `device` is a torch device name, `seed` decides all its randomness.

    `datasets` are those that the measure names besides the recipe's own.
    """

    device: str
    data_root: Path
    seed: int
    workers: int = field(default=0, kw_only=True)
    datasets: tuple[Any, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Described(Context, Generic[R]):
    """A recipe with its dataset's entry: neither a trained model nor images need be there.

    Without a parameter the recipe is of an `EpochTraining`; a measure of others says
    ``Described[...]``.
    """

    recipe: R
    info: Any


@dataclass(frozen=True)
class Trained(Described[R]):
    """A finished run: `model` is in evaluation mode on `device`, `folder` is that of the seed.

    `facts` say what its training took, such as ``wall_seconds`` and ``processes``.
    """

    model: nn.Module
    folder: Path = field(default=Path(), kw_only=True)
    facts: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def reads(self) -> DatasetInfo:
        """The dataset to judge features on: the one that the measure names, else the recipe's."""
        return self.datasets[0] if self.datasets else self.info

    def logits(self, images: Tensor) -> Tensor:
        """Run the model without gradients: ``(B, 3, H, W)`` to ``(B, classes)`` on the CPU.

        Raises:
            VitrailError: as `vitrail.measures.outputs.require_logits`.
        """
        return logits_of(self.model, images)
