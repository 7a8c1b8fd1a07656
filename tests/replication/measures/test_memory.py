"""Memory is what a fresh process needs: weights, and in training their gradients and moments."""

from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from replication.context import Context
from replication.measures import memory as module
from replication.measures.memory import MIB, memory, run
from replication.measures.parameters import Architecture
from vitrail.errors import VitrailError

VIT = {"name": "vit_small_patch16_224", "args": {"img_size": 32}, "image_size": 32}


@pytest.fixture
def context(tmp_path):
    return Context("cuda", tmp_path, 0)


def test_a_cpu_has_no_allocator_to_ask_and_runs_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_in_a_fresh_process", None)
    values = memory(Context("cpu", tmp_path, 0), {"a": VIT, "b": VIT}, {"b": "a"}, batch_size=1)
    assert values.pop("batch_size") == 1
    assert len(values) == 2 * 4 + 2 * 4
    assert {*values.values()} == {None}


def test_changes_are_relative_to_the_partner(context, monkeypatch):
    peaks = {
        ("a", "training"): {"allocated": 200.0, "reserved": 250.0},
        ("a", "inference"): {"allocated": 100.0, "reserved": 100.0},
        ("b", "training"): {"allocated": 210.0, "reserved": 240.0},
        ("b", "inference"): {"allocated": 100.0, "reserved": 150.0},
    }
    monkeypatch.setattr(
        module, "_in_a_fresh_process", lambda model, phase, *_: peaks[model.name, phase]
    )
    values = memory(context, {"a": {"name": "a"}, "b": {"name": "b"}}, {"b": "a"})
    assert values["b/training/reserved"] == 240
    assert values["b/training/allocated/gain"] == pytest.approx(200 / 210)
    changes = {key: value for key, value in values.items() if key.endswith("/change")}
    assert changes == {
        "b/training/allocated/change": pytest.approx(5),
        "b/training/reserved/change": pytest.approx(-4),
        "b/inference/allocated/change": 0,
        "b/inference/reserved/change": 50,
    }


def test_a_phase_that_is_not_asked_for_is_unknown_and_does_not_run(context, monkeypatch):
    ran = []

    def measure(model, phase, *settings):
        ran.append((phase, *settings[2:]))
        return {"allocated": 1.0, "reserved": 1.0}

    monkeypatch.setattr(module, "_in_a_fresh_process", measure)
    models = {"a": {"name": "a"}, "b": {"name": "b"}}
    options = {"precision": "bf16", "compile": True}
    values = memory(context, models, {"b": "a"}, phases=["inference"], **options)
    assert ran == 2 * [("inference", "bf16", True)]
    assert values["b/inference/allocated/gain"] == 1
    assert values["b/training/allocated"] is values["b/training/allocated/gain"] is None


def test_a_pass_runs_compiled_and_in_the_precision_asked_for(context, monkeypatch):
    compiled, logits = [], []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    monkeypatch.setattr(module, "run", lambda model, images, _: logits.append(model(images)))
    tiny = Architecture(VIT["name"], {"img_size": 32, "depth": 1}, 32)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: 0)
    module.peak(tiny, "inference", 1, replace(context, device="cpu"), "bf16", True)
    assert logits[-1].dtype == torch.bfloat16
    assert len(compiled) == 1


def test_a_gpu_is_asked_for_its_own_peaks(context, monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * MIB)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 4 * MIB)
    monkeypatch.setattr(nn.Module, "to", lambda model, device: model)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: tensor)
    tiny = Architecture(VIT["name"], {"img_size": 32, "depth": 1}, 32)
    assert module.peak(tiny, "inference", 1, context) == {
        "allocated": 3,
        "reserved": 4,
    }


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["training", "inference"])
def test_the_fresh_process_gets_its_task_and_comes_to_the_end_of_it(context, phase):
    """On a CPU the model is built and run, and CUDA then says that it has handed out nothing."""
    tiny = Architecture(VIT["name"], {"img_size": 32, "depth": 1}, 32)
    settings = (tiny, phase, 1, replace(context, device="cpu"))
    assert module._in_a_fresh_process(*settings) == {"allocated": 0, "reserved": 0}


def test_training_steps_the_weights_twice_and_inference_leaves_no_graph():
    """shift, Sec. A2.3: what memory is measured of."""
    model = nn.Linear(2, 3)
    before, passes = model.weight.detach().clone(), []
    model.register_forward_hook(lambda _m, _i, logits: passes.append(logits.requires_grad))
    run(model, torch.randn(4, 2), "inference")
    assert torch.equal(model.weight, before)
    run(model, torch.randn(4, 2), "training")
    assert not torch.equal(model.weight, before)
    assert passes == [False, True, True]


@pytest.mark.parametrize("end", [BrokenProcessPool(), torch.OutOfMemoryError()])
def test_a_process_that_ends_for_want_of_memory_is_one_sentence(context, monkeypatch, end):
    class Pool(nullcontext):
        def __init__(self, **_):
            super().__init__(self)

        def submit(self, *_):
            raise end

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    with pytest.raises(VitrailError, match=r"the training of 'x' with 64 images .* lower the"):
        memory(context, {"a": {"name": "x"}})
