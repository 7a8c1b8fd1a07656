"""What the library reads of a recipe and of a dataset's entry, as types.

Any objects with these attributes serve, for example frozen dataclasses. Each function takes the
smallest type that has what it reads. There are declarations alone here: modules import them for the
type checker, so no number depends on this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Channels = tuple[float, float, float]
"""A number for red, for green and for blue."""

Span = tuple[float, float]
"""From and to."""


class ChannelStatistics(Protocol):
    """How the pixels of a dataset are spread, in [0, 1]."""

    @property
    def mean(self) -> Channels:
        """Mean of each channel."""

    @property
    def std(self) -> Channels:
        """Standard deviation of each channel."""


class DatasetFiles(Protocol):
    """Where a dataset is, and what reads it."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    @property
    def loader(self) -> str:
        """``module:function`` that opens a split, given the dataset's folder and the split.

        One that takes a `seed` is given the run's, and splits by it.
        """

    @property
    def folder(self) -> str:
        """Its folder, below the root of all data."""


class DatasetEntry(DatasetFiles, ChannelStatistics, Protocol):
    """What measures read of a dataset."""

    @property
    def classes(self) -> int:
        """Number of its classes."""


class ModelFields(Protocol):
    """A model that `timm.create_model` makes."""

    @property
    def name(self) -> str:
        """Name in timm's registry, or where timm finds it: ``hf-hub:...``, ``local-dir:...``."""

    @property
    def args(self) -> Mapping[str, Any]:
        """Keyword arguments of the model's constructor."""

    @property
    def pretrained(self) -> bool | str:
        """Whether published weights are loaded, or the name of these; read for messages alone."""

    @property
    def drop_path_rule(self) -> Literal["linear", "constant"]:
        """Whether ``args["drop_path_rate"]`` is the last block's, as in timm, or every block's."""


class ViewFields(Protocol):
    """How an image is shown to a model."""

    @property
    def image_size(self) -> int:
        """Side of the model's square input, in pixels."""

    @property
    def normalization(self) -> Literal["dataset", "inception", "none"]:
        """The dataset's mean and standard deviation, 0.5 and 0.5, or 0 and 1."""

    @property
    def interpolation(self) -> str:
        """How images are resized: ``bicubic``, ``bilinear`` or ``nearest``."""

    @property
    def crop_pct(self) -> float:
        """In evaluation images are resized to `image_size` over this, in (0, 1], then cropped."""

    @property
    def crop_mode(self) -> str:
        """Whether the short side is resized so (``center``) or both (``squash``)."""


class AugmentationFields(Protocol):
    """Random changes of a training image, in the words of `timm.data.create_transform`."""

    @property
    def crop(self) -> Literal["random_resized", "center", "random"]:
        """Which part is shown; the last two cut it out of the evaluation view."""

    @property
    def crop_padding(self) -> int:
        """Black pixels on each side before a ``random`` crop."""

    @property
    def crop_step(self) -> int:
        """Pixels from one place of a ``random`` crop to the next."""

    @property
    def crop_count(self) -> int:
        """How many ``random`` crops there are, each of the one before."""

    @property
    def resize_last(self) -> bool:
        """Whether the policy, ``random`` crops and flips act on the stored image, in this order."""

    @property
    def scale(self) -> Span:
        """Share of the image's area that a ``random_resized`` crop shows."""

    @property
    def ratio(self) -> Span:
        """Width over height of a ``random_resized`` crop."""

    @property
    def hflip(self) -> float:
        """Probability of mirroring left and right."""

    @property
    def vflip(self) -> float:
        """Probability of mirroring top and bottom."""

    @property
    def color_jitter(self) -> float:
        """Strength of changes in brightness, contrast and saturation; 0 is off."""

    @property
    def auto_augment(self) -> str | None:
        """A policy in timm's words, such as ``rand-m9-mstd0.5-inc1``; None is off."""

    @property
    def auto_augment_spatial(self) -> bool:
        """Whether RandAugment also rotates, shears and translates."""

    @property
    def erase_prob(self) -> float:
        """Probability of random erasing."""

    @property
    def erase_mode(self) -> str:
        """What fills an erased rectangle: ``const`` 0, ``rand`` one colour, ``pixel`` noise."""

    @property
    def erase_count(self) -> int:
        """Rectangles that are erased, at most."""

    @property
    def erase_scale(self) -> Span:
        """Share of the image's area that is erased."""

    @property
    def circular_shift(self) -> int:
        """Pixels by which an image is rolled, at most, on each axis; 0 is off."""


@runtime_checkable
class ViewRecipe(Protocol):
    """A recipe of which images are shown as in evaluation."""

    @property
    def data(self) -> ViewFields:
        """How an image is shown."""


@runtime_checkable
class AugmentedRecipe(ViewRecipe, Protocol):
    """A recipe of which images are also shown as in training."""

    @property
    def augmentation(self) -> AugmentationFields:
        """How training images are changed."""


@runtime_checkable
class ModelRecipe(ViewRecipe, Protocol):
    """A recipe of which the model is made, for images of its size."""

    @property
    def model(self) -> ModelFields:
        """What to make."""


class CropFields(Protocol):
    """DINOv2's multi-crop (Oquab et al., 2024): two global crops and several local ones."""

    @property
    def resize(self) -> int | None:
        """Side in pixels to which an image is squashed first, or None."""

    @property
    def local_count(self) -> int:
        """Local crops of an image."""

    @property
    def local_size(self) -> int:
        """Side of a local crop, in pixels; that of a global one is ``data.image_size``."""

    @property
    def global_scale(self) -> Span:
        """Share of the image's area in a global crop."""

    @property
    def local_scale(self) -> Span:
        """Share of the image's area in a local crop."""

    @property
    def ratio(self) -> Span:
        """Width over height of what a crop shows."""

    @property
    def hflip(self) -> float:
        """Probability of mirroring left and right."""

    @property
    def vflip(self) -> float:
        """Probability of mirroring top and bottom."""

    @property
    def quarter_turns(self) -> bool:
        """Whether a crop is turned by a random multiple of 90 degrees."""

    @property
    def color_jitter(self) -> tuple[float, float, float, float]:
        """Strength of changes in brightness, contrast, saturation and hue."""

    @property
    def color_jitter_prob(self) -> float:
        """Probability of these changes."""

    @property
    def gray_prob(self) -> float:
        """Probability of losing the colours."""

    @property
    def blur_prob(self) -> tuple[float, float, float]:
        """Probability of blur in the first global crop, the second, and a local one."""

    @property
    def blur_kernel(self) -> int:
        """Side of the Gaussian kernel, in pixels, odd."""

    @property
    def blur_sigma(self) -> Span:
        """The Gaussian's standard deviation, in pixels."""

    @property
    def solarize_prob(self) -> float:
        """Probability of solarising the second global crop."""


class HeadFields(Protocol):
    """DINO's projection head."""

    @property
    def hidden(self) -> int:
        """Width of the MLP's hidden layers."""

    @property
    def bottleneck(self) -> int:
        """Width of the MLP's output, before the prototypes."""

    @property
    def prototypes(self) -> int:
        """Number of prototypes."""

    @property
    def separate(self) -> bool:
        """Whether patches have a head of their own."""


class TeacherFields(Protocol):
    """The moving average of the student, and the targets that it gives."""

    @property
    def momentum(self) -> Span:
        """The teacher's share of itself in its update, at the first step and after the last."""

    @property
    def temperature(self) -> Span:
        """Temperature of the targets, at the first step and from `temperature_steps` on."""

    @property
    def temperature_steps(self) -> int:
        """Steps over which the temperature changes."""

    @property
    def centering(self) -> Literal["softmax", "sinkhorn"]:
        """How targets are kept from collapsing: by `Centering` or by `Sinkhorn`."""

    @property
    def center_momentum(self) -> float:
        """The centre's share of itself in its update, in [0, 1)."""


class AdamWFields(Protocol):
    """AdamW with a rate by layer."""

    @property
    def lr(self) -> float:
        """Highest learning rate, for the batch of a step."""

    @property
    def betas(self) -> tuple[float, float]:
        """AdamW's decay rates of its two moments."""

    @property
    def weight_decay(self) -> Span:
        """Weight decay, at the first step and after the last."""

    @property
    def layer_decay(self) -> float:
        """Rate of a layer over that of the next, in (0, 1]."""

    @property
    def patch_embed_scale(self) -> float:
        """What the rate of the patch embedding is multiplied by besides."""

    @property
    def decay_layer_scale(self) -> bool:
        """Whether the layer scales of octic blocks are decayed; those of others never are."""


class ScheduleFields(Protocol):
    """What happens at which optimiser step."""

    @property
    def steps(self) -> int:
        """Steps of the training."""

    @property
    def planned_steps(self) -> int | None:
        """Steps that the schedules are laid over where the training stops earlier, or None."""

    @property
    def warmup_steps(self) -> int:
        """Steps of linear warm-up."""

    @property
    def min_lr(self) -> float:
        """Learning rate after the last step."""

    @property
    def freeze_last_layer_steps(self) -> int:
        """Steps before the prototypes are trained."""

    @property
    def save_teacher_steps(self) -> int:
        """Steps from one teacher that is kept to the next."""


@runtime_checkable
class DINOv2Recipe(ModelRecipe, Protocol):
    """A recipe of which a backbone learns by DINOv2."""

    @property
    def crops(self) -> CropFields:
        """What is shown to teacher and student."""

    @property
    def head(self) -> HeadFields:
        """What projects tokens on prototypes."""

    @property
    def teacher(self) -> TeacherFields:
        """What gives the targets."""

    @property
    def optimizer(self) -> AdamWFields:
        """What updates the student."""

    @property
    def schedule(self) -> ScheduleFields:
        """Steps of the training."""
