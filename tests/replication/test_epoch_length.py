"""Planning and training count the steps of an epoch alike."""

import pytest

from replication.epoch_length import require_batches, steps_per_epoch
from vitrail.errors import VitrailError


@pytest.mark.parametrize("images", range(1, 40))
@pytest.mark.parametrize("size", [1, 3, 8])
def test_steps_are_the_batches_that_the_images_are_cut_into(images, size):
    batches = [range(images)[start : start + size] for start in range(0, images, size)]
    assert steps_per_epoch(images, size, drop_last=False) == len(batches)
    assert steps_per_epoch(images, size) == sum(len(batch) == size for batch in batches)


def test_batches_that_cannot_be_trained_on_are_refused():
    require_batches(17, 8, micro=8)
    require_batches(16, 8, micro=8, drop_last=False)
    require_batches(20, 8, micro=4, drop_last=False)
    with pytest.raises(VitrailError, match="has 3 of 19 images, too few for 2 micro-batches"):
        require_batches(19, 8, micro=4, drop_last=False)
    with pytest.raises(VitrailError, match="7 images, fewer than one batch of 8"):
        require_batches(7, 8, micro=8)
