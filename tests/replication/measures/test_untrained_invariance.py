"""Untrained models are invariant on photographs exactly where their architecture says so."""

import math

import pytest
import torch
from torch.nn import functional

from replication.context import Context
from replication.measures.untrained_invariance import logits_under
from replication.papers.shift.measures import invariance
from vitrail.errors import VitrailError
from vitrail.measures.equivariance import Group
from vitrail.measures.invariance import change_under

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


def test_the_branches_of_swinv2_are_open_so_its_windows_are_tested(context):
    """Its norms begin with a scale of 0, behind which no choice of windows would be seen."""
    name, args = "a_swinv2_tiny_window8_256", {**SMALL, "selection": "paper"}
    fixed = {**args, "adaptive_windows": False}
    swins = {
        label: {"name": name, "args": a, "image_size": 32}
        for label, a in (("adaptive", args), ("windows fixed", fixed))
    }
    values = invariance(context, swins, images=3, shifts=2)
    assert (values["adaptive/equal"], values["adaptive/relative"]) == (100, 0)
    assert values["windows fixed/relative"] > 1e-3


def test_changes_are_counted_by_images_and_by_pixels():
    """The logits of the second of two images change, and its prediction; of maps, one pixel's."""
    images = torch.zeros(2, 3, 1, 2)
    group = Group((1,), lambda x, element: x + element)

    def classify(x):
        wins = torch.tensor([[0.0], [1.0]]) * x[:, 0, 0, :1]
        return torch.cat([torch.full_like(wins, 0.5), wins], dim=1)

    values = change_under(classify, group, images)
    assert values._asdict() == {"equal": 50, "error": 1, "relative": 2, "changed": 50}

    def segment(x):
        return functional.pad(classify(x)[:, :, None, None], (1, 0, 0, 0))

    assert change_under(segment, group, images).changed == 25


def test_logits_that_move_with_the_images_have_not_changed():
    images = torch.rand(2, 2, 3, 4, generator=torch.manual_seed(0))
    group = Group((1, 2), lambda x, shift: x.roll(shift, dims=3))
    follow = group._replace(on_output=group.on_input)
    assert change_under(lambda x: x, follow, images).equal == 100
    assert change_under(lambda x: x, group, images).equal == 0


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
