from pathlib import Path

import pytest

from vitrail.errors import VitrailError
from vitrail.images.opening import build, opened_once


def test_within_a_block_each_split_is_opened_once(digits):
    root = Path("nowhere")
    with opened_once():
        train = build(digits, "train", root)
        assert build(digits, "train", root) is train
        assert build(digits, "val", root) is not train
        assert build(digits, "train", Path("elsewhere")) is not train
    assert build(digits, "train", root) is not train


def test_what_cannot_be_opened_is_tried_again(digits):
    broken = digits.model_copy(update={"loader": "replication.data.arrays:cifar10"})
    with opened_once():
        for _ in range(2):
            with pytest.raises(VitrailError, match="cannot be read"):
                build(broken, "train", Path("nowhere"))
