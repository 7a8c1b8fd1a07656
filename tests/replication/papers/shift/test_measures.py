from functools import partial
from pathlib import Path

import pytest
import torch

from replication.context import Context
from replication.measures.consistency import circular_consistency
from replication.papers.shift import measures
from replication.papers.shift.measures import module_runtime
from vitrail.errors import VitrailError
from vitrail.shift.adaptive_cvt import AdaptiveCvT
from vitrail.shift.cvt import CvT

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)
MODULES = ["tokenization", "merging 2", "merging 3", "merging 4", "rpe"]


@pytest.fixture(scope="module")
def runtime():
    return module_runtime(CONTEXT, batch_size=1, passes=1, warmup=0)


@pytest.mark.parametrize("module", MODULES)
def test_the_delta_is_what_the_adaptive_module_takes_longer(runtime, module):
    """shift, Sec. 5.4."""
    difference = runtime[f"{module}/adaptive"] - runtime[f"{module}/plain"]
    assert runtime[f"{module}/delta"] == pytest.approx(difference)
    assert runtime[f"{module}/plain"] > 0


def test_the_default_model_selects_no_windows(runtime):
    assert runtime["windows/delta"] == runtime["windows/adaptive"] > 0
    assert "windows/plain" not in runtime


@pytest.mark.parametrize("embedded", [True, False])
def test_both_position_embeddings_are_timed_in_the_scores_of_one_attention(monkeypatch, embedded):
    for module, name in ((measures.timm, "create_model"), (measures, "a_mvitv2_tiny")):
        monkeypatch.setattr(module, name, partial(made, getattr(module, name), embedded))
    calls = measures._rpe_calls(batch_size=2, device="cpu")
    linear, circular = (calls[f"rpe/{version}"]() for version in ("plain", "adaptive"))
    assert linear.shape == circular.shape == (2, 1, 56**2, 14**2)
    assert torch.allclose(linear, circular, atol=1e-5) != embedded


def made(create, embedded, *args):
    """A model whose relative positions are embedded, or are all zero."""
    model = create(*args)
    for name, parameter in model.named_parameters():
        if "rel_pos" in name:
            torch.nn.init.normal_(parameter, std=float(embedded))
    return model


def test_consistency_tells_how_surely_grids_are_chosen(trained_on_digits):
    size = {"img_size": 8, "embed_dims": (8,), "depths": (1,), "num_heads": (1,)}
    sizes = {**size, "kernels": (2,), "strides": (2,), "kv_strides": (1,), "num_classes": 10}
    adaptive, plain = (
        circular_consistency(trained_on_digits(model.eval()), images=70, batch_size=64)
        for model in (AdaptiveCvT(**sizes), CvT(**sizes))
    )
    assert 0 <= adaptive["margin/smallest"] < adaptive["margin/median"]
    assert 0 < adaptive["margin/certified"] <= 100
    assert (adaptive["margin/smallest"] > 1) == (adaptive["margin/certified"] == 100)
    assert [plain[key] for key in plain if key.startswith("margin/")] == [None] * 3
    assert {"consistency", "top1"} < adaptive.keys()


def test_nothing_to_time_is_refused():
    with pytest.raises(VitrailError, match="passes is 0"):
        module_runtime(CONTEXT, passes=0)
