"""A model to be measured is made by name, and noise for it in the size that it expects."""

import pytest
import torch

from replication.context import Context
from replication.measures.parameters import (
    Architecture,
    architectures,
    comparisons,
    count,
    parameters,
)
from vitrail.errors import VitrailError

TINY = {"name": "vit_tiny_patch16_224", "args": {"img_size": 32, "depth": 1, "num_classes": 3}}


def test_models_and_noise_follow_from_the_seed_alone():
    tiny = Architecture(**TINY, image_size=32)
    (first, same, other) = (tiny.build(seed).eval() for seed in (0, 0, 1))
    images = tiny.images(2, first, seed=0)
    assert images.shape == (2, 3, 32, 32)
    assert torch.equal(first(images), same(tiny.images(2, same, seed=0)))
    assert not torch.equal(first(images), other(images))


def test_noise_has_the_models_own_size_unless_another_is_asked_for():
    model = Architecture("swinv2_tiny_window8_256", {"depths": (1, 1, 1, 1)}).build(0)
    assert Architecture("swinv2_tiny_window8_256").images(1, model, 0).shape[-1] == 256
    assert Architecture("swinv2_tiny_window8_256", {}, 64).images(1, model, 0).shape[-1] == 64


def test_parameters_are_counted_and_in_millions(tmp_path):
    values = parameters(
        Context("cpu", tmp_path, 0), {"a": {"name": "swin_tiny_patch4_window7_224"}, "b": TINY}
    )
    assert values["a/parameters"] == 28_288_354
    assert values["a/millions"] == 28.288354
    assert values["b/parameters"] < 1e6


def test_buffers_are_no_parameters():
    assert count(torch.nn.BatchNorm2d(5)) == {"parameters": 10, "millions": 1e-5}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "vit_tinny_patch16_224"}, "there is no model 'vit_tinny_patch16_224'; did you"),
        ({**TINY, "args": {"dept": 1}}, r"refuses args \{'dept': 1\} .*dept.*; correct"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(fields, sentence):
    with pytest.raises(VitrailError, match=sentence):
        architectures({"a": fields})["a"].build(0)


def test_an_unknown_field_is_refused():
    with pytest.raises(VitrailError, match=r"argument 'size'\); each has a name and may"):
        architectures({"a": {"name": "x", "size": 3}})


def test_arguments_without_names_are_refused():
    with pytest.raises(VitrailError, match=r"args of model 'x' are \['depth'\] and not names"):
        architectures({"a": {"name": "x", "args": ["depth"]}})


def test_a_pair_must_be_measured():
    models = {"a": {}, "b": {}, "c": {}}
    assert comparisons({"a": "b", "b": ["a", "c"]}, models) == [
        ("a", "b", ""),
        ("b", "a", "/a"),
        ("b", "c", "/c"),
    ]
    with pytest.raises(VitrailError, match=r"`pairs` name 'd', which is not among .*: a, b, c"):
        comparisons({"a": ["b", "d"]}, models)
