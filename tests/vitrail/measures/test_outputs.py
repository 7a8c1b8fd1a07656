"""What a measure cannot judge is refused before a number is made of it."""

import pytest
import torch
from torch import nn

from vitrail.errors import VitrailError
from vitrail.measures.accuracy import accuracy
from vitrail.measures.consistency import (
    circular_consistency,
    crop_consistency,
    worst_shift,
    zero_padded_consistency,
)
from vitrail.measures.outputs import numbered, out_of_memory
from vitrail.octic.group_averaging import GroupAverage, most_confident_view
from vitrail.octic.turns import accuracy_under_turns, eight_views
from vitrail.variance.resolution_accuracy import right_at_size

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


def batches(side=SIDE):
    images = torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(0))
    return [(images, torch.tensor([0, 1, 0, 1]))]


MEASURES = {
    "accuracy": lambda m: accuracy(m, batches()),
    "circular shifts": lambda m: circular_consistency(m, batches()),
    "standard shifts": lambda m: zero_padded_consistency(m, batches(), 1, torch.zeros(3)),
    "worst shift": lambda m: worst_shift(m, batches(), 2),
    "crops": lambda m: crop_consistency(m, batches(), 2),
    "views": lambda m: eight_views(m, batches()),
    "turns": lambda m: accuracy_under_turns(m, batches()),
    "most confident view": lambda m: accuracy(GroupAverage(m, most_confident_view), batches()),
    "larger": lambda m: right_at_size(m, batches(2 * SIDE), 2 * SIDE, SIDE),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_logit_of_one_image_that_is_not_finite_is_refused(measure, value):
    with pytest.raises(VitrailError, match="logits are not finite"):
        MEASURES[measure](Fixed(0.0, 1.0, 0.0, other=value))


@pytest.mark.parametrize("measure", MEASURES)
def test_one_logit_predicts_nothing(measure):
    with pytest.raises(VitrailError, match="one logit, which is always the largest"):
        MEASURES[measure](Fixed(0.5))


@pytest.mark.parametrize("measure", MEASURES)
def test_two_finite_logits_are_enough(measure):
    MEASURES[measure](Fixed(0.0, 1.0))


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


def test_images_are_numbered_from_zero_or_as_they_are_given():
    model, twice = Fixed(0.0, 1.0), batches() * 2
    assert [own for own, _, _ in numbered(twice, model)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    given = range(0, 80, 10)
    assert [own for own, _, _ in numbered(twice, model, given)] == [
        [0, 10, 20, 30],
        [40, 50, 60, 70],
    ]
    with pytest.raises(VitrailError):
        list(numbered(twice, model, given[:7]))
