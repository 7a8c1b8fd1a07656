"""Models are timed in turns, and compared within a round."""

import pytest
import torch

from replication.context import Context
from replication.measures import throughput as module
from replication.measures.throughput import elapsed, every_one_compiled, throughput, time_in_turns
from vitrail.errors import VitrailError


def vit(**args):
    args = {"img_size": 32, "depth": 1, "embed_dim": 16, "num_heads": 1, "num_classes": 3, **args}
    return {"name": "vit_tiny_patch16_224", "args": args, "image_size": 32}


@pytest.fixture
def context(tmp_path):
    return Context("cpu", tmp_path, 0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that calls themselves move on: ``clock(seconds)`` is a call that takes as long."""
    now = [0.0]

    def taking(*seconds):
        remaining = list(seconds)

        def call():
            now[0] += remaining.pop(0)

        return call

    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return taking


def test_a_call_takes_as_long_as_the_clock_says(clock):
    assert elapsed(clock(2.5), "cpu") == 2.5


def test_calls_are_timed_in_turns_after_warming_up(clock):
    order = []
    times = {"a": clock(9, 1, 2), "b": clock(9, 3, 4)}
    calls = {name: lambda name=name: (order.append(name), times[name]()) for name in times}
    assert time_in_turns(calls, "cpu", passes=2, warmup=1) == {"a": [1, 2], "b": [3, 4]}
    assert order == list("ababab")


def test_throughput_and_change_are_those_of_the_mean_pass(context, monkeypatch):
    """shift, Sec. 5.4; octic, App. E.4."""
    seconds = {"plain": [0.5, 1.0, 4.5], "ours": [1.0, 1.5, 5.0]}
    monkeypatch.setattr(module, "time_in_turns", lambda *_: seconds)
    values = throughput(
        context, {"plain": vit(), "ours": vit(depth=2)}, {"ours": "plain"}, batch_size=4, passes=3
    )
    assert values["plain/images_per_second"] == 2.0
    assert values["ours/images_per_second"] == 1.6
    assert values["ours/change"] == pytest.approx(20)
    assert values["ours/gain"] == pytest.approx(0.8)
    assert "plain/change" not in values
    assert values["ours/parameters"] > values["plain/parameters"]
    assert values["ours/millions"] == values["ours/parameters"] / 1e6
    assert values["ours/batch_size"] == 4


def test_a_model_may_be_compared_with_several(context, monkeypatch):
    seconds = {"plain": [1.0], "off": [2.0], "ours": [4.0]}
    monkeypatch.setattr(module, "time_in_turns", lambda *_: seconds)
    models = dict.fromkeys(seconds, vit())
    values = throughput(context, models, {"ours": ["plain", "off"]}, batch_size=1, passes=1)
    assert [values[f"ours/change/{column}"] for column in ("plain", "off")] == [75, 50]


def shown_to(monkeypatch):
    """What reaches the models, and in which state they are."""
    shown = []

    def time_once(calls, *_):
        seconds = {}
        for label, call in calls.items():
            shown.append((call(), torch.is_inference_mode_enabled()))
            seconds[label] = [1.0]
        return seconds

    monkeypatch.setattr(module, "time_in_turns", time_once)
    return shown


def test_models_run_in_inference_mode_on_a_whole_batch_in_the_precision_asked_for(
    context, monkeypatch
):
    shown = shown_to(monkeypatch)
    throughput(context, {"a": vit()}, batch_size=5)
    throughput(context, {"a": vit()}, batch_size=5, precision="bf16")
    (full, inference), (half, _) = shown
    assert inference
    assert full.shape == half.shape == (5, 3)
    assert (full.dtype, half.dtype) == (torch.float32, torch.bfloat16)
    # In evaluation mode and from one seed: nothing but the precision differs.
    torch.testing.assert_close(full, half.float(), atol=0.02, rtol=0.02)


class Deep(torch.nn.Module):
    """So many layers, as the models of a family differ while they share their `forward`."""

    def __init__(self, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.slow
def test_many_models_of_one_class_are_all_compiled():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    models = [Deep(depth) for depth in range(1, 13)]
    with every_one_compiled(), torch.inference_mode():
        for model in models:
            model.compile(backend=backend, dynamic=False)
            model(torch.zeros(1, 2))
    assert len(compiled) == len(models)


@pytest.mark.parametrize("compile_it", [False, True])
def test_models_are_compiled_where_it_is_asked_for(context, monkeypatch, compile_it):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model, dynamic: compiled.append(model))
    throughput(context, {"a": vit()}, batch_size=1, passes=1, warmup=0, compile=compile_it)
    assert len(compiled) == compile_it


@pytest.mark.parametrize("args", [{"passes": 0}, {"batch_size": 0}])
def test_nothing_to_time_is_refused(context, args):
    with pytest.raises(VitrailError, match="give at least 1 of each"):
        throughput(context, {"a": vit()}, **args)


def test_a_partner_that_is_not_measured_is_refused(context):
    with pytest.raises(VitrailError, match="'b', which is not among"):
        throughput(context, {"a": vit()}, {"a": "b"})
