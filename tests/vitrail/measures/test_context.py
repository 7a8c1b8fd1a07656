"""What a measure cannot judge is refused before a number is made of it."""

import pytest
import torch
from torch import nn

from vitrail.cross.measures import crops_consistency, eight_views, right_at_size
from vitrail.errors import VitrailError
from vitrail.measures.accuracy import accuracy
from vitrail.measures.consistency import circular_consistency, standard_consistency, worst_shift
from vitrail.measures.context import out_of_memory
from vitrail.measures.fractional import fractional_consistency
from vitrail.octic.rotation import rotated_accuracy
from vitrail.octic.views import accuracy_of_views

SIDE = 8


class Fixed(nn.Module):
    """A classifier of the same logits for every image; the first of a batch may have another."""

    def __init__(self, *logits, other=None):
        super().__init__()
        self.register_buffer("values", torch.tensor(logits))
        self.other = other

    def forward(self, images):
        logits = self.values.expand(len(images), -1).clone()
        if self.other is not None:
            logits[0, 0] = self.other
        return logits


MEASURES = {
    "accuracy": accuracy,
    "circular shifts": lambda t: circular_consistency(t, images=4),
    "standard shifts": lambda t: standard_consistency(t, ["zero"], images=4),
    "worst shift": lambda t: worst_shift(t, images=4, shifts=2),
    "crops": lambda t: crops_consistency(t, images=4),
    "fractional shifts": lambda t: fractional_consistency(t, images=4),
    "views": lambda t: eight_views(t, images=4),
    "turns": lambda t: rotated_accuracy(t, images=4),
    "of eight views": lambda t: accuracy_of_views(t, images=4),
    "larger": lambda t: right_at_size(t, 2 * SIDE, images=4),
}


@pytest.fixture
def trained(trained_on_digits):
    return lambda model: trained_on_digits(model, image_size=SIDE)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_logit_of_one_image_that_is_not_finite_is_refused(trained, measure, value):
    with pytest.raises(VitrailError, match="logits are not finite"):
        MEASURES[measure](trained(Fixed(0.0, 1.0, 0.0, other=value)))


@pytest.mark.parametrize("measure", MEASURES)
def test_one_logit_predicts_nothing(trained, measure):
    with pytest.raises(VitrailError, match="one logit, which is always the largest"):
        MEASURES[measure](trained(Fixed(0.5)))


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "of eight views"])
def test_two_finite_logits_are_enough(trained, measure):
    MEASURES[measure](trained(Fixed(0.0, 1.0)))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        *map(
            RuntimeError,
            [
                "CUDA error: out of memory",
                "MPS backend out of memory (MPS allocated: 17.01 GB, max allowed: 18.13 GB)",
                "Invalid buffer size: 24.00 GiB",
                "XPU out of memory. Tried to allocate 2.00 GiB",
                "[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory",
                "[enforce fail at alloc_cpu.cpp:80] . DefaultCPUAllocator: not enough memory",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
                "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
                "cuFFT error: CUFFT_ALLOC_FAILED",
                "Unable to find a valid cuDNN algorithm to run convolution",
                "GET was unable to find an engine to execute this computation",
            ],
        ),
    ],
)
def test_a_lack_of_memory_is_known_by_the_words_of_each_device(error):
    assert out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        RuntimeError("The size of tensor a (65) must match the size of tensor b (50)"),
        ValueError("out of memory"),
    ],
)
def test_another_error_is_no_lack_of_memory(error):
    assert not out_of_memory(error)
