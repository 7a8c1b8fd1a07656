"""Untrained models are invariant on photographs exactly where their architecture says so."""

import math

import pytest
import torch

from vitrail.errors import VitrailError
from vitrail.measures.context import Context
from vitrail.measures.equivariance import Group
from vitrail.measures.invariance import logits_under
from vitrail.shift.measures import invariance

SMALL = {"img_size": 32, "window_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
SWIN = "swin_tiny_patch4_window7_224"


def models():
    adaptive = {"name": f"a_{SWIN}", "args": {**SMALL, "selection": "paper"}, "image_size": 32}
    return {
        "plain": {"name": SWIN, "args": SMALL, "image_size": 32},
        "adaptive": adaptive,
        "off": {**adaptive, "args": {**SMALL, "selection": "none"}},
    }


@pytest.fixture
def context(tmp_path):
    return Context("cpu", tmp_path, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_adaptive_model_keeps_every_bit_and_the_controls_do_not(context, dtype):
    """shift, Eq. 3."""
    values = invariance(context, models(), images=3, shifts=2, dtype=dtype)
    assert (values["adaptive/equal"], values["adaptive/relative"]) == (100, 0)
    for control in ("plain", "off"):
        assert values[f"{control}/equal"] < 50
        assert values[f"{control}/relative"] > 1e-3


def test_images_that_do_not_move_keep_their_logits_and_others_are_counted(context):
    """Of two elements one leaves the images as they are."""

    def group_on(images):
        return Group((0, 1), lambda x, shift: x.roll(shift, dims=3))

    values = logits_under(context, {"plain": models()["plain"]}, group_on, 2, "float64")
    assert values["plain/equal"] == 50
    assert values["plain/error"] > 0
    assert not math.isnan(values["plain/relative"])


def test_a_model_for_images_larger_than_the_photographs_is_refused(context):
    large = {"plain": {**models()["plain"], "image_size": 512}}
    with pytest.raises(VitrailError, match="crops of 512 pixels"):
        logits_under(context, large, lambda x: Group((0,), torch.roll), 1, "float32")
